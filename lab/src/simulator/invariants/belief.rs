//! No two holders believe in one key.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gaggle_strategies::{
    Lock,
    clock::{Clock, Instant},
    implement::LossWatch,
    lock::Nonce,
};

use crate::simulator::{clock::SimClock, recorder::Op};

/// No two holders of a key both believe in their lock (contract, rules 1 and 2): each by its own
/// clock, deadline and loss signal.
#[derive(Debug, Default)]
pub(super) struct Beliefs {
    keys: BTreeMap<Arc<str>, Vec<Belief>>,
    /// Beliefs whose deadline passed before another client believed: no extend may revive them.
    lapsed: Vec<Belief>,
    /// Acquisitions that no longer protect: the granting side lost its
    /// memory of them, or an operator ends them.
    orphans: BTreeSet<Acquisition>,
}

/// The nonce and the token of a grant.
pub(in crate::simulator) type Acquisition = (Nonce, u64);

#[derive(Debug)]
pub(in crate::simulator) struct Belief {
    pub(in crate::simulator) client: u32,
    pub(in crate::simulator) slot: usize,
    pub(in crate::simulator) op: Op,
    pub(in crate::simulator) clock: Arc<SimClock>,
    pub(in crate::simulator) lock: Lock,
    pub(in crate::simulator) watch: LossWatch,
    /// Whether it was lost before it began.
    pub(in crate::simulator) lost: bool,
    /// Whether its holder is none of the process's: it outlives that.
    pub(in crate::simulator) outside: bool,
    /// Whether it no longer protects.
    pub(in crate::simulator) orphan: bool,
}

impl Belief {
    fn nonce(&self) -> Nonce {
        self.lock.nonce()
    }

    pub(super) fn acquisition(&self) -> Acquisition {
        (self.nonce(), self.lock.fencing_token())
    }

    fn is_valid(&self) -> bool {
        !self.orphan && !self.is_over() && !self.watch.is_lost()
    }

    fn is_over(&self) -> bool {
        self.clock.now() >= self.lock.deadline().expect("a holder has a deadline")
    }
}

impl Beliefs {
    /// A client relies on its lock from now on. Beliefs only begin or are extended here, so two
    /// that overlap are seen here.
    pub(super) fn begin(&mut self, mut belief: Belief) -> Result<(), String> {
        belief.orphan = self.orphans.contains(&belief.acquisition());
        let key = belief.lock.key().clone();
        let all = self.keys.entry(key.clone()).or_default();
        self.lapsed.extend(all.extract_if(.., |belief| !belief.is_valid()));
        all.push(belief);
        Self::check(all)
    }

    pub(super) fn extend(
        &mut self,
        client: u32,
        nonce: Nonce,
        deadline: Instant,
    ) -> Result<(), String> {
        let lapsed = |b: &Belief| b.client == client && b.nonce() == nonce;
        if let Some(place) = self.lapsed.iter().position(lapsed) {
            let belief = self.lapsed.swap_remove(place);
            self.keys.entry(belief.lock.key().clone()).or_default().push(belief);
        }
        for all in self.keys.values_mut() {
            let found = all.iter_mut().find(|b| b.client == client && b.nonce() == nonce);
            if let Some(belief) = found {
                belief.lock = belief.lock.with_deadline(deadline);
                return Self::check(all);
            }
        }
        Ok(())
    }

    fn check(all: &[Belief]) -> Result<(), String> {
        let mut valid = all.iter().filter(|belief| belief.is_valid());
        let Some(first) = valid.next() else { return Ok(()) };
        // Clients to which one lock was handed share it.
        match valid.find(|other| other.acquisition() != first.acquisition()) {
            None => Ok(()),
            Some(other) => Err(format!(
                "two holders believe: client {} with {:?} and client {} with {:?}",
                first.client, first.lock, other.client, other.lock
            )),
        }
    }

    /// The beliefs in this process that were lost before their deadline.
    pub(super) fn lost_early(&self, slot: usize) -> impl Iterator<Item = &Belief> {
        let all = self.keys.values().flatten().filter(move |belief| belief.slot == slot);
        all.filter(|belief| belief.watch.is_lost() && !belief.is_over())
    }

