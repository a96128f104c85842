//! A member that a simulator drives: the strategy's handle, the driver and the node as they ship,
//! without a runtime.
//!
//! A simulator takes each turn itself and looks inside between turns.

use std::sync::Arc;

use gaggle_channels::{Channel, NodeName};

pub(crate) use super::group::{EntryView, GroupView};
use super::{
    Member,
    backend::{Backend, Policy},
    node::Node,
    options::MemberOptions,
};
use crate::{
    Gaggle, Instant, KeyedMutex, Owner, Raft, client::driver::Driver, lock_table::LockTable,
};

/// A driver with its node, one turn at a time.
pub(crate) struct Machine {
    driver: Driver<Backend>,
}

impl Machine {
    /// A member under `policy` as the strategy that users see, and the driver to be turned. The
    /// options carry the clock and the seed.
    pub(crate) fn start(
        channel: Arc<dyn Channel>,
        options: MemberOptions,
        policy: Policy,
    ) -> (Arc<dyn KeyedMutex>, Self) {
        let valid = options.validate(channel.name(), channel.frame_limit());
        valid.expect("a simulation's options are valid");
        let (member, driver) = Member::assemble(channel, options, policy);
        let strategy: Arc<dyn KeyedMutex> = match policy {
            Policy::Queue => Arc::new(Gaggle::of(member)),
            Policy::CompareAndSet => Arc::new(Raft::of(member)),
        };
        (strategy, Self { driver })
    }

    /// Runs one turn: takes arrivals, ticks, appends, applies, sends. Returns whether it goes on.
    pub(crate) fn step(&mut self) -> bool {
        self.driver.step(None).is_continue()
    }

    /// When the next turn must come although nothing arrives.
    pub(crate) fn next_wake(&self) -> Instant {
        self.driver.next_wake()
    }

    fn node(&self) -> &Node {
        self.driver.backend().node()
    }

    /// Why the member failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.driver.failure().map(ToString::to_string)
    }

    /// Whether this member votes in a settled group with a leader.
    pub(crate) fn is_ready(&self) -> bool {
        self.node().status().ready
    }

    pub(crate) fn leader(&self) -> Option<NodeName> {
        self.node().status().leader
    }

    /// How many requests of this process are pending.
    pub(crate) fn pending(&self) -> usize {
        self.driver.pending()
    }

    pub(crate) fn group(&self) -> Option<GroupView> {
        self.node().group().map(super::group::Group::view)
    }

    pub(crate) fn table(&self) -> Option<&LockTable> {
        self.node().group().map(super::group::Group::table)
    }

    pub(crate) fn log_len(&self) -> usize {
        self.node().group().map_or(0, super::group::Group::log_len)
    }

    /// The entry at `index`, unless it was compacted or does not exist.
    pub(crate) fn entry(&self, index: u64) -> Option<EntryView> {
        self.node().group()?.entry(index)
    }

    /// Term and digest of the entry at `index`.
    pub(crate) fn entry_digest(&self, index: u64) -> Option<(u64, u64)> {
        self.node().group()?.entry_digest(index)
    }

    /// The term of the entry at `index`, also of the one before the first.
    pub(crate) fn term(&self, index: u64) -> Option<u64> {
        self.node().group()?.term_at(index)
    }

    /// How this process stands in a forming, and what it knows of the others.
    pub(crate) fn forming(&self) -> String {
        self.node().forming()
    }

    /// Passes leadership on, if this member leads; whether that has begun.
    pub(crate) fn transfer_leadership(&mut self) -> bool {
        self.driver.backend_mut().node_mut().transfer_leadership()
    }

    /// Replaces the lock table by its restored snapshot. Returns whether it had rows.
    pub(crate) fn restore_table(&mut self) -> bool {
        let group = self.driver.backend_mut().node_mut().group_mut();
        group.is_some_and(super::group::Group::restore_table)
    }
}

/// An owner that is the same on every host and in every process, so that logs are.
pub(crate) fn owner(name: &str) -> Owner {
    Owner { host: name.into(), pid: 0, label: None }
}
