//! What a leader puts into the log: the commands of one turn with one stamp, in as few entries as
//! have room for them.

use std::{mem, time::Duration};

use raft::eraftpb::{Entry, Message, MessageType};

use super::Group;
use crate::{
    DURATION_MAX, Drift, Instant,
    lock_table::{ClusterTime, Command, Effect, TableConfig},
    member::entry::{Batch, COMMANDS_MAX, Room},
    planted::{Bug, planted},
    wait::whole_ms,
};

/// For how many commands of a turn the room is kept.
const COMMANDS_KEPT: usize = 1024;

/// For an entry of how many bytes the room is kept: sixteen commands of the longest keys are longer.
const ENTRY_BYTES_KEPT: usize = 4096;

impl Group {
    /// Takes a command of a member for the log; it is appended by the next [`flush`](Self::flush).
    pub(in crate::member) fn submit(&mut self, asker: u64, command: Command) {
        self.commands.push((asker, command));
    }

    /// Appends everything submitted in one proposal, stamped with `now`, which the caller read
    /// *after* it had taken the last request (contract, rule 3). Appends leave in the same turn.
    ///
    /// While this member does not lead, what was submitted is dropped: its senders ask again. So
    /// are LOCKs in a group that does not grant yet.
    /// Returns whether something was appended.
    pub(in crate::member) fn flush(&mut self, now: Instant) -> bool {
        let mut commands = mem::take(&mut self.commands);
        let appended = self.append(now, &mut commands);
        // Their room is kept for the next turn.
        commands.clear();
        commands.shrink_to(COMMANDS_KEPT);
        self.commands = commands;
        appended
    }

    fn append(&mut self, now: Instant, commands: &mut Vec<(u64, Command)>) -> bool {
        let Some(clock) = self.clock.filter(|_| self.is_leader()) else {
            return false;
        };
        let stamp = clock.read(now);
        if stamp < opens_at(self.table.config(), self.timing.drift) {
            commands.retain(|(_, command)| !matches!(command, Command::Lock(_)));
        }
        let due = clock.stamp_is_due(stamp, &self.table);
        if commands.is_empty() && !due {
            return false;
        }
        if commands.is_empty() {
            commands.push((self.me, Command::Noop));
        }
        let (entries, asked) = self.write(stamp, commands);
        let message = Message {
            msg_type: MessageType::MsgPropose,
            from: self.me,
            entries: entries.into(),
            ..Message::default()
        };
        // Dropped while leadership is being transferred, or past the bound on uncommitted bytes.
        let appended = self.raw.step(message).is_ok();
        if appended {
            self.clock.iter_mut().for_each(|clock| clock.stamped(stamp));
            self.asked.extend(asked);
        }
        appended
    }

    /// The entries of these commands, and who asked for each of what is for others.
    fn write(
        &mut self,
        stamp: ClusterTime,
        commands: &mut Vec<(u64, Command)>,
    ) -> (Vec<Entry>, Vec<(u64, u64)>) {
        let next = self.raw.raft.raft_log.last_index() + 1;
        let bytes_max = usize::try_from(self.timing.append_bytes_max).unwrap_or(usize::MAX);
        let (mut entries, mut asked) = (Vec::new(), Vec::new());
        let mut begun: Option<Batch> = None;
        for (asker, command) in commands.drain(..) {
            let left = match begun.as_mut().filter(|batch| batch.len() < COMMANDS_MAX) {
                Some(batch) => batch.add(command, bytes_max).err(),
                None => Some(command),
            };
            if let Some(command) = left {
                entries.extend(begun.take().map(|batch| self.written(next, entries.len(), batch)));
                let bytes = mem::take(&mut self.entry_bytes);
                let room = Room { bytes, commands: self.decoded.room() };
                begun = Some(Batch::new(room, stamp, command));
            }
            let index = next + entries.len() as u64;
            if asker != self.me && asked.last() != Some(&(index, asker)) {
                asked.push((index, asker));
            }
        }
        entries.extend(begun.map(|batch| self.written(next, entries.len(), batch)));
        (entries, asked)
    }

    /// The entry at this place after `next`.
    fn written(&mut self, next: u64, place: usize, batch: Batch) -> Entry {
        let (data, stamped, mut bytes) = batch.into_parts();
        bytes.shrink_to(ENTRY_BYTES_KEPT);
        self.entry_bytes = bytes;
        self.decoded.note(next + place as u64, &data, stamped);
        Entry { data, ..Entry::default() }
    }

    /// What the commands that are about to be appended would do, were they committed by now.
    fn foretold(&self, now: Instant) -> Option<Vec<Effect>> {
        let (mut table, mut effects) = (self.table.clone(), Vec::new());
        let stamp = self.clock?.read(now);
        self.commands.iter().for_each(|(_, command)| table.apply(stamp, command, &mut effects));
        effects.retain(|effect| matches!(effect, Effect::Granted(_)));
        Some(effects)
    }

    /// For [`Bug::AnswerBeforeCommit`].
    pub(in crate::member) fn foretell(&self, now: Instant) -> Vec<Effect> {
        self.foretold(now).unwrap_or_default()
    }

    /// When [`flush`](Self::flush) has something to append although nobody asks: a lease that
    /// ends while somebody waits, or the stamp that is due every `stamp_every`.
    pub(in crate::member) fn next_stamp(&self) -> Option<Instant> {
        self.clock.as_ref()?.next_stamp(&self.table)
    }

    /// The longest lease that may be asked for (ms).
    pub(in crate::member) fn lease_max_ms(&self) -> u64 {
        match self.table.config().outside_max_ms {
            0 => whole_ms(DURATION_MAX),
            outside => outside,
        }
    }
}

/// From when on a group grants, in its cluster time, which begins at 0. Where leases are held
/// outside members, those of a group before it may live on: their holders did not see it end.
fn opens_at(table: &TableConfig, drift: Drift) -> ClusterTime {
    let outside = match planted(Bug::OutsideIgnored) {
        false => Duration::from_millis(table.outside_max_ms),
        true => Duration::ZERO,
    };
    let rounding = Duration::from_millis(u64::from(!outside.is_zero()));
    let margin = match planted(Bug::NewGroupWithoutDrift) {
        false => drift.over(outside),
        true => Duration::ZERO,
    };
    ClusterTime(whole_ms(outside.saturating_add(margin).saturating_add(rounding)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_group_waits_out_older_leases_with_drift() {
        let opens = |outside_max_ms| {
            opens_at(&TableConfig { outside_max_ms, ..TableConfig::default() }, Drift::default())
        };
        assert_eq!(opens(0), ClusterTime(0), "no lease outlives its group");
        assert_eq!(opens(10_000), ClusterTime(10_101), "1 % drift, and rounding");
    }
}
