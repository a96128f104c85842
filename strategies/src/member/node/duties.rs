//! What a member does by time: ticks of the engine, and a leader's duties.

use std::time::Duration;

use super::{Group, Instant, Node, ProcessId};
use crate::{
    lock_table::{Command, TableConfig},
    member::membership,
};

/// Without a leader for this long, no news of a newer configuration is on its way: the longest
/// election timeout several times over.
const LEADERLESS: Duration = Duration::from_secs(3);
/// A member that joins and hears nothing of its group for this long starts over.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

impl Node {
    /// So many ticks of the engine that only count ([`quiet_ticks`](Self::quiet_ticks)). What is done
    /// by time is left to [`attend`](Self::attend), once the frames of that time have been taken: they
    /// say who was silent.
    pub(crate) fn count(&mut self, now: Instant, ticks: u32) {
        if let Some(group) = &mut self.group {
            group.tick(now, ticks);
        }
    }

    /// One tick of the engine, and all that is done by time. `first_token` is where the tokens of
    /// a group formed now would begin.
    pub(crate) fn tick(&mut self, now: Instant, first_token: u64) {
        if let Some(group) = &mut self.group {
            group.tick(now, 1);
        } else {
            let mut letters = Vec::new();
            let first_token = first_token.max(self.last_token.saturating_add(1));
            let table = TableConfig { first_token, ..self.timing.table.clone() };
            let formed = self.formation.tick(
                now,
                self.incarnation,
                &self.peers,
                &mut self.ids,
                &table,
                &mut letters,
            );
            self.post_letters(letters);
            if let Some(forming) = formed {
                self.found(now, &forming, true);
            }
        }
        self.attend(now);
    }

    /// What a member does by time.
    pub(crate) fn attend(&mut self, now: Instant) {
        self.speak(now);
        self.leave_if_over(now);
        self.lead(now);
    }

    /// When a turn must come although nothing arrives, besides ticks.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.group.as_ref()?.next_stamp()
    }

    /// How many of the next ticks may come late, all at once and just before what comes next: they
    /// would only be counted. A process that is forming, joining, without a leader or in the middle
    /// of a change has something to do at each.
    pub(crate) fn quiet_ticks(&self) -> u32 {
        let calm = |group: &&Group| {
            self.leader.is_some()
                && group.votes()
                && group.is_settled()
                && group.learners().is_empty()
                && self.transfers.is_idle()
        };
        self.group.as_ref().filter(calm).map_or(0, Group::quiet_ticks)
    }

    fn leave_if_over(&mut self, now: Instant) {
        let Some(group) = &self.group else { return };
        let leaderless = self.leader.is_none() && now.since(self.leading_since) >= LEADERLESS;
        let me = (&self.name, self.incarnation);
        if membership::majority_is_gone(me, group, &self.peers, leaderless) {
            tracing::warn!("a majority of the group is gone: resigning, all locks are lost");
            self.leave(now, self.timing.resign_grace);
        } else if !group.votes() && now.since(self.group_heard) >= JOIN_PATIENCE {
            tracing::info!("the group that this member was joining has gone silent, starting over");
            self.leave(now, Duration::ZERO);
        }
    }

    /// A leader's duties by time: members that changed, processes that went silent.
    fn lead(&mut self, now: Instant) {
        let Some(group) = self.group.as_mut().filter(|group| group.is_leader()) else { return };
        let change = membership::next_change(now, self.incarnation, group, &self.peers);
        if let Some(change) = change
            && group.propose_change(&change)
        {
            tracing::info!(?change, "changing members");
        }
        if now.since(self.gone_asked) < self.timing.waiter_ttl / 10 {
            return;
        }
        let silent = |process: &ProcessId| {
            let heard = self.heard.get(&process.0).copied().unwrap_or_default();
            let known = group.roster().contains_key(&process.0);
            process.0 != self.incarnation
                && (!known || now.since(heard.max(self.leading_since)) >= self.timing.waiter_ttl)
        };
        let gone: Vec<ProcessId> = group.table().processes_waiting().filter(silent).collect();
        for process in gone {
            tracing::info!(process = process.0, "a process with waiters is silent, dropping them");
            self.gone_asked = now;
            group.submit(self.incarnation, Command::Gone { process });
        }
    }
}
