//! The acquisitions of all workers, as a history for the checker (Jepsen's first lock workload).

use std::{collections::BTreeMap, time::Duration};

use gaggle::strategies::{Drift, lock::Nonce};
use gaggle_lab::history::{
    self, Call, History, ModelKind, Operation, Outcome, Refusal, Report, Settings,
};

use crate::protocol::{Event, KEY, Outcome as Unlocked};

/// An acquisition, as far as its process reported it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acquisition {
    pub(crate) asked: u64,
    pub(crate) grant: Option<Grant>,
    pub(crate) lost: Option<u64>,
    pub(crate) wrote: Option<u64>,
    pub(crate) unlocking: Option<u64>,
    pub(crate) unlocked: Option<(u64, Unlocked)>,
    /// When its process was killed, at the latest moment at which it certainly still ran.
    pub(crate) died: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) at: u64,
    pub(crate) token: u64,
    pub(crate) deadline: u64,
}

/// All acquisitions of one key, by process instance and operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct MutexLog {
    pub(crate) acquisitions: BTreeMap<(u32, u32), Acquisition>,
    /// How calls that were not granted ended.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Times in which a group lost its majority and another formed: locks of that time may be lost
    /// before their deadline, and the former holder gives up first.
    pub(crate) formings: Vec<(u64, u64)>,
}

impl MutexLog {
    /// Records an event of a process. Events of other kinds are not for the log.
    pub(crate) fn note(&mut self, instance: u32, event: &Event) {
        match event {
            Event::Asked { op, at } => self.of(instance, *op).asked = *at,
            Event::Granted { op, at, token, deadline } => {
                self.of(instance, *op).grant =
                    Some(Grant { at: *at, token: *token, deadline: *deadline });
            }
            Event::Lost { op, at } => self.of(instance, *op).lost = Some(*at),
            Event::Wrote { op, at } => self.of(instance, *op).wrote = Some(*at),
            Event::Unlocking { op, at } => self.of(instance, *op).unlocking = Some(*at),
            Event::Unlocked { op, at, outcome } => {
                self.of(instance, *op).unlocked = Some((*at, outcome.clone()));
            }
            Event::Refused { error, .. } => {
                *self.refusals.entry(error.clone()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn of(&mut self, instance: u32, op: u32) -> &mut Acquisition {
        self.acquisitions.entry((instance, op)).or_default()
    }

    /// The process was killed.
    pub(crate) fn died(&mut self, instance: u32, at: u64) {
        for (_, acquisition) in self.acquisitions.range_mut((instance, 0)..=(instance, u32::MAX)) {
            acquisition.died = Some(at);
        }
    }

    pub(crate) fn grants(&self) -> usize {
        self.acquisitions.values().filter(|acquisition| acquisition.grant.is_some()).count()
    }

    /// How many sections a process has finished since `since`.
    pub(crate) fn sections(&self, instance: u32, since: u64) -> usize {
        let of = self.acquisitions.range((instance, 0)..=(instance, u32::MAX));
        of.filter(|(_, acquisition)| acquisition.asked >= since && acquisition.wrote.is_some())
            .count()
    }

    /// Whether a guard of this process was lost after `since`.
    pub(crate) fn was_lost(&self, instance: u32, since: u64) -> bool {
        let of = self.acquisitions.range((instance, 0)..=(instance, u32::MAX));
        of.into_iter().any(|(_, acquisition)| acquisition.lost.is_some_and(|lost| lost > since))
    }

    /// Checks all grants; `lease` is the duration that every worker asks for. Deadlines are exact,
    /// because all processes of a host share the boot clock.
    pub(crate) fn check(&self, models: &[ModelKind], lease: Duration) -> Report {
        let drift = Drift::from_ppm(0).unwrap();
        let settings = Settings { drift, ..Settings::default() };
        history::check(&self.history(lease), models, &settings)
    }

    /// How many grants came within another's hold.
    pub(crate) fn overlaps(&self) -> usize {
        let hold = |held: &Acquisition| {
            let grant = held.grant?;
            let ends = [Some(grant.deadline), held.unlocking, held.died];
            Some((grant.at, ends.into_iter().flatten().min()?))
        };
        let mut holds: Vec<(u64, u64)> = self.acquisitions.values().filter_map(hold).collect();
        holds.sort_unstable();
        let mut latest = 0;
        let within = |(from, to): &(u64, u64)| {
            let within = *from < latest;
            latest = latest.max(*to);
            within
        };
        holds.into_iter().filter(within).count()
    }

    /// Each grant and its unlock. A LOCK without a grant is left out: no outcome depends on it.
    fn history(&self, lease: Duration) -> History {
        let mut operations = Vec::new();
        let granted = self.acquisitions.iter();
        let granted = granted.filter_map(|(id, held)| Some((*id, held, held.grant?)));
        for (client, ((instance, op), held, grant)) in (0..).zip(granted) {
            let unlocked_at = held.unlocked.as_ref().map(|(at, _)| *at);
            let forming = |(from, to): &(u64, u64)| {
                held.asked <= *to && unlocked_at.unwrap_or(u64::MAX) >= *from
            };
            let forming = self.formings.iter().any(forming);
            let ends = [Some(grant.deadline), held.lost.filter(|_| forming), held.died];
            let until = nanos(ends.into_iter().flatten().min().unwrap());
            let outcome = Outcome::Granted { token: grant.token, until };
            let unlocked = match &held.unlocked {
                Some((_, Unlocked::Ok)) => Outcome::Done,
                Some((_, Unlocked::NotHolder)) if !forming => Outcome::Refused(Refusal::NotHolder),
                Some((_, Unlocked::Expired)) => Outcome::Refused(Refusal::Expired),
                _ => Outcome::Unknown,
            };
            let call = Call::Lock { duration: lease, max_wait: None };
            let lock = (call, Some(held.asked), Some(grant.at), outcome);
            for (call, invoked, completed, outcome) in
                [lock, (Call::Unlock, held.unlocking, unlocked_at, unlocked)]
            {
                let Some(invoked) = invoked.map(nanos) else { continue };
                let nonce = Nonce::from_u128(u128::from(instance) << 32 | u128::from(op));
                let (key, completed) = (KEY.into(), completed.map(nanos));
                let queued = None;
                operations.push(Operation {
                    client,
                    key,
                    nonce,
                    call,
                    invoked,
                    queued,
                    completed,
                    outcome,
                });
            }
        }
        History::new(operations).unwrap()
    }
}

const fn nanos(at: u64) -> Duration {
    Duration::from_nanos(at)
}
