//! Goal: a frame comes back as it went. Method: frames of a cluster that forms, locks, and takes a
//! restarted member in.

use super::world::World;
use crate::member::wire::{self, Body, RaftMessage};

/// Whether it is a frame, which must then come back from its own encoding.
fn is_frame(bytes: &[u8]) -> bool {
    let Ok((header, bodies)) = wire::decode(bytes) else { return false };
    let mut again = wire::encode(&header);
    for body in &bodies {
        again.extend(wire::encode(body));
        if let Body::Raft(message) = body {
            let mirrored = RaftMessage::of(message.clone().into_message());
            assert_eq!(mirrored.as_ref(), Some(message), "the engine's message says the same");
        }
    }
    assert_eq!(wire::decode(&again), Ok((header, bodies)), "a frame comes back as it went");
    true
}

#[test]
fn recorded_frames_come_back_as_they_went() {
    let frames = World::record();
    assert!(frames.len() > 20, "{}", frames.len());
    assert!(frames.iter().all(|frame| is_frame(frame)));
}
