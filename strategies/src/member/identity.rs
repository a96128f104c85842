//! Which process this is: a name that stays, an incarnation that changes.

use gaggle_channels::NodeName;

use crate::{
    planted::{Bug, planted},
    random::Ids,
};

/// A member's name, its current incarnation (its Raft id) and the seed of everything it generates.
#[derive(Debug)]
pub(super) struct Identity {
    name: NodeName,
    seed: u64,
    ids: Ids,
    incarnation: u64,
    /// Presences sent so far.
    presences: u64,
}

impl Identity {
    pub(super) fn new(name: NodeName, seed: u64) -> Self {
        let mut ids = Ids::new(seed);
        let mut incarnation = ids.draw();
        if planted(Bug::IncarnationReused) {
            incarnation = name.as_str().bytes().fold(1, |id, byte| id * 31 + u64::from(byte));
        }
        Self { name, seed, ids, incarnation, presences: 0 }
    }

    pub(super) fn name(&self) -> &NodeName {
        &self.name
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn ids(&mut self) -> &mut Ids {
        &mut self.ids
    }

    /// The number of the next presence.
    pub(super) fn next_presence(&mut self) -> u64 {
        self.presences += 1;
        self.presences
    }

    /// Begins a fresh incarnation, so that nothing the former one promised can be promised twice.
    pub(super) fn renew(&mut self) {
        if !planted(Bug::IncarnationKept) {
            self.incarnation = self.ids.draw();
        }
    }
}
