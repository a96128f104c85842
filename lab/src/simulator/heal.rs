//! After the faults: recovery, and its time limits.

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{
    Error, KeyedMutex, LockOptions, MaxWait,
    clock::Clock,
    lock_table::{LockTable, Sizes},
    member::Policy,
};

use super::{
    clock::MS, machine::Member, plan::Timing, process::Process, recorder::Observation, world::World,
};

/// A leader that all follow, and every process a voter: the engine's elections, a forming after
/// the loss of a majority, a member that starts over because its joining went silent.
const SETTLED_WITHIN: u64 = 20_000 * MS;
/// Beyond the longest wait and the leases before it.
const REPLY_WITHIN: u64 = 200_000 * MS;
/// Beyond the ten seconds within which nonces are forgotten, and the end of a queue in Redis.
const FORGOTTEN_WITHIN: u64 = 12_000 * MS;
const COMPACTED_WITHIN: u64 = 1_000 * MS;
/// Beyond the way of a request and its reply in a calm network, and a heartbeat.
const ROUND_TRIP: Duration = Duration::from_millis(300);
/// How far a member's table may be behind: a stamp comes every 500 ms (contract, rule 3).
const STAMP_LAG: Duration = Duration::from_millis(500).saturating_add(ROUND_TRIP);
/// Longer than that, and with the rest of a probe shorter than the shortest lease that it takes.
const HOLD: Duration = Duration::from_secs(1);

impl World {
    /// Exactly one leader that all members follow, and every member votes.
    pub(super) fn is_settled(&self) -> bool {
        if self.host.is_some() {
            return self
                .slots
                .iter()
                .all(|slot| slot.process.as_ref().is_some_and(Process::is_connected));
        }
        let mut leader = None;
        self.slots.iter().all(|slot| {
            let Some(process) = &slot.process else { return false };
            let Some(member) = process.member() else { return false };
            let follows = member.leader();
            let same = leader.is_none() || leader == follows;
            leader.clone_from(&follows);
            same && follows.is_some() && member.is_ready() && !process.closing
        })
    }

    /// Stops the faults and asserts that everything heals. Returns how long until all followed one
    /// leader.
    pub(super) fn heal(&mut self) -> Duration {
        self.calm();
        let began = self.now();
        // Processes that were closing restart by themselves.
        let settled = self.run_until(began + SETTLED_WITHIN, Self::is_settled);
        assert!(
            settled,
            "not healed: no leader that all follow after {SETTLED_WITHIN} ns\n{}",
            self.state()
        );
        let took = self.now() - began;
        let replied = self.run_until(self.now() + REPLY_WITHIN, |world| !world.clients_run());
        assert!(replied, "not healed: a caller never got a reply\n{}", self.state());
        // A lease may have been extended to twice the longest; clocks drift meanwhile.
        let lease = self.plan.work.lease_ms.1 * 2 * MS * 102 / 100;
        let end = self.now() + lease + self.queue_expiry() + FORGOTTEN_WITHIN;
        let free = self.run_until(end, Self::is_free);
        assert!(
            free,
            "not healed: keys are held or awaited after the last lease\n{}",
            self.state()
        );
        self.probe();
        if self.host.is_some() && self.plan.policy == Policy::Queue && self.slots.len() > 1 {
            self.probe_queue();
            let Timing { waiters_max, nonces_max, .. } = self.plan.options;
            if self.slots.len() > 2 && waiters_max > 1 && nonces_max > 1_000 {
                self.probe_silence();
            }
        }
        if self.plan.seed.is_multiple_of(8) {
            let memory = self.plan.options.nonce_memory_ms * MS * 102 / 100;
            // A frame that was held up brings a nonce when it comes.
            let end = self.now() + self.plan.network.spike_max + memory + FORGOTTEN_WITHIN;
            let forgotten = self.run_until(end, Self::has_forgotten);
            assert!(forgotten, "not healed: nonces are remembered for too long\n{}", self.state());
        }
        // Entries that have just come in a burst are not committed yet, and stay until they are.
        let compacted = self.run_until(self.now() + COMPACTED_WITHIN, Self::is_compacted);
        assert!(compacted, "not healed: a log was not compacted\n{}", self.state());
        Duration::from_nanos(took)
    }

    /// After this long without a sign of life a queue in Redis expires.
    fn queue_expiry(&self) -> u64 {
        self.host.as_ref().map_or(0, |_| 4 * self.plan.options.waiter_ttl_ms * MS * 102 / 100)
    }

    fn is_free(&self) -> bool {
        self.processes().all(|process| process.engine.pending() == 0)
            && match &self.host {
                Some(host) => host.keys_left().is_empty(),
                None => self.tables(|sizes| sizes.keys == 0 && sizes.waiters == 0),
            }
    }

