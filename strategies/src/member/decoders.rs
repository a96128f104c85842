//! Every decoder of the member, fed with bytes: what decodes must come back as it is.

use std::{fmt::Debug, sync::Arc};

use raft::eraftpb::Entry;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    entry::{MemberChange, Stamped},
    group::restore_state,
    wire::{self, Body, RaftMessage},
};
use crate::{
    Nonce, Owner,
    lock_table::{
        ClusterTime, Command, LockRequest, LockTable, ProcessId, Seen, TableConfig, Wait,
    },
};

/// Bytes that decoders must take: recorded `frames`, and the log entries and the engine's messages
/// out of them.
pub(crate) fn examples(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut examples = Vec::new();
    for body in frames.iter().filter_map(|frame| wire::decode(frame).ok()).flat_map(|f| f.1) {
        let Body::Raft(message) = body else { continue };
        examples.push(postcard::to_allocvec(&message).expect("a message serialises"));
        let message = message.into_message();
        let entries = message.entries.iter();
        // The context holds the change of members; its data are the engine's own.
        let ours = |entry: &Entry| {
            if entry.context.is_empty() { entry.data.to_vec() } else { entry.context.to_vec() }
        };
        examples.extend(entries.map(ours).filter(|part| !part.is_empty()));
        let snapshot = message.get_snapshot().data.to_vec();
        examples.extend(Some(snapshot).filter(|data| !data.is_empty()));
    }
    examples.extend(frames);
    examples
}

/// A table in which something is held, waited for and remembered.
pub(crate) fn example_table() -> LockTable {
    let mut table = LockTable::new(TableConfig { group: 7, ..TableConfig::default() });
    for nonce in 1..5 {
        let command = Command::Lock(LockRequest {
            key: "k".into(),
            nonce: Nonce::from_u128(nonce),
            process: ProcessId(1),
            duration_ms: 1_000,
            wait: Wait::Ms(2_000),
            seen: Seen::Now,
            owner: Arc::new(Owner { host: "h".into(), pid: 1, label: Some("l".into()) }),
        });
        table.apply(ClusterTime(10), &command, &mut Vec::new());
    }
    let nonce = Nonce::from_u128(1);
    let unlock = Command::Unlock { key: "k".into(), nonce, forget: false };
    table.apply(ClusterTime(20), &unlock, &mut Vec::new());
    table
}

/// Feeds every decoder. Returns how many took the bytes.
pub(crate) fn feed(bytes: &[u8]) -> u32 {
    u32::from(frame(bytes))
        + commands(bytes)
        + log_entry::<MemberChange>(bytes)
        + message(bytes)
        + u32::from(restore_state(bytes))
}

/// Whether it is a frame. Live nodes' frames must be.
pub(super) fn frame(bytes: &[u8]) -> bool {
    let Ok((header, bodies)) = wire::decode(bytes) else { return false };
    let mut again = wire::encode(&header);
    for body in &bodies {
        again.extend(wire::encode(body));
        if let Body::Raft(message) = body {
            mirrored(message);
        }
    }
    assert_eq!(wire::decode(&again), Ok((header, bodies)), "a frame comes back as it went");
    true
}

fn commands(bytes: &[u8]) -> u32 {
    let Some(stamped) = Stamped::decode(bytes) else { return 0 };
    assert_eq!(Stamped::decode(&stamped.encode()), Some(stamped), "an entry comes back as it went");
    1
}

fn log_entry<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> u32 {
    let Ok(value) = postcard::from_bytes::<T>(bytes) else { return 0 };
    let again = wire::encode(&value);
    assert_eq!(postcard::from_bytes::<T>(&again), Ok(value), "an entry comes back as it went");
    1
}

fn message(bytes: &[u8]) -> u32 {
    let Ok(message) = postcard::from_bytes::<RaftMessage>(bytes) else { return 0 };
    let again = postcard::to_allocvec(&message).expect("a message serialises");
    assert_eq!(postcard::from_bytes(&again), Ok(message.clone()), "it comes back as it went");
    mirrored(&message);
    1
}

fn mirrored(message: &RaftMessage) {
    let mirrored = RaftMessage::of(message.clone().into_message());
    assert_eq!(mirrored.as_ref(), Some(message), "the engine's message says the same");
}

#[cfg(test)]
mod tests {
    use super::*;

    type Feed = fn(&[u8]) -> u32;

    #[test]
    fn every_decoder_takes_its_examples() {
        let examples = examples(crate::member::world::World::record());
        let takes = |feed: Feed| examples.iter().filter(|e| feed(e) > 0).count();
        let feeds: [(&str, Feed); 5] = [
            ("frames", |bytes| u32::from(frame(bytes))),
            ("entries", commands),
            ("changes", log_entry::<MemberChange>),
            ("messages", message),
            ("snapshots", |bytes| u32::from(restore_state(bytes))),
        ];
        for (what, feed) in feeds {
            assert!(takes(feed) > 1, "{what}: {} of {}", takes(feed), examples.len());
        }
        assert!(examples.iter().all(|example| super::feed(example) > 0));
    }
}
