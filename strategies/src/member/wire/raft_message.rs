//! The engine's messages as they travel.

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};
use serde::{Deserialize, Serialize};

use crate::planted::{Bug, planted};

/// The engine's message, mirrored field by field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::member) struct RaftMessage {
    kind: Kind,
    pub(in crate::member) to: u64,
    pub(in crate::member) from: u64,
    term: u64,
    log_term: u64,
    index: u64,
    commit: u64,
    commit_term: u64,
    reject: bool,
    reject_hint: u64,
    request_snapshot: u64,
    priority: i64,
    context: Bytes,
    entries: Vec<RaftEntry>,
    /// Boxed, as hardly any message has one.
    snapshot: Option<Box<RaftSnapshot>>,
}

/// The types of message that travel, each at its number on the wire. Local ones, proposals, reads
/// and transfers are not among them: a peer has no business sending those.
const TYPES: [MessageType; 10] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTimeoutNow,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];

/// One of [`TYPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
struct Kind(MessageType);

/// A log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::member) struct RaftEntry {
    /// Whether it changes the configuration: then `context` says how.
    configuration: bool,
    term: u64,
    index: u64,
    data: Bytes,
    context: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RaftSnapshot {
    data: Bytes,
    index: u64,
    term: u64,
    voters: Voters,
}

/// The engine's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::member) struct Voters {
    pub(in crate::member) voters: Vec<u64>,
    pub(in crate::member) learners: Vec<u64>,
    pub(in crate::member) outgoing: Vec<u64>,
    pub(in crate::member) learners_next: Vec<u64>,
    pub(in crate::member) auto_leave: bool,
}

impl RaftMessage {
    /// Mirrors a message of ours; `None` for a kind that does not travel (a follower's forwarded
    /// proposal, which would lose its nonce's bookkeeping).
    pub(in crate::member) fn of(message: Message) -> Option<Self> {
        let kind = TYPES.contains(&message.msg_type).then_some(Kind(message.msg_type))?;
        let Message { entries, snapshot, .. } = message;
        Some(Self {
            kind,
            to: message.to,
            from: message.from,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            commit: message.commit,
            commit_term: message.commit_term,
            reject: message.reject,
            reject_hint: message.reject_hint,
            request_snapshot: message.request_snapshot,
            priority: message.priority,
            context: message.context,
            entries: entries.into_iter().map(RaftEntry::of).collect(),
            snapshot: snapshot.into_option().map(|snapshot| Box::new(RaftSnapshot::of(snapshot))),
        })
    }

    pub(in crate::member) fn into_message(self) -> Message {
        let mut message = Message {
            msg_type: self.kind.0,
            to: self.to,
            from: self.from,
            term: self.term,
            log_term: self.log_term,
            index: self.index,
            commit: self.commit,
            commit_term: self.commit_term,
            reject: self.reject && !planted(Bug::RefusalLost),
            reject_hint: self.reject_hint,
            request_snapshot: self.request_snapshot,
            priority: self.priority,
            context: self.context,
            entries: self.entries.into_iter().map(RaftEntry::into_entry).collect(),
            ..Message::default()
        };
        if let Some(snapshot) = self.snapshot {
            message.set_snapshot(snapshot.into_snapshot());
        }
        message
    }

    pub(in crate::member) fn is_snapshot(&self) -> bool {
        self.kind.0 == MessageType::MsgSnapshot
    }

    /// Cuts an append whose entries take more than `bytes_max` together into consecutive ones that
    /// do not. One entry is never cut.
    ///
    /// The engine bounds one append, but adds entries to an append that has not left yet, whatever
    /// its length.
    pub(in crate::member) fn cut(mut self, bytes_max: usize, mut part: impl FnMut(Self)) {
        let mut bytes = 0;
        let all = self.entries.iter().map(RaftEntry::bytes_max).sum::<usize>();
        let entries = if all > bytes_max { std::mem::take(&mut self.entries) } else { Vec::new() };
        for entry in entries {
            let more = entry.bytes_max();
            if bytes + more > bytes_max
                && let Some(RaftEntry { index, term: log_term, .. }) = self.entries.last()
            {
                let next = Self { index: *index, log_term: *log_term, ..self.without_entries() };
                part(std::mem::replace(&mut self, next));
                bytes = 0;
            }
            bytes += more;
            self.entries.push(entry);
        }
        part(self);
    }

    fn without_entries(&self) -> Self {
        let Self { context, snapshot, .. } = self;
        Self { entries: Vec::new(), context: context.clone(), snapshot: snapshot.clone(), ..*self }
    }
}

impl RaftEntry {
    /// No fewer bytes than it takes when encoded: three numbers and two lengths besides its texts.
    const fn bytes_max(&self) -> usize {
        self.data.len() + self.context.len() + 48
    }
}

impl TryFrom<u8> for Kind {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        TYPES.get(usize::from(number)).copied().map(Self).ok_or("no type of message")
    }
}

impl From<Kind> for u8 {
    fn from(kind: Kind) -> Self {
        let number = (0..).zip(TYPES).find(|(_, of)| *of == kind.0);
        number.expect("a kind is one of the table").0
    }
}

impl RaftEntry {
    fn of(entry: Entry) -> Self {
        Self {
            configuration: entry.entry_type != EntryType::EntryNormal,
            term: entry.term,
            index: entry.index,
            data: entry.data,
            context: entry.context,
        }
    }