    fn has_forgotten(&self) -> bool {
        match &self.host {
            Some(host) => host.has_forgotten(),
            None => self.tables(|sizes| sizes.nonces_remembered == 0),
        }
    }

    /// Whether this is so of every member's table.
    fn tables(&self, is: impl Fn(Sizes) -> bool) -> bool {
        self.processes().all(|process| {
            let table = process.member().and_then(Member::table);
            table.is_some_and(|table| is(table.sizes()))
        })
    }

    fn is_compacted(&self) -> bool {
        let longest = self.plan.options.compact_after + 64;
        let mut members = self.processes().filter_map(Process::member);
        members.all(|member| member.view().is_none_or(|view| view.last.0 - view.start.0 <= longest))
    }

    /// Every member locks and unlocks the same key, one after the other.
    fn probe(&mut self) {
        // A group that has just been formed waits for leases of another, which it does not know.
        let outside = Duration::from_millis(self.plan.options.outside_ms * 102 / 100);
        let wait = Duration::from_secs(3) + outside;
        let within = 6_000 * MS + self.plan.options.outside_ms * MS * 104 / 100;
        for slot in 0..self.slots.len() {
            let Some(process) = &self.slots[slot].process else { continue };
            let (strategy, recorder) = (process.strategy.clone(), Arc::clone(&self.recorder));
            let clock = process.clock.clone();
            let lease = match self.plan.options.outside_ms {
                0 => LockOptions::default().get_duration(),
                outside => Duration::from_millis(outside),
            };
            let hold = if slot == 0 { HOLD } else { Duration::ZERO };
            self.spawn(slot, 0, async move {
                let options = LockOptions::default().max_wait(wait).duration(lease);
                match probe(&*strategy, &*clock, options, hold).await {
                    Ok(None) => {}
                    Ok(Some(violation)) => recorder.note(Observation::Unhealed(violation)),
                    // A memory that the plan made small is full until it forgets.
                    Err(Error::Limit { .. }) => {}
                    Err(error) => {
                        recorder.note(Observation::Unhealed(format!("healed, and yet: {error}")));
                    }
                }
            });
            let done = self.run_until(self.now() + within, |world| !world.clients_run());
            assert!(done, "not healed: a probe never got a reply\n{}", self.state());
        }
        // A LOCK of a process that has ended may have arrived meanwhile.
        let free = self.run_until(self.now() + self.queue_expiry() + 2_000 * MS, Self::is_free);
        assert!(free, "not healed: a probe left something behind\n{}", self.state());
    }

    /// The state of every process, for a failure.
    pub(super) fn state(&self) -> String {
        let lines = self.slots.iter().map(|slot| match &slot.process {
            None => format!("  {}: down", slot.name),
            Some(p) => format!(
                "  {}: closing {}, pending {}, tasks {}{}",
                slot.name,
                p.closing,
                p.engine.pending(),
                p.tasks.len(),
                p.member().map(state_of).unwrap_or_default(),
            ),
        });
        let left =
            self.host.as_ref().map(|host| format!("  left in redis: {:?}", host.keys_left()));
        lines.chain(left).collect::<Vec<_>>().join("\n")
    }
}

/// Locks a key, cancels a waiter for it, holds the key, and unlocks it. Returns a violation: a
/// future that is dropped withdraws its request (contract, rule 7), and the cluster time that a
/// lease is measured by advances while it lives (rule 3).
async fn probe(
    strategy: &dyn KeyedMutex,
    clock: &dyn Clock,
    options: LockOptions,
    hold: Duration,
) -> Result<Option<String>, Error> {
    let pause = |long| clock.sleep_until(clock.now().after(long));
    let lock = strategy.lock("probe", options.clone()).await?;
    tokio::select! {
        biased;
        _ = strategy.lock("probe", options.max_wait(MaxWait::Forever)) => {}
        () = pause(ROUND_TRIP) => {}
    }
    pause(ROUND_TRIP).await;
    let before = strategy.inspect("probe").await?;
    pause(hold).await;
    let after = strategy.inspect("probe").await?;
    strategy.unlock(&lock).await?;
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(Some("a key that is held is shown as free".into()));
    };
    let passed = before.remaining.saturating_sub(after.remaining);
    Ok(if before.waiters > 0 {
        Some(format!("{} cancelled waiters are still in the queue", before.waiters))
    } else if passed + STAMP_LAG < hold {
        Some(format!("cluster time advanced by {passed:?} in {hold:?} of a lease"))
    } else {
        None
    })
}

fn state_of(member: &Member) -> String {
    format!(
        ", ready {}, leader {:?}, {:?}, {:?}\n    {}",
        member.is_ready(),
        member.leader(),
        member.view(),
        member.table().map(LockTable::sizes),
        member.forming(),
    )
}
