//! Frames that no member sent, as near to right ones as can be.

use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};

use super::bytes::Choices;
use crate::{
    lock::Nonce,
    lock_table::{
        ClusterTime, Command, LockRequest, LockTable, ProcessId, Seen, TableConfig, Wait,
    },
    member::{
        entry::{MemberChange, Stamped},
        wire::{
            Body, Chunk, Forming, MembershipState, Presence, Process, RaftMessage, Times, encode,
        },
    },
};

/// The member that a forger writes to, and the sender that it claims to be.
pub(super) struct Victim<'a> {
    pub(super) me: u64,
    pub(super) from: u64,
    pub(super) group: u128,
    pub(super) term: u64,
    pub(super) last: u64,
    pub(super) committed: u64,
    pub(super) table: Option<&'a LockTable>,
    /// Names and incarnations of all that run.
    pub(super) all: Vec<(String, u64)>,
}

impl Victim<'_> {
    pub(super) fn body(&self, choices: &mut Choices<'_>) -> Body {
        match choices.below(16) {
            0 => Body::Presence(Presence {
                seq: choices.word() >> 8,
                membership_state: self.membership_state(choices),
                last_token: choices.near(1),
                challenge: choices.near(1),
                echo: choices.near(1),
                process: process(choices),
                members: self.members(choices).into_iter().map(|(name, _)| name).collect(),
                times: Times::default(),
            }),
            1 => Body::Invite(Forming {
                id: self.group_id(choices),
                members: self.members(choices),
                table: TableConfig { first_token: choices.near(1), ..TableConfig::default() },
            }),
            2 | 3 => Body::Pledge { forming: self.group_id(choices) },
            4 if choices.flag() => Body::Removed,
            4 if choices.flag() => Body::Leaving,
            4 => Body::NameInUse(process(choices)),
            5..8 => Body::Request(self.command(choices)),
            8 => Body::Chunk(Chunk {
                transfer: choices.near(1),
                index: match choices.byte() / 64 {
                    3 => u32::MAX,
                    index => index.into(),
                },
                count: u32::from(choices.byte() / 64),
                bytes: self.chunk(choices),
            }),
            9 => {
                let received = u32::from(choices.byte());
                Body::ChunkAck { transfer: choices.near(1), received }
            }
            _ => match self.message(choices) {
                Some(message) => Body::Raft(message),
                None => Body::Removed,
            },
        }
    }

    fn chunk(&self, choices: &mut Choices<'_>) -> Bytes {
        match self.message(choices) {
            Some(message) if choices.flag() => {
                postcard::to_allocvec(&message).expect("a message serialises").into()
            }
            _ => Bytes::copy_from_slice(choices.slice()),
        }
    }

    fn membership_state(&self, choices: &mut Choices<'_>) -> MembershipState {
        let id = self.group_id(choices);
        match choices.below(5) {
            0 => MembershipState::Free,
            1 => MembershipState::Resting,
            2 => MembershipState::Pledged,
            3 => MembershipState::Joining(id),
            _ => MembershipState::Member(id),
        }
    }

    fn group_id(&self, choices: &mut Choices<'_>) -> u128 {
        if choices.below(4) > 0 { self.group } else { u128::from(choices.byte()) }
    }

    fn members(&self, choices: &mut Choices<'_>) -> Vec<(String, u64)> {
        let mut members = self.all.clone();
        members.truncate(choices.below(8));
        for (_, id) in &mut members {
            *id = choices.near(*id);
        }
        members
    }

    fn id(&self, choices: &mut Choices<'_>) -> u64 {
        let known = choices.below(self.all.len());
        let known = self.all.get(known).map_or(0, |(_, id)| *id);
        choices.near(known)
    }

    /// A message of a kind that members send each other.
    fn message(&self, choices: &mut Choices<'_>) -> Option<RaftMessage> {
        use MessageType as T;
        const KINDS: [MessageType; 10] = [
            T::MsgAppend,
            T::MsgAppendResponse,
            T::MsgRequestVote,
            T::MsgRequestVoteResponse,
            T::MsgSnapshot,
            T::MsgHeartbeat,
            T::MsgHeartbeatResponse,
            T::MsgTimeoutNow,
            T::MsgRequestPreVote,
            T::MsgRequestPreVoteResponse,
        ];
        let msg_type = KINDS[choices.below(KINDS.len())];
        let base = if choices.flag() { self.last } else { self.committed };
        let mut message = Message {
            msg_type,
            to: choices.near(self.me),
            from: choices.near(self.from),
            term: choices.near(self.term),
            log_term: choices.near(self.term),
            index: choices.near(base),
            commit: choices.near(self.committed),
            commit_term: choices.near(self.term),
            reject: choices.flag(),
            reject_hint: choices.near(self.last),
            ..Message::default()
        };
        let entries = choices.below(4) as u64;
        message.entries =
            (1..=entries).map(|n| self.entry(message.index.wrapping_add(n), choices)).collect();
        if msg_type == T::MsgSnapshot || choices.below(16) == 0 {
            message.set_snapshot(self.snapshot(choices));
        }
        RaftMessage::of(message)
    }

    fn entry(&self, index: u64, choices: &mut Choices<'_>) -> Entry {
        let mut entry =
            Entry { index: choices.near(index), term: choices.near(self.term), ..Entry::default() };
        match choices.below(8) {
            0 => {}
            1 => entry.data = Bytes::copy_from_slice(choices.slice()),
            2 | 3 => {
                entry.entry_type = EntryType::EntryConfChangeV2;
                entry.context = match choices.below(4) {
                    0 => Bytes::new(),
                    1 => Bytes::copy_from_slice(choices.slice()),
                    _ => encode(&self.change(choices)).into(),
                };
            }
            _ => {
                let now = self.table.map_or(0, |table| table.now().0);
                let stamp = ClusterTime(choices.near(now));
                let count = 1 + choices.below(3);
                let commands = (0..count).map(|_| self.command(choices)).collect();
                entry.data = Stamped { stamp, commands }.encode().into();
            }
        }
        entry
    }

    fn change(&self, choices: &mut Choices<'_>) -> MemberChange {
        let id = self.id(choices);
        match choices.below(3) {
            0 => {
                let known = choices.below(self.all.len() + 1);
                let name = self.all.get(known).map_or_else(String::new, |(name, _)| name.clone());
                MemberChange::Learn { id, name }
            }
            1 => MemberChange::Replace { old: id, new: self.id(choices) },
            _ => MemberChange::Forget { id },
        }
    }

    fn snapshot(&self, choices: &mut Choices<'_>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let roster: Vec<(u64, String)> =
            self.members(choices).into_iter().map(|(name, id)| (id, name)).collect();
        let metadata = snapshot.mut_metadata();
        metadata.index = choices.near(self.last);
        metadata.term = choices.near(self.term);
        let mut ids = || -> Vec<u64> {
            let count = choices.below(5);
            (0..count).map(|_| self.id(choices)).collect()
        };
        let (voters, learners, outgoing, next) = (ids(), ids(), ids(), ids());
        let state = metadata.mut_conf_state();
        state.voters = voters;
        if choices.below(4) == 0 {
            state.learners = learners;
            state.voters_outgoing = outgoing;
            state.learners_next = next;
            state.auto_leave = choices.flag();
        }
        snapshot.data = match (self.table, choices.below(4)) {
            (_, 0) | (None, _) => Bytes::copy_from_slice(choices.slice()),
            // The layout of a group's state: the table's bytes, then the roster.
            (Some(table), _) => encode(&(table.snapshot(), roster)).into(),
        };
        snapshot
    }

    fn command(&self, choices: &mut Choices<'_>) -> Command {
        let key = ["k", "l", ""][choices.below(3)].into();
        let nonce = Nonce::from_u128(u128::from(choices.byte() % 8));
        let process = ProcessId(choices.near(self.from));
        let duration_ms = choices.near(1_000);
        match choices.below(8) {
            0..=3 => Command::Lock(LockRequest {
                key,
                nonce,
                process,
                duration_ms,
                wait: match choices.below(3) {
                    0 => Wait::No,
                    1 => Wait::Forever,
                    _ => Wait::Ms(choices.near(500)),
                },
                seen: match (self.table, choices.below(3)) {
                    (_, 0) | (None, _) => Seen::Now,
                    (Some(table), _) => {
                        Seen::At { group: self.group_id(choices), time: table.now() }
                    }
                },
                owner: std::sync::Arc::default(),
            }),
            4 | 5 => Command::Unlock { key, nonce, forget: choices.flag() },
            6 => Command::Extend { key, nonce, process, request: 1, duration_ms },
            _ if choices.flag() => Command::DropWaiters { process },
            _ => Command::Noop,
        }
    }
}

fn process(choices: &mut Choices<'_>) -> Process {
    Process { id: choices.near(1), started: choices.near(1), host: "h".into(), pid: 1 }
}
