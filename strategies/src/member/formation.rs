//! Forming a volatile group.
//!
//! Forming needs a pledge from every name, and a process pledges to one forming at a time. So two
//! formings cannot both complete: each needs the pledge of the other's coordinator. A coordinator
//! pledges only after it has abandoned its own forming, and never once its own group exists. A
//! member of a group pledges only after it has left the group, under a fresh incarnation.

mod report;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gaggle_channels::NodeName;

pub(super) use self::report::Difference;
use self::report::Reports;
use super::{
    identity::Identity,
    peers::{FRESH, Peers},
    timers::{Timer, Timers},
    wire::{Body, Forming, MembershipState},
};
use crate::{clock::Instant, lock_table::TableConfig};

/// How often a process that is in no group says so.
pub(super) const PRESENCE_EVERY: Duration = Duration::from_millis(50);
/// A forming that does not complete is abandoned after this long without its coordinator.
const PLEDGE_TTL: Duration = Duration::from_secs(1);
/// How long a process is without a group or a leader before it reports why, and how often it looks
/// again.
pub(super) const REPORT_EVERY: Duration = Duration::from_millis(500);
/// How often lists of members that differ are warned of.
pub(super) const DIFFERENCE_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Formation {
    name: NodeName,
    members: BTreeSet<NodeName>,
    outside_max_ms: u64,
    phase: Phase,
    /// The greatest token observed so far: a new group begins above it.
    last_token: u64,
    reports: Reports,
}

#[derive(Debug)]
enum Phase {
    Free,
    Resting,
    Pledged { forming: Forming },
    Inviting { forming: Forming, pledged: BTreeSet<NodeName> },
    Grouped,
}

impl Formation {
    pub(super) fn new(name: NodeName, members: BTreeSet<NodeName>, outside_max_ms: u64) -> Self {
        Self {
            name,
            members,
            outside_max_ms,
            phase: Phase::Free,
            last_token: 0,
            reports: Reports::default(),
        }
    }

    /// The group that this process belongs to now, formed or joined.
    pub(super) fn grouped(&mut self) {
        self.phase = Phase::Grouped;
        self.forget_report();
    }

    /// This process left its group, and may pledge again from `until` on.
    pub(super) fn rest(&mut self, until: Instant, timers: &mut Timers) {
        self.phase = Phase::Resting;
        timers.set(Timer::Formation, until);
    }

    /// The greatest token that this process ever saw granted.
    pub(super) fn last_token(&self) -> u64 {
        self.last_token
    }

    pub(super) fn observe_token(&mut self, token: u64) {
        self.last_token = self.last_token.max(token);
    }

    /// The membership state of this process while it is in no group.
    pub(super) fn membership_state(&self) -> MembershipState {
        match &self.phase {
            Phase::Free | Phase::Grouped => MembershipState::Free,
            Phase::Resting => MembershipState::Resting,
            Phase::Pledged { .. } | Phase::Inviting { .. } => MembershipState::Pledged,
        }
    }

    /// The members' names.
    pub(super) fn members(&self) -> &BTreeSet<NodeName> {
        &self.members
    }

    /// Whether a process of this name may belong to the cluster.
    pub(super) fn admits(&self, name: &NodeName) -> bool {
        self.members.contains(name)
    }

    /// The forming that this process pledged to, if it is `id`.
    pub(super) fn pledged_to(&self, id: u128) -> Option<&Forming> {
        match &self.phase {
            Phase::Pledged { forming } if forming.id == id => Some(forming),
            _ => None,
        }
    }

