//! The content of a log entry. The frame that brought it carries the version.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::wire::encode_onto;
use crate::lock_table::{ClusterTime, Command};

/// The most commands of one entry. The cost of an entry is then small against theirs, and the
/// number of entries still bounds the size of a log.
const COMMANDS_MAX: usize = 16;

/// Enough for sixteen commands with short keys. A buffer that grows costs the `fan` workload more
/// than a tenth of its pairs.
const BATCH_BYTES: usize = 1024;

/// Commands that a leader took in one turn, in order, with its stamp. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandEntry {
    pub(super) stamp: ClusterTime,
    pub(super) commands: Vec<Command>,
}

/// An entry that is being written.
#[derive(Debug)]
pub(super) struct Batch {
    /// How many commands it holds.
    count: usize,
    bytes: Vec<u8>,
}

impl CommandEntry {
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (stamp, mut rest) = postcard::take_from_bytes(bytes).ok()?;
        // Hardly a command is shorter than 24 bytes.
        let mut commands = Vec::with_capacity((1 + rest.len() / 24).min(COMMANDS_MAX));
        while commands.is_empty() || !rest.is_empty() {
            if commands.len() == COMMANDS_MAX {
                return None;
            }
            let (command, after) = postcard::take_from_bytes(rest).ok()?;
            commands.push(command);
            rest = after;
        }
        Some(Self { stamp, commands })
    }
}

impl Batch {
    /// An entry with its first command.
    pub(super) fn new(stamp: ClusterTime, first: &Command) -> Self {
        let mut bytes = Vec::with_capacity(BATCH_BYTES);
        encode_onto(&mut bytes, &stamp);
        encode_onto(&mut bytes, first);
        Self { count: 1, bytes }
    }

    /// Adds another command, unless the entry is full or would become longer than `bytes_max`.
    /// Returns whether it was added.
    pub(super) fn add(&mut self, command: &Command, bytes_max: usize) -> bool {
        let end = self.bytes.len();
        encode_onto(&mut self.bytes, command);
        let fits = self.count < COMMANDS_MAX && self.bytes.len() <= bytes_max;
        if fits {
            self.count += 1;
        } else {
            self.bytes.truncate(end);
        }
        fits
    }

    /// The bytes of the entry, which the log keeps without spare capacity.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes)
    }
}

/// A change of members, by incarnation and name. It rides in the entry's context, so that members
/// rebuild the engine's own change from it and parse nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MemberChange {
    /// A fresh incarnation begins to learn the log.
    Learn { id: u64, name: String },
    /// A learner takes the vote of an old incarnation, in one joint change.
    Replace { old: u64, new: u64 },
    /// A learner whose process was replaced is forgotten.
    Forget { id: u64 },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lock_table::ProcessId, member::wire::encode};

    impl CommandEntry {
        pub(in crate::member) fn encode(&self) -> Vec<u8> {
            let (first, others) = self.commands.split_first().expect("it is never empty");
            let mut batch = Batch::new(self.stamp, first);
            others.iter().for_each(|command| assert!(batch.add(command, usize::MAX), "it fits"));
            batch.bytes
        }
    }

    fn drop_waiters(process: u64) -> Command {
        Command::DropWaiters { process: ProcessId(process) }
    }

    fn of(commands: usize) -> Vec<u8> {
        let commands = (0..commands as u64).map(drop_waiters).collect();
        CommandEntry { stamp: ClusterTime(7), commands }.encode()
    }

    #[test]
    fn entry_is_a_stamp_and_its_command() {
        let one = (ClusterTime(7), drop_waiters(0));
        assert_eq!(of(1), encode(&one));
    }

    #[test]
    fn entry_holds_a_bounded_number_of_commands() {
        for count in [1, 2, COMMANDS_MAX] {
            let commands = CommandEntry::decode(&of(count)).unwrap().commands;
            assert_eq!(commands, (0..count as u64).map(drop_waiters).collect::<Vec<_>>());
        }
        let mut many = of(COMMANDS_MAX);
        encode_onto(&mut many, &drop_waiters(0));
        assert_eq!(CommandEntry::decode(&many), None);
        many.truncate(1);
        assert_eq!(CommandEntry::decode(&many), None, "a stamp alone");
        assert_eq!(CommandEntry::decode(&[]), None);
    }

    #[test]
    fn command_beyond_an_entry_is_refused() {
        let mut batch = Batch::new(ClusterTime(7), &drop_waiters(0));
        assert!(batch.add(&drop_waiters(1), of(2).len()));
        assert!(!batch.add(&drop_waiters(2), of(3).len() - 1));
        assert_eq!(batch.into_bytes(), of(2));
        let mut full = Batch::new(ClusterTime(7), &drop_waiters(0));
        assert!((1..COMMANDS_MAX as u64).all(|n| full.add(&drop_waiters(n), usize::MAX)));
        assert!(!full.add(&drop_waiters(0), usize::MAX));
        assert_eq!(full.into_bytes(), of(COMMANDS_MAX));
    }
}