    fn into_entry(self) -> Entry {
        let entry_type =
            if self.configuration { EntryType::EntryConfChangeV2 } else { EntryType::EntryNormal };
        Entry {
            entry_type,
            term: self.term,
            index: self.index,
            data: self.data,
            context: self.context,
            ..Entry::default()
        }
    }
}

impl RaftSnapshot {
    fn of(snapshot: Snapshot) -> Self {
        let metadata = snapshot.get_metadata();
        Self {
            index: metadata.index,
            term: metadata.term,
            voters: Voters::of(metadata.get_conf_state()),
            data: snapshot.data,
        }
    }

    fn into_snapshot(self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.index;
        metadata.term = self.term;
        metadata.set_conf_state(self.voters.into_conf_state());
        snapshot.data = self.data;
        snapshot
    }
}

impl Voters {
    pub(in crate::member) fn of(state: &ConfState) -> Self {
        Self {
            voters: state.voters.clone(),
            learners: state.learners.clone(),
            outgoing: state.voters_outgoing.clone(),
            learners_next: state.learners_next.clone(),
            auto_leave: state.auto_leave,
        }
    }

    pub(in crate::member) fn into_conf_state(self) -> ConfState {
        ConfState {
            voters: self.voters,
            learners: self.learners,
            voters_outgoing: self.outgoing,
            learners_next: self.learners_next,
            auto_leave: self.auto_leave,
            ..ConfState::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of which every field has a value of its own.
    fn full() -> Message {
        let mut message = Message {
            msg_type: MessageType::MsgAppend,
            to: 1,
            from: 2,
            term: 3,
            log_term: 4,
            index: 5,
            commit: 6,
            commit_term: 7,
            reject: true,
            reject_hint: 8,
            request_snapshot: 9,
            priority: 10,
            context: Bytes::from_static(b"z"),
            ..Message::default()
        };
        let entry = |entry_type| Entry {
            entry_type,
            index: 11,
            term: 12,
            data: Bytes::from_static(b"x"),
            context: Bytes::from_static(b"y"),
            ..Entry::default()
        };
        message.entries =
            vec![entry(EntryType::EntryNormal), entry(EntryType::EntryConfChangeV2)].into();
        let mut snapshot = Snapshot { data: Bytes::from_static(b"s"), ..Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (13, 14);
        let state = metadata.mut_conf_state();
        (state.voters, state.learners) = (vec![1, 2], vec![3]);
        (state.voters_outgoing, state.learners_next) = (vec![4, 5], vec![5]);
        state.auto_leave = true;
        message.set_snapshot(snapshot);
        message
    }

    #[test]
    fn message_survives_the_round_trip() {
        let message = full();
        let mirrored = RaftMessage::of(message.clone()).unwrap();
        assert_eq!(mirrored.into_message(), message);
    }

    /// An append of entries of ten bytes from index 8 on, the term growing with each.
    fn append(entries: u64) -> RaftMessage {
        let entry = |number: u64| Entry {
            index: 8 + number,
            term: 4 + number,
            data: Bytes::from_static(b"0123456789"),
            ..Entry::default()
        };
        let mut message = full();
        (message.index, message.log_term, message.snapshot) = (7, 3, None.into());
        message.entries = (0..entries).map(entry).collect::<Vec<_>>().into();
        RaftMessage::of(message).unwrap()
    }

    fn parts(message: RaftMessage, bytes_max: usize) -> Vec<RaftMessage> {
        let mut parts = Vec::new();
        message.cut(bytes_max, |part| parts.push(part));
        parts
    }

    #[test]
    fn long_append_is_cut_into_consecutive_ones() {
        let (whole, each) = (append(7), 10 + 48);
        let parts = parts(whole.clone(), 2 * each);
        let sizes = parts.iter().map(|part| part.entries.len()).collect::<Vec<_>>();
        assert_eq!(sizes, [2, 2, 2, 1]);
        let (mut before, mut entries) = ((3, 7), Vec::new());
        for part in parts {
            assert_eq!((part.log_term, part.index), before);
            let last = part.entries.last().unwrap();
            before = (last.term, last.index);
            entries.extend(part.entries.iter().cloned());
            // All else is as it was.
            let RaftMessage { log_term, index, .. } = whole;
            assert_eq!(
                RaftMessage { log_term, index, ..part }.without_entries(),
                whole.without_entries()
            );
        }
        assert_eq!(entries, whole.entries);
    }

    #[test]
    fn short_append_and_single_entry_are_not_cut() {
        let each = 10 + 48;
        assert_eq!(parts(append(2), 2 * each), [append(2)]);
        assert_eq!(parts(append(2), 2 * each - 1).len(), 2);
        assert_eq!(parts(append(1), 1), [append(1)]);
        assert_eq!(parts(append(3), 1).len(), 3);
        assert_eq!(parts(append(0), 1), [append(0)]);
    }

    #[test]
    fn entry_takes_no_more_than_its_bytes_max() {
        let bytes = Bytes::from(vec![7; 300]);
        let (term, index) = (u64::MAX, u64::MAX);
        let entry =
            RaftEntry { configuration: true, term, index, data: bytes.clone(), context: bytes };
        assert!(postcard::to_allocvec(&entry).unwrap().len() <= entry.bytes_max());
    }

    #[test]
    fn forwarded_proposal_does_not_travel() {
        let message = Message { msg_type: MessageType::MsgPropose, ..Message::default() };
        assert!(RaftMessage::of(message).is_none());
    }
}
