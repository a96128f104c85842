//! Which process this is: a name that stays, an incarnation that changes.

use std::net::SocketAddr;

use gaggle_channels::NodeName;

use super::wire::Process;
use crate::{
    lock::Owner,
    random::{Ids, mix},
};

/// Sets the ids of processes apart from the other ids of a seed.
const PROCESS_IDS: u64 = 2;

/// A member's name, its current incarnation (its Raft id), and the source of all that it generates.
#[derive(Debug)]
pub(super) struct Identity {
    name: NodeName,
    ids: Ids,
    incarnation: u64,
    process: Process,
    /// Presences sent so far.
    presences: u64,
}

impl Identity {
    pub(super) fn new(name: NodeName, owner: &Owner, seed: u64) -> Self {
        let mut ids = Ids::new(seed);
        let incarnation = ids.next();
        let id = mix(&[seed, PROCESS_IDS]).max(1);
        let process = Process { id, started: 0, host: owner.host.clone(), pid: owner.pid };
        Self { name, ids, incarnation, process, presences: 0 }
    }

    pub(super) fn name(&self) -> &NodeName {
        &self.name
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Adds the address that the process listens on, for diagnostics.
    pub(super) fn listens_on(&mut self, address: SocketAddr) {
        self.process.listens_on(address);
    }

    /// The wall clock at a tick; the first one is the start of the process.
    pub(super) fn wall_clock(&mut self, nanos: u64) {
        self.process.starts_at(nanos);
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
        self.incarnation = self.ids.next();
    }
}
