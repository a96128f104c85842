//! The engine's messages as they travel.

use std::ops::Deref;

use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A message of the engine, of a type that travels.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::member) struct RaftMessage(Message);

/// The types of message that travel, each at its number on the wire. Local ones, proposals, reads
/// and transfers are not among them: a peer must not send those.
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

impl RaftMessage {
    /// `None` for a type that does not travel (a follower's forwarded proposal, which would lose
    /// its nonce's bookkeeping).
    pub(in crate::member) fn of(message: Message) -> Option<Self> {
        TYPES.contains(&message.msg_type).then_some(Self(message))
    }

    pub(in crate::member) fn into_message(self) -> Message {
        self.0
    }

    pub(in crate::member) fn is_snapshot(&self) -> bool {
        self.msg_type == MessageType::MsgSnapshot
    }
}

impl Deref for RaftMessage {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.0
    }
}

/// Number of the type, to, from, term, log term, index, commit, commit term, reject, reject hint,
/// context, entries, snapshot.
type Fields<B, E, S> = (u8, u64, u64, u64, u64, u64, u64, u64, bool, u64, B, Vec<E>, Option<S>);
/// Whether it changes the configuration: then the context says how; term, index, data, context.
type EntryFields<B> = (bool, u64, u64, B, B);
/// Data, index, term, configuration.
type SnapshotFields<B, L> = (B, u64, u64, ConfigurationFields<L>);
/// Voters, learners, outgoing voters, next learners, whether it is left automatically.
type ConfigurationFields<L> = (L, L, L, L, bool);

impl Serialize for RaftMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let m = &self.0;
        let (number, _) = (0..).zip(TYPES).find(|(_, of)| *of == m.msg_type).expect("it travels");
        let fields: Fields<_, _, _> = (
            number,
            m.to,
            m.from,
            m.term,
            m.log_term,
            m.index,
            m.commit,
            m.commit_term,
            m.reject,
            m.reject_hint,
            &m.context,
            m.entries.iter().map(entry_fields).collect(),
            m.snapshot.as_ref().map(snapshot_fields),
        );
        fields.serialize(serializer)
    }
}

fn entry_fields(entry: &Entry) -> EntryFields<&Bytes> {
    let configuration = entry.entry_type != EntryType::EntryNormal;
    (configuration, entry.term, entry.index, &entry.data, &entry.context)
}

fn snapshot_fields(snapshot: &Snapshot) -> SnapshotFields<&Bytes, &[u64]> {
    let metadata = snapshot.get_metadata();
    let c = metadata.get_conf_state();
    let configuration: ConfigurationFields<&[u64]> =
        (&c.voters, &c.learners, &c.voters_outgoing, &c.learners_next, c.auto_leave);
    (&snapshot.data, metadata.index, metadata.term, configuration)
}

impl<'de> Deserialize<'de> for RaftMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields: Fields<Bytes, EntryFields<Bytes>, SnapshotFields<Bytes, Vec<u64>>> =
            Deserialize::deserialize(deserializer)?;
        let (number, to, from, term, log_term, index, commit, commit_term, ..) = fields;
        let (.., reject, reject_hint, context, entries, found) = fields;
        let msg_type = TYPES.get(usize::from(number)).copied();
        let mut message = Message {
            msg_type: msg_type.ok_or_else(|| D::Error::custom("no type of message"))?,
            to,
            from,
            term,
            log_term,
            index,
            commit,
            commit_term,
            reject,
            reject_hint,
            context,
            entries: entries.into_iter().map(entry).collect(),
            ..Message::default()
        };
        message.snapshot = found.map(snapshot).into();
        Ok(Self(message))
    }
}

fn entry((configuration, term, index, data, context): EntryFields<Bytes>) -> Entry {
    let entry_type = match configuration {
        true => EntryType::EntryConfChangeV2,
        false => EntryType::EntryNormal,
    };
    Entry { entry_type, term, index, data, context, ..Entry::default() }
}

fn snapshot((data, index, term, configuration): SnapshotFields<Bytes, Vec<u64>>) -> Snapshot {
    let mut snapshot = Snapshot { data, ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (index, term);
    let state = metadata.mut_conf_state();
    let (voters, learners, outgoing, learners_next, auto_leave) = configuration;
    (state.voters, state.voters_outgoing) = (voters, outgoing);
    (state.learners, state.learners_next) = (learners, learners_next);
    state.auto_leave = auto_leave;
    snapshot
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message in which every field has a distinct value.
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
        for (number, msg_type) in (0..).zip(TYPES) {
            let message = RaftMessage::of(Message { msg_type, ..full() }).unwrap();
            let bytes = postcard::to_allocvec(&message).unwrap();
            assert_eq!(bytes[0], number);
            assert_eq!(postcard::from_bytes::<RaftMessage>(&bytes), Ok(message));
        }
    }

    /// Another build must decode them.
    #[test]
    fn bytes_of_a_message_are_fixed() {
        let bytes = postcard::to_allocvec(&RaftMessage::of(full()).unwrap()).unwrap();
        let fixed = [
            0, 1, 2, 3, 4, 5, 6, 7, 1, 8, 1, b'z', 2, 0, 12, 11, 1, b'x', 1, b'y', 1, 12, 11, 1,
            b'x', 1, b'y', 1, 1, b's', 13, 14, 2, 1, 2, 1, 3, 2, 4, 5, 1, 5, 1,
        ];
        assert_eq!(bytes, fixed);
    }

    #[test]
    fn forwarded_proposal_does_not_travel() {
        let message = Message { msg_type: MessageType::MsgPropose, ..Message::default() };
        assert!(RaftMessage::of(message).is_none());
    }
}
