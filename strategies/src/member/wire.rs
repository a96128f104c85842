//! Frames of the Raft family: a header and bodies, versioned, in postcard.
//!
//! The engine's protobuf codec never parses bytes from the network: [`RaftMessage`] travels in
//! postcard, so that a hostile peer reaches one small decoder of ours.

mod raft_message;

use std::{borrow::Cow, net::SocketAddr, time::Duration};

use bytes::Bytes;
use humantime::format_duration;
use serde::{Deserialize, Serialize};

pub(super) use self::raft_message::RaftMessage;
use crate::{
    limits::HOST_BYTES_MAX,
    lock_table::{Command, TableConfig},
    printable::Printable,
};

/// The version of frames, and of all that they carry, that this build writes and reads.
pub(super) const VERSION: u8 = 3;

/// Begins every frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header<'a> {
    pub(super) version: u8,
    #[serde(borrow)]
    pub(super) cluster: Cow<'a, str>,
    /// The sender's incarnation.
    pub(super) from: u64,
    /// The receiver's incarnation; 0 where the sender does not know it.
    pub(super) to: u64,
    /// The group the sender belongs to (or is joining); 0 for none.
    pub(super) group: u128,
}

/// A message within a frame, which carries any number of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Body {
    /// "I run, and this is my state."
    Presence(Presence),
    /// "Pledge yourself to this forming."
    Invite(Forming),
    /// "I pledge myself to this forming, and to no other."
    Pledge { forming: u128 },
    /// "Your incarnation is no longer a member of my group."
    Removed,
    /// A message of the engine.
    Raft(RaftMessage),
    /// A command that asks the leader to append it.
    Request(Command),
    /// A piece of a snapshot message.
    Chunk(Chunk),
    /// How much of a snapshot message has arrived.
    ChunkAck { transfer: u64, received: u32 },
    /// "This process runs under your name, and keeps it."
    NameInUse(Process),
    /// "My incarnation ends now."
    Leaving,
}

/// A process's state, as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Presence {
    /// Counts the presences of one incarnation, so that older, late ones are ignored.
    pub(super) seq: u64,
    pub(super) membership_state: MembershipState,
    /// The greatest fencing token that this process ever saw granted.
    pub(super) last_token: u64,
    /// The challenge, which the receiver echoes: that proves that the reply is younger.
    pub(super) challenge: u64,
    /// The latest challenge seen from the receiver.
    pub(super) echo: u64,
    pub(super) process: Process,
    /// The names that its options list as members.
    pub(super) members: Vec<String>,
    pub(super) times: Times,
}

/// The options of a member by which followers wait for a leader. They must be equal at all members:
/// a follower with shorter ones campaigns against a leader that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) heartbeat: Duration,
    pub(super) election_timeout: (Duration, Duration),
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (heartbeat, (min, max)) = (format_duration(self.heartbeat), self.election_timeout);
        write!(
            f,
            "heartbeat {heartbeat}, election_timeout {} to {}",
            format_duration(min),
            format_duration(max)
        )
    }
}

/// A process start, which keeps its identity when its incarnation changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Generated; 0 where it is not known.
    pub(super) id: u64,
    /// The wall clock at the start, in nanoseconds. It decides only which of two processes with
    /// the same name stops.
    pub(super) started: u64,
    /// The location, for diagnostics: the address that it listens on, if the channel has one, then
    /// the host.
    pub(super) host: String,
    pub(super) pid: u32,
}

impl Process {
    pub(super) fn listens_on(&mut self, address: SocketAddr) {
        self.host.insert_str(0, &format!("{address} on "));
        self.host.truncate(self.host.floor_char_boundary(HOST_BYTES_MAX));
    }

    /// The wall clock at a tick, of which the first counts.
    pub(super) fn starts_at(&mut self, nanos: u64) {
        if self.started == 0 {
            self.started = nanos;
        }
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, pid {}", Printable(&self.host), self.pid)
    }
}

/// Whether a process is free, pledged, joining or a voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MembershipState {
    /// The process has no group, and may pledge.
    Free,
    /// The process has no group, and may not pledge yet: it has just resigned.
    Resting,
    /// Pledged to a forming.
    Pledged,
    /// Learning the log of a group, not voting yet.
    Joining(u128),
    /// A voter of a group.
    Member(u128),
}

/// A group about to be formed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Forming {
    pub(super) id: u128,
    /// The members' names and incarnations, ordered by name.
    pub(super) members: Vec<(String, u64)>,
    /// The bounds of the group's lock table: the coordinator's bounds apply to all members, because
    /// tables with different bounds would grant differently.
    pub(super) table: TableConfig,
}

/// A piece of an encoded snapshot message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    /// Names the transfer, unique per sender.
    pub(super) transfer: u64,
    pub(super) index: u32,
    pub(super) count: u32,
    pub(super) bytes: Bytes,
}

/// Why bytes of a member were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("version {0}, this build knows {VERSION}: upgrade the older member")]
    Version(u8),
    #[error("does not decode")]
    Malformed,
}

/// Appends the encoded `value` to `bytes`, by slices: postcard's writer for collections appends
/// byte by byte.
pub(super) fn encode_onto<T: Serialize>(bytes: &mut Vec<u8>, value: &T) {
    postcard::to_io(value, bytes).expect("a vector takes every byte");
}

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_onto(&mut bytes, value);
    bytes
}

/// Decodes a frame whole: one bad body condemns it.
pub(super) fn decode(frame: &[u8]) -> Result<(Header<'_>, Vec<Body>), DecodeError> {
    if let Some(version) = frame.first().copied().filter(|version| *version != VERSION) {
        return Err(DecodeError::Version(version));
    }
    let malformed = |_| DecodeError::Malformed;
    let (header, mut rest) = postcard::take_from_bytes::<Header<'_>>(frame).map_err(malformed)?;
    let mut bodies = Vec::new();
    while !rest.is_empty() {
        let (body, after) = postcard::take_from_bytes(rest).map_err(malformed)?;
        bodies.push(body);
        rest = after;
    }
    Ok((header, bodies))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header<'static> {
        Header { version: VERSION, cluster: "c".into(), from: 1, to: 2, group: 3 }
    }

    #[test]
    fn frame_carries_many_bodies() {
        let mut frame = encode(&header());
        let bodies = vec![Body::Removed, Body::Pledge { forming: 9 }, Body::Request(Command::Noop)];
        for body in &bodies {
            frame.extend(encode(body));
        }
        assert_eq!(decode(&frame), Ok((header(), bodies)));
    }

    #[test]
    fn unknown_version_is_not_malformed() {
        assert_eq!(decode(&[9, 0, 0]), Err(DecodeError::Version(9)));
        assert_eq!(decode(&[]), Err(DecodeError::Malformed));
        assert_eq!(decode(&[VERSION, 255, 255, 255]), Err(DecodeError::Malformed));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic() {
        proptest::proptest!(|(bytes: Vec<u8>)| {
            let _ = decode(&bytes);
            let mut frame = encode(&header());
            frame.extend(&bytes);
            let _ = decode(&frame);
        });
    }
}
