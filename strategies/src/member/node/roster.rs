//! The incarnations of the group, and when each was last heard.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use gaggle_channels::NodeName;

use crate::{
    clock::Instant,
    member::{
        group::Group,
        timers::{Timer, Timers},
    },
};

/// The most incarnations that frames of the group may come from, members or not. It bounds the
/// memory for a sender with ever new ids, until the group next changes its members.
const SENDERS_MAX: usize = 1024;
/// A member that joins and receives nothing from its group for this long starts over.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Roster {
    last_heard_at: BTreeMap<u64, Instant>,
    /// The incarnations that the group has admitted.
    admitted: BTreeSet<u64>,
    /// The names of the members. A status shares them.
    names: Arc<[NodeName]>,
}

impl Roster {
    /// Takes over the group's members. Returns the ones admitted since the last time.
    pub(super) fn update<'a>(
        &mut self,
        now: Instant,
        group: &'a Group,
        me: &NodeName,
    ) -> Vec<(u64, &'a NodeName)> {
        self.admitted.retain(|id| group.roster().contains_key(id));
        self.last_heard_at.retain(|id, _| group.roster().contains_key(id));
        let members = group.members_oldest_first().into_iter();
        let added: Vec<_> =
            members.filter(|(id, name)| *name != me && self.admitted.insert(*id)).collect();
        for (id, _) in &added {
            self.last_heard_at.entry(*id).or_insert(now);
        }
        // A name may have two incarnations while one replaces the other.
        let names: BTreeSet<&NodeName> = group.roster().values().collect();
        self.names = names.into_iter().cloned().collect();
        added
    }

    /// A frame of the group arrived. Returns whether its sender is remembered.
    pub(super) fn record_frame(&mut self, now: Instant, from: u64, timers: &mut Timers) -> bool {
        if self.last_heard_at.len() >= SENDERS_MAX && !self.last_heard_at.contains_key(&from) {
            return false;
        }
        self.last_heard_at.insert(from, now);
        Self::expect_frames(now, timers);
        true
    }

    /// The group is expected to send to a member that joins.
    pub(super) fn expect_frames(now: Instant, timers: &mut Timers) {
        timers.set(Timer::Join, now.after(JOIN_PATIENCE));
    }

    /// When a frame of this incarnation last arrived.
    pub(super) fn last_heard_at(&self, id: u64) -> Option<Instant> {
        self.last_heard_at.get(&id).copied()
    }

    /// The names of the members, sorted.
    pub(super) fn names(&self) -> Arc<[NodeName]> {
        self.names.clone()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
