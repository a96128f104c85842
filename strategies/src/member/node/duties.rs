//! The periodic work of a member: ticks of the engine, and a leader's duties.

use std::{collections::BTreeMap, time::Duration};

use gaggle_channels::NodeName;

use super::{Body, Event, Group, Instant, Node, ProcessId, Timer};
use crate::{
    client::backend::Cause,
    error::UnavailableKind,
    lock_table::{Command, TableConfig},
    member::{
        formation::{DIFFERENCE_EVERY, Difference, REPORT_EVERY},
        membership,
        wire::Times,
    },
};

/// How long a survivor of a lost majority, or a member that was replaced, waits before it pledges
/// to a new group. Its guards are lost before.
pub(super) const RESIGN_GRACE: Duration = Duration::from_secs(1);

impl Node {
    /// Takes ticks that only count ([`quiet_ticks`](Self::quiet_ticks)). Timed work is left to
    /// [`run_timers`](Self::run_timers), after the frames of that time were taken: they show which
    /// processes were silent.
    pub fn count(&mut self, now: Instant, ticks: u32) {
        if let Some(group) = &mut self.group {
            group.tick(ticks);
            group.abandon_stuck_snapshots(now, &self.transfers);
        }
    }

    /// Runs a tick of the engine, and all timed work. The tokens of a group that is formed now
    /// begin at `first_token`.
    pub fn tick(&mut self, now: Instant, first_token: u64) {
        self.identity.wall_clock(first_token);
        self.count(now, 1);
        if self.group.is_some() {
            if self.timers.has_expired(Timer::LeaderlessAsk, now) {
                self.report_missing(now, "no leader");
            }
        } else {
            let first_token = first_token.max(self.formation.last_token().saturating_add(1));
            let table = TableConfig { first_token, ..self.timing.table.clone() };
            let (identity, timers) = (&mut self.identity, &mut self.timers);
            self.formation.tick(now, identity, &self.peers, &table, timers);
            if let Some((forming, unpledged)) = self.formation.invitation() {
                let body = Body::Invite(forming);
                for (name, incarnation) in unpledged {
                    self.outbox.post_named(&name, incarnation, &body);
                }
            }
            if let Some(forming) = self.formation.complete(now, &self.timers) {
                self.found(now, &forming, true);
            } else {
                self.report_missing(now, "no group yet");
            }
        }
        self.run_timers(now);
    }

    /// Does the timed work of a member.
    pub fn run_timers(&mut self, now: Instant) {
        self.send_presence(now);
        self.report_differences(now);
        self.leave_if_over(now);
        self.lead(now);
    }

    /// Reports the lack of a group or leader, and the missing members: in the log, and as the cause
    /// of this process' errors.
    fn report_missing(&mut self, now: Instant, what: &str) {
        let has_expired = self.timers.has_expired(Timer::MissingReport, now);
        if has_expired && let Some(reason) = self.formation.report(now, what, &self.peers) {
            tracing::info!("{reason}");
            let cause = Some(Cause::new(UnavailableKind::NoQuorum, reason));
            self.turn.events.push(Event::Down { cause });
        }
        if has_expired || !self.timers.is_running(Timer::MissingReport, now) {
            self.timers.set(Timer::MissingReport, now.after(REPORT_EVERY));
        }
    }

    /// Whether the next tick may report the lack of a group or leader.
    pub fn is_report_due(&self, now: Instant) -> bool {
        self.timers.has_expired(Timer::MissingReport, now)
    }

    /// Takes the channel's reasons for missing connections, which the next report names.
    pub fn set_failures(&mut self, failures: BTreeMap<NodeName, String>) {
        self.formation.set_failures(failures);
    }