    /// How many are held outside this process, or outside all.
    pub(super) fn outside(&self, slot: Option<usize>) -> usize {
        let all = self.keys.values().flatten();
        let its = all.filter(|belief| slot.is_none_or(|slot| belief.slot == slot));
        its.filter(|belief| belief.outside && belief.is_valid()).count()
    }

    /// This acquisition no longer protects.
    pub(super) fn orphan(&mut self, acquisition: Acquisition) {
        self.orphans.insert(acquisition);
        let all = self.keys.values_mut().flatten().chain(&mut self.lapsed);
        let its = all.filter(|belief| belief.acquisition() == acquisition);
        its.for_each(|belief| belief.orphan = true);
    }

    pub(super) fn is_orphan(&self, acquisition: Acquisition) -> bool {
        self.orphans.contains(&acquisition)
    }

    /// The first in this process that relies on this acquisition.
    pub(super) fn valid(&self, slot: usize, acquisition: Acquisition) -> Option<&Belief> {
        let mut all = self.keys.values().flatten();
        all.find(|belief| {
            belief.slot == slot
                && belief.acquisition() == acquisition
                && !belief.is_over()
                && !belief.watch.is_lost()
        })
    }

    /// The client no longer relies on it.
    pub(super) fn end(&mut self, client: u32, nonce: Nonce) {
        self.forget(|belief| belief.client == client && belief.nonce() == nonce);
    }

    /// Forgets the beliefs for which `ended` holds. Returns the locks.
    pub(super) fn forget(&mut self, ended: impl Fn(&Belief) -> bool) -> Vec<(Op, Arc<str>)> {
        self.lapsed.retain(|belief| !ended(belief));
        let mut locks = Vec::new();
        for all in self.keys.values_mut() {
            all.retain(|belief| {
                let ended = ended(belief);
                if ended {
                    locks.push((belief.op, belief.lock.key().clone()));
                }
                !ended
            });
        }
        locks
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::simulator::{
        clock::{TRUE_RATE, VirtualTime},
        recorder::Recorder,
    };

    fn belief(client: u32, clock: &Arc<SimClock>, ms: u64) -> Belief {
        let deadline = clock.now().after(Duration::from_millis(ms));
        let lock = Lock::new("k", Nonce::from_u128(u128::from(client)), 1, Some(deadline));
        Belief {
            client,
            slot: 0,
            op: Recorder::default().next_op(),
            clock: clock.clone(),
            lock,
            watch: LossWatch::never(),
            lost: false,
            outside: false,
            orphan: false,
        }
    }

    fn at(time: &VirtualTime, ms: u64) {
        time.set(ms * 1_000_000);
    }

    /// The first believed for 10 ms, and the second believes from `ms` on.
    fn two(ms: u64) -> (Arc<SimClock>, Beliefs, Result<(), String>) {
        let time = Arc::new(VirtualTime::default());
        let clock = Arc::new(SimClock::new(time.clone(), TRUE_RATE, 0));
        let mut beliefs = Beliefs::default();
        beliefs.begin(belief(1, &clock, 10)).unwrap();
        at(&time, ms);
        let second = beliefs.begin(belief(2, &clock, 10));
        (clock, beliefs, second)
    }

    #[test]
    fn only_overlapping_beliefs_are_seen() {
        assert!(two(9).2.is_err());
        two(10).2.unwrap();
    }

    #[test]
    fn revival_of_a_belief_is_seen() {
        let (clock, mut beliefs, _) = two(19);
        let later = clock.now().after(Duration::from_millis(5));
        assert!(beliefs.extend(1, Nonce::from_u128(1), later).is_err());
    }

    #[test]
    fn who_let_go_is_not_revived() {
        let (clock, mut beliefs, _) = two(19);
        beliefs.end(1, Nonce::from_u128(1));
        let later = clock.now().after(Duration::from_millis(5));
        beliefs.extend(1, Nonce::from_u128(1), later).unwrap();
    }
}
