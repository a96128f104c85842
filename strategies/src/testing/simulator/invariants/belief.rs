use std::{collections::BTreeMap, sync::Arc};

use crate::{Clock, Instant, Lock, LossWatch, Nonce, testing::simulator::clock::SimClock};

/// No two holders of a key both believe in their lock (contract, rules 1 and 2): each by its own
/// clock, deadline and loss signal, whatever the granting side knows.
#[derive(Debug, Default)]
pub(super) struct Beliefs {
    keys: BTreeMap<Arc<str>, Vec<Belief>>,
}

#[derive(Debug)]
pub(in crate::testing::simulator) struct Belief {
    pub(in crate::testing::simulator) client: u32,
    pub(in crate::testing::simulator) slot: usize,
    pub(in crate::testing::simulator) clock: Arc<SimClock>,
    pub(in crate::testing::simulator) lock: Lock,
    pub(in crate::testing::simulator) watch: LossWatch,
}

impl Belief {
    fn nonce(&self) -> Nonce {
        self.lock.nonce()
    }

    fn is_valid(&self) -> bool {
        let deadline = self.lock.deadline().expect("a holder has a deadline");
        self.clock.now() < deadline && !self.watch.is_lost()
    }
}

/// Two clients that hold one key.
#[derive(Debug)]
pub(in crate::testing::simulator) struct TwoBelieve {
    pub(in crate::testing::simulator) what: String,
}

impl Beliefs {
    /// A client relies on its lock from now on. Beliefs only begin or are extended here, so two
    /// that overlap are seen here.
    pub(super) fn begin(&mut self, belief: Belief) -> Result<(), TwoBelieve> {
        let key = belief.lock.key().clone();
        let all = self.keys.entry(key.clone()).or_default();
        all.retain(Belief::is_valid);
        all.push(belief);
        Self::check(all)
    }

    pub(super) fn extend(
        &mut self,
        client: u32,
        nonce: Nonce,
        deadline: Instant,
    ) -> Result<(), TwoBelieve> {
        for all in self.keys.values_mut() {
            let found = all.iter_mut().find(|b| b.client == client && b.nonce() == nonce);
            if let Some(belief) = found {
                belief.lock = belief.lock.with_deadline(deadline);
                return Self::check(all);
            }
        }
        Ok(())
    }

    fn check(all: &[Belief]) -> Result<(), TwoBelieve> {
        let mut valid = all.iter().filter(|belief| belief.is_valid());
        let Some(first) = valid.next() else { return Ok(()) };
        match valid.find(|other| other.nonce() != first.nonce()) {
            None => Ok(()),
            Some(other) => Err(TwoBelieve {
                what: format!(
                    "two holders believe: client {} with {:?} and client {} with {:?}",
                    first.client, first.lock, other.client, other.lock
                ),
            }),
        }
    }

    /// The client no longer relies on it.
    pub(super) fn end(&mut self, client: u32, nonce: Nonce) {
        self.forget(|belief| belief.client == client && belief.nonce() == nonce);
    }

    /// Those for which this holds believe no more. Returns their locks.
    pub(super) fn forget(&mut self, gone: impl Fn(&Belief) -> bool) -> Vec<Lock> {
        let mut locks = Vec::new();
        for all in self.keys.values_mut() {
            all.retain(|belief| {
                let gone = gone(belief);
                if gone {
                    locks.push(belief.lock.clone());
                }
                !gone
            });
        }
        locks
    }
}