    /// Moves on with time: ends a phase, and may begin to invite.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        identity: &mut Identity,
        peers: &Peers,
        table: &TableConfig,
        timers: &mut Timers,
    ) {
        if timers.has_expired(Timer::Formation, now) {
            self.phase = Phase::Free;
            timers.stop(Timer::Formation);
        }
        if matches!(self.phase, Phase::Free)
            && !timers.is_running(Timer::ExistingGroup, now)
            && let Some(members) = self.quorum_of_all(now, identity.incarnation(), peers)
        {
            let theirs = members.keys().filter_map(|name| peers.get(name));
            let after = theirs.map(|peer| peer.last_token.saturating_add(1));
            let first_token = after.fold(table.first_token, u64::max);
            let table = TableConfig { first_token, ..table.clone() };
            let id = identity.ids().next_wide();
            let members = members.into_iter().map(|(name, id)| (name.to_string(), id)).collect();
            let forming = Forming { id, members, table };
            tracing::debug!(group = %format_args!("{:032x}", forming.id), "inviting to a new group");
            let pledged = BTreeSet::from([self.name.clone()]);
            self.phase = Phase::Inviting { forming, pledged };
            timers.set(Timer::Formation, now.after(PLEDGE_TTL));
        }
    }

    /// The members of a group that this process should form now, if it is the one to do so: the
    /// lowest name of all that are free.
    fn quorum_of_all(
        &self,
        now: Instant,
        incarnation: u64,
        peers: &Peers,
    ) -> Option<BTreeMap<NodeName, u64>> {
        let free = peers.iter().filter(|(name, peer)| {
            self.admits(name)
                && peer.is_fresh(now, FRESH)
                && peer.membership_state == Some(MembershipState::Free)
        });
        let mut all: BTreeMap<NodeName, u64> =
            free.map(|(name, peer)| (name.clone(), peer.incarnation)).collect();
        all.insert(self.name.clone(), incarnation);
        let is_first = self.members.first() == Some(&self.name);
        (is_first && all.len() == self.members.len()).then_some(all)
    }

    /// The forming to which this process invites, and the members that have not pledged.
    pub(super) fn invitation(&self) -> Option<(Forming, Vec<(NodeName, u64)>)> {
        let Phase::Inviting { forming, pledged } = &self.phase else { return None };
        let unpledged = named(forming).filter(|(name, _)| !pledged.contains(name)).collect();
        Some((forming.clone(), unpledged))
    }

    /// Takes an invitation. Pledges if this process is free, and named as what it is.
    pub(super) fn invited(
        &mut self,
        now: Instant,
        from: &NodeName,
        incarnation: u64,
        forming: Forming,
        peers: &Peers,
        timers: &mut Timers,
    ) -> Option<Body> {
        // The first invitation under an id was checked: only that forming is founded.
        let again = self.pledged_to(forming.id) == Some(&forming);
        let free =
            matches!(self.phase, Phase::Free) && !timers.is_running(Timer::ExistingGroup, now);
        let known = |(name, id): (NodeName, u64)| {
            let fresh = peers.get(&name).filter(|peer| peer.is_fresh(now, FRESH));
            fresh.is_none_or(|peer| peer.incarnation == id)
        };
        let takes = again
            || (free && self.is_proper(from, incarnation, &forming) && named(&forming).all(known));
        if !takes {
            return None;
        }
        let id = forming.id;
        self.phase = Phase::Pledged { forming };
        timers.set(Timer::Formation, now.after(PLEDGE_TTL));
        Some(Body::Pledge { forming: id })
    }

    fn is_proper(&mut self, from: &NodeName, incarnation: u64, forming: &Forming) -> bool {
        let members: BTreeMap<NodeName, u64> = named(forming).collect();
        let complete = members.len() == forming.members.len() && forming.id != 0;
        let me = members.get(&self.name) == Some(&incarnation);
        let distinct: BTreeSet<u64> = members.values().copied().collect();
        let distinct = distinct.len() == members.len() && !distinct.contains(&0);
        let who = members.keys().eq(&self.members) && self.members.first() == Some(from);
        complete && me && distinct && who && self.agrees(forming)
    }

    /// Warns if the group's bound of leases outside members is not that of this process.
    pub(super) fn compare_outside_max(&mut self, theirs: u64) {
        let count = self.members.len();
        if theirs != self.outside_max_ms {
            self.reports.warn_of_options((count, theirs), (count, self.outside_max_ms));
        }
    }

    /// Leases outside members are safe only where every member that may lead keeps to the bound.
    fn agrees(&mut self, forming: &Forming) -> bool {
        let theirs = (forming.members.len(), forming.table.outside_max_ms);
        let mine = (self.members.len(), self.outside_max_ms);
        if theirs != mine {
            self.reports.warn_of_options(theirs, mine);
        }
        theirs == mine
    }

    /// Takes a pledge. Returns the forming once every member has pledged.
    pub(super) fn pledged(
        &mut self,
        now: Instant,
        from: &NodeName,
        incarnation: u64,
        id: u128,
        timers: &Timers,
    ) -> Option<Forming> {
        let Phase::Inviting { forming, pledged } = &mut self.phase else { return None };
        let member = named(forming).any(|(name, i)| name == *from && i == incarnation);
        if forming.id == id && member {
            pledged.insert(from.clone());
        }
        self.complete(now, timers)
    }

    /// The forming to which all members have pledged, unless another group exists.
    pub(super) fn complete(&self, now: Instant, timers: &Timers) -> Option<Forming> {
        let Phase::Inviting { forming, pledged } = &self.phase else { return None };
        let is_complete = pledged.len() == forming.members.len();
        let is_only = !timers.is_running(Timer::ExistingGroup, now);
        (is_complete && is_only).then(|| forming.clone())
    }
}

/// The members of a forming by name, without invalid names.
pub(super) fn named(forming: &Forming) -> impl Iterator<Item = (NodeName, u64)> {
    forming.members.iter().filter_map(|(name, id)| Some((NodeName::new(name).ok()?, *id)))
}
