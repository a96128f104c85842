//! Every decoder of the member, fed with bytes: what decodes must come back as it is.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use super::{
    entry::{self, MemberChange, Stamped},
    group::restore_state,
    wire::{self, RaftMessage},
};

/// Feeds every decoder. Returns how many took the bytes.
pub(crate) fn feed(bytes: &[u8]) -> u32 {
    frame(bytes)
        + log_entry::<Stamped>(bytes)
        + log_entry::<MemberChange>(bytes)
        + message(bytes)
        + u32::from(restore_state(bytes))
}

fn frame(bytes: &[u8]) -> u32 {
    let Ok((header, bodies)) = wire::decode(bytes) else { return 0 };
    let mut again = wire::encode_header(&header);
    for body in &bodies {
        again.extend(wire::encode_body(body));
    }
    assert_eq!(wire::decode(&again), Ok((header, bodies)), "a frame comes back as it went");
    1
}

fn log_entry<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> u32 {
    let Ok(value) = entry::decode::<T>(bytes) else { return 0 };
    let again = entry::encode(&value);
    assert_eq!(entry::decode::<T>(&again), Ok(value), "an entry comes back as it went");
    1
}

fn message(bytes: &[u8]) -> u32 {
    let Ok(message) = postcard::from_bytes::<RaftMessage>(bytes) else { return 0 };
    let again = postcard::to_allocvec(&message).expect("a message serialises");
    assert_eq!(postcard::from_bytes(&again), Ok(message.clone()), "it comes back as it went");
    let mirrored = RaftMessage::of(message.clone().into_message());
    // The engine's message has a snapshot or has none; an empty one is none.
    let mirrored = mirrored.expect("its kind travels");
    assert_eq!(mirrored.to, message.to);
    assert_eq!(mirrored, message, "the engine's message says the same");
    1
}
