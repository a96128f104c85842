//! The entries that a leader appends: the commands of one turn with one stamp, in as few entries
//! as hold them.

use std::{mem, time::Duration};

use raft::eraftpb::{Entry, Message, MessageType};

use super::Group;
use crate::{
    clock::Instant,
    deadline::{Drift, whole_ms},
    limits::DURATION_MAX,
    lock_table::{ClusterTime, Command, TableConfig},
    member::entry::Batch,
};

impl Group {
    /// Takes a command of a member for the log; it is appended by the next [`flush`](Self::flush).
    pub(in crate::member) fn submit(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Appends everything submitted in one proposal, stamped with `now`, which the caller read
    /// *after* it had taken the last request (contract, rule 3). Appends leave in the same turn.
    /// Returns whether something was appended.
    ///
    /// While this member does not lead, submitted commands are dropped: their senders retransmit.
    /// So are LOCKs in a group that does not grant yet.
    pub(in crate::member) fn flush(&mut self, now: Instant) -> bool {
        let mut commands = mem::take(&mut self.commands);
        let Some(clock) = self.clock.filter(|_| self.is_leader()) else { return false };
        let stamp = clock.read(now);
        if stamp < opens_at(self.table.config(), self.timing.drift) {
            commands.retain(|command| !matches!(command, Command::Lock(_)));
        }
        if commands.is_empty() {
            if !clock.stamp_is_due(stamp, &self.table) {
                return false;
            }
            commands.push(Command::Noop);
        }
        let message = Message {
            msg_type: MessageType::MsgPropose,
            from: self.me,
            entries: self.write(stamp, &commands).into(),
            ..Message::default()
        };
        // Dropped while leadership is being transferred, or past the bound on uncommitted bytes.
        let appended = self.raw.step(message).is_ok();
        if appended {
            self.clock.iter_mut().for_each(|clock| clock.stamped(stamp));
        }
        appended
    }

    /// The entries of these commands.
    fn write(&self, stamp: ClusterTime, commands: &[Command]) -> Vec<Entry> {
        let bytes_max = usize::try_from(self.timing.append_bytes_max).unwrap_or(usize::MAX);
        let mut entries = Vec::new();
        let mut batch: Option<Batch> = None;
        let entry_of = |batch: Batch| Entry { data: batch.into_bytes(), ..Entry::default() };
        for command in commands {
            let is_added = batch.as_mut().is_some_and(|batch| batch.add(command, bytes_max));
            if !is_added && let Some(full) = batch.replace(Batch::new(stamp, command)) {
                entries.push(entry_of(full));
            }
        }
        entries.extend(batch.map(entry_of));
        entries
    }

    /// When [`flush`](Self::flush) has something to append without a request: the end of a lease
    /// that has waiters, or the stamp that is due every `STAMP_EVERY`.
    pub(in crate::member) fn next_stamp(&self) -> Option<Instant> {
        self.clock.as_ref()?.next_stamp(&self.table)
    }

    /// The longest lease that may be requested (ms).
    pub(in crate::member) fn lease_max_ms(&self) -> u64 {
        match self.table.config().outside_max_ms {
            0 => whole_ms(DURATION_MAX),
            outside => outside,
        }
    }
}

/// The cluster time, which begins at 0, from which on a group grants. Where leases are held
/// outside members, those of an earlier group may live on: their holders did not see it end.
fn opens_at(table: &TableConfig, drift: Drift) -> ClusterTime {
    let outside = Duration::from_millis(table.outside_max_ms);
    let rounding = Duration::from_millis(u64::from(!outside.is_zero()));
    ClusterTime(whole_ms(outside.saturating_add(drift.over(outside)).saturating_add(rounding)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_group_waits_out_leases_and_drift() {
        let opens = |outside_max_ms| {
            opens_at(&TableConfig { outside_max_ms, ..TableConfig::default() }, Drift::default())
        };
        assert_eq!(opens(0), ClusterTime(0), "no lease outlives its group");
        assert_eq!(opens(10_000), ClusterTime(10_101), "1 % drift, and rounding");
    }
}
