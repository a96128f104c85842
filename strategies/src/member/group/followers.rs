//! The followers as a leader knows them, and its treatment of unreachable and slow ones.

use std::time::Duration;

use gaggle_channels::NodeName;
use raft::{ProgressState, SnapshotStatus};

use super::Group;
use crate::{clock::Instant, member::transfers::Transfers};

/// How long a peer may take to acknowledge a snapshot that was sent whole, before the leader probes
/// again. The engine itself would wait indefinitely.
const SNAPSHOT_STALL: Duration = Duration::from_millis(300);

impl Group {
    /// Whether a learner has all but the last few entries, or all that were committed a short
    /// election timeout ago (Raft thesis §4.2.1). Its vote then costs no availability. Under
    /// constant load it stays behind by the entries that are committed in a round trip.
    pub(in crate::member) fn has_caught_up(&self, learner: u64) -> bool {
        /// Entries, each of up to sixteen commands.
        const NEAR: u64 = 64;
        let few_missing = self.raw.raft.raft_log.committed.saturating_sub(NEAR);
        let needed = self.commit_marks[0].map_or(few_missing, |mark| mark.min(few_missing));
        let progress = self.raw.raft.prs().get(learner);
        progress.is_some_and(|p| p.matched > 0 && p.matched >= needed)
    }

    /// Notes the commit index of a leader after each short election timeout.
    pub(super) fn mark_commit(&mut self) {
        // A leader's engine counts the ticks of a timeout, then begins again.
        if self.is_leader() && self.raw.raft.election_elapsed == 0 {
            self.commit_marks = [self.commit_marks[1], Some(self.raw.raft.raft_log.committed)];
        }
    }

    /// Makes the engine probe a peer whose connection is closed.
    pub(in crate::member) fn unreachable(&mut self, peer: &NodeName) {
        for (id, _) in self.roster.iter().filter(|(_, name)| *name == peer) {
            self.raw.report_unreachable(*id);
        }
    }

    /// Whether this leader has sent a snapshot to a peer that has not acknowledged it.
    pub(in crate::member) fn awaits_snapshot(&self, id: u64) -> bool {
        let progress = self.raw.raft.prs().get(id);
        self.is_leader() && progress.is_some_and(|p| p.state == ProgressState::Snapshot)
    }

    /// Begins a leadership transfer to a voter that is not silent, unless one is in progress.
    /// Returns whether it has begun.
    pub(in crate::member) fn transfer_leadership(&mut self) -> bool {
        let before = self.raw.raft.lead_transferee;
        let peers = self.raw.raft.prs().iter();
        let voters = peers.filter(|(id, _)| **id != self.me && self.is_voter(**id));
        let best = voters.max_by_key(|(id, p)| (p.recent_active, p.matched, **id));
        if let Some((&id, _)) = best {
            self.raw.transfer_leader(id);
        }
        self.raw.raft.lead_transferee != before
    }

    /// A snapshot message or its reply may be lost, and the engine then leaves the peer in the
    /// snapshot state indefinitely. A transfer in pieces is not stuck: it retransmits them, and the
    /// peer acknowledges the last ones when it has installed the snapshot.
    pub(in crate::member) fn abandon_stuck_snapshots(
        &mut self,
        now: Instant,
        transfers: &Transfers,
    ) {
        let ids = self.raw.raft.prs().iter().map(|(id, _)| *id);
        let is_waiting = |id: &u64| self.awaits_snapshot(*id) && !transfers.is_sending_to(*id);
        let waiting: Vec<u64> = ids.filter(is_waiting).collect();
        self.snapshot_since.retain(|id, _| waiting.contains(id));
        for id in waiting {
            let since = *self.snapshot_since.entry(id).or_insert(now);
            if now.since(since) >= SNAPSHOT_STALL {
                tracing::debug!(peer = id, "snapshot was not acknowledged, probing again");
                self.raw.report_snapshot(id, SnapshotStatus::Failure);
                self.snapshot_since.remove(&id);
            }
        }
    }
}