    /// Warns of processes whose lists of members or times differ from those of this one.
    ///
    /// They may take part in a group that runs: the configuration in its log decides on quorums.
    /// A change of members only replaces an incarnation by another one of its name. A list decides
    /// who forms a group, and all its names must list the same. So one process with a wrong list
    /// forms no second group, unless it lists itself alone.
    fn report_differences(&mut self, now: Instant) {
        if !self.timers.has_expired(Timer::DifferenceReport, now) {
            return;
        }
        self.timers.stop(Timer::DifferenceReport);
        for (name, _) in self.peers.iter() {
            let lists = self.formation.difference(name, &self.peers);
            let times = self.different_times(name);
            if lists.is_some() || times.is_some() {
                self.timers.set(Timer::DifferenceReport, now.after(DIFFERENCE_EVERY));
            }
            if let Some(Difference { missing_there, missing_here }) = lists {
                tracing::warn!(
                    peer = %name,
                    missing_there,
                    missing_here,
                    "members differ in their set of names: the option peers (or members) must be \
                     equal"
                );
            }
            if let Some(theirs) = times {
                tracing::warn!(
                    peer = %name,
                    %theirs,
                    mine = %self.times,
                    "members differ in heartbeat or election_timeout: leadership may be unstable \
                     until they are equal"
                );
            }
        }
    }

    /// The times of a peer that differ from those of this process.
    pub(super) fn different_times(&self, name: &NodeName) -> Option<Times> {
        self.peers.get(name)?.times.filter(|theirs| *theirs != self.times)
    }

    /// When a turn must come although nothing arrives, besides ticks.
    pub fn next_wake(&self) -> Option<Instant> {
        self.group.as_ref()?.next_stamp()
    }

    /// How many of the next ticks may be taken late and at once, because they are only counted. A
    /// process that forms, joins, has no leader or is in the middle of a change has work at each.
    pub fn quiet_ticks(&self) -> u32 {
        let calm = |group: &&Group| {
            self.leadership.leader().is_some()
                && group.votes()
                && group.is_settled()
                && group.learners().is_empty()
                && self.transfers.is_idle()
        };
        self.group.as_ref().filter(calm).map_or(0, Group::quiet_ticks)
    }

    fn leave_if_over(&mut self, now: Instant) {
        let Some(group) = &self.group else { return };
        let leaderless = self.timers.has_expired(Timer::LeaderlessResign, now);
        let me = (self.identity.name(), self.identity.incarnation());
        if membership::majority_is_replaced(me, group, &self.peers, leaderless) {
            tracing::warn!("a majority of the group has restarted: resigning, all locks are lost");
            self.leave(now, RESIGN_GRACE);
        } else if !group.votes() && self.timers.has_expired(Timer::Join, now) {
            tracing::info!("the group that this member joins is silent, starting over");
            self.leave(now, Duration::ZERO);
        }
    }

    /// A leader's duties by time: members that changed, processes that went silent.
    fn lead(&mut self, now: Instant) {
        let Some(group) = self.group.as_mut().filter(|group| group.is_leader()) else { return };
        self.leadership.look(now, self.timing.waiter_ttl);
        let change = membership::next_change(now, self.identity.incarnation(), group, &self.peers);
        if let Some(change) = change
            && group.propose_change(&change)
        {
            tracing::info!(?change, "changing members");
        }
        if !self.timers.has_expired(Timer::SilenceCheck, now) {
            return;
        }
        let me = self.identity.incarnation();
        let is_silent = |process: &ProcessId| {
            let last_heard_at = self.roster.last_heard_at(process.0).unwrap_or_default();
            let known = group.roster().contains_key(&process.0);
            let since = now.since(last_heard_at.max(self.leadership.since()));
            process.0 != me && (!known || since >= self.timing.waiter_ttl)
        };
        let silent: Vec<ProcessId> = group.table().processes_waiting().filter(is_silent).collect();
        for process in silent {
            tracing::info!(process = process.0, "a process with waiters is silent, dropping them");
            self.timers.set(Timer::SilenceCheck, now.after(self.timing.waiter_ttl / 10));
            group.submit(Command::DropWaiters { process });
        }
    }
}
