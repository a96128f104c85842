//! Takes the observations of clients.

use std::time::Duration;

use super::{
    invariants::Belief,
    plan::Clocks,
    recorder::{Completion, Observation},
    world::World,
};
use crate::history::Outcome;

impl World {
    /// Takes the observations of the client that was just polled.
    pub(super) fn observe(&mut self, slot: usize) {
        let now = self.now();
        for observation in self.recorder.take() {
            let line = format_args!("{observation:?}");
            self.trace.note(now, &[6, slot as u64], line);
            let beyond = match observation {
                Observation::Called { client, key, op, call } => {
                    self.totals.operations += 1;
                    self.calls.invoke(now, client, key, op, call);
                    Ok(())
                }
                Observation::Completed { client, outcome } => {
                    if outcome == Completion::Cancelled && self.calls.is_queued(client) {
                        self.invariants.coverage.reach("waiter cancelled");
                    }
                    let outcome = self.outcome(slot, outcome);
                    self.calls.complete(now, client, outcome);
                    Ok(())
                }
                Observation::Holds { client, op, lock, watch } => {
                    let process = self.slots[slot].process.as_ref().expect("it was just polled");
                    let clock = process.clock.clone();
                    let lost = watch.is_lost();
                    let outside = self.plan.options.outside_ms > 0;
                    let belief = Belief {
                        client,
                        slot,
                        op,
                        clock,
                        lock,
                        watch,
                        lost,
                        outside,
                        orphan: false,
                    };
                    self.invariants.believe(belief)
                }
                Observation::Extends { client, nonce, deadline } => {
                    self.invariants.believe_longer(client, nonce, deadline)
                }
                Observation::LetsGo { client, nonce } => {
                    self.invariants.let_go(client, nonce);
                    Ok(())
                }
                Observation::Releases { nonce, token } => {
                    self.invariants.release(slot, nonce, token);
                    Ok(())
                }
                Observation::Unlocked(lock) => {
                    self.invariants.check_unlocked(&lock);
                    Ok(())
                }
                Observation::Forces { key, nonce, token } => {
                    self.recorder.force(nonce);
                    let op = self.invariants.force((nonce, token));
                    self.calls
                        .gave_up(now, &op.map(|op| (op, key)).into_iter().collect::<Vec<_>>());
                    Ok(())
                }
                Observation::Broken(what) if self.plan.clocks == Clocks::WithinBound => {
                    panic!("{what}")
                }
                Observation::Broken(_) => Ok(()),
                // The clocks are within the bound again.
                Observation::Unhealed(what) => panic!("{what}"),
                Observation::Reached(what) => {
                    self.invariants.coverage.reach(what);
                    Ok(())
                }
            };
            match beyond {
                Ok(()) => {}
                Err(_) if self.plan.clocks == Clocks::BeyondBound => self.totals.two_believed += 1,
                Err(two) => panic!("{two}"),
            }
        }
    }

    /// The outcome as the history has it, with deadlines in virtual time.
    fn outcome(&mut self, slot: usize, completion: Completion) -> Outcome {
        let process = self.slots[slot].process.as_ref().expect("it was just polled");
        let until = |at| Duration::from_nanos(process.clock.virtual_time(at));
        match completion {
            Completion::Granted { token, until: at } => {
                self.totals.granted += 1;
                Outcome::Granted { token, until: until(at) }
            }
            Completion::Extended { until: at } => Outcome::Extended { until: until(at) },
            Completion::Otherwise(outcome) => outcome,
            Completion::Cancelled => {
                self.invariants.coverage.reach("call cancelled");
                Outcome::Unknown
            }
            Completion::Unknown => Outcome::Unknown,
        }
    }

    /// Ends the beliefs of holders that were notified of a loss, and notes the queues.
    pub(super) fn note_losses(&mut self, slot: usize) {
        let now = self.now();
        for line in self.invariants.lines.iter_mut().flat_map(std::mem::take) {
            self.trace.write(now, format_args!("{line}"));
        }
        let process = self.slots[slot].process.as_ref().filter(|process| !process.closing);
        let group = || Some(process?.member()?.view()?.id);
        let is_redis = self.host.is_some();
        let lost = self.invariants.take_lost(slot, |all, lock| match is_redis {
            true => process.is_some() && all.is_held(lock),
            false => group().is_some_and(|group| all.lives_in(group, lock)),
        });
        self.calls.gave_up(now, &lost);
        if self.invariants.take_formed_again() {
            self.recorder.begin_memory();
            self.calls.all_dropped();
        }
        self.note_queues();
    }

    pub(super) fn note_queues(&mut self) {
        let now = self.now();
        for (op, nonce, queued) in self.invariants.take_queued() {
            if queued {
                self.calls.queued(now, op, nonce);
            } else {
                self.calls.dropped(op, nonce);
            }
        }
    }
}
