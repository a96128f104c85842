//! What a log entry holds, versioned.

use serde::{Deserialize, Serialize};

use super::wire::{VERSION, encode_onto};
use crate::lock_table::{ClusterTime, Command};

/// A command with the leader's stamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamped {
    pub(super) stamp: ClusterTime,
    pub(super) command: Command,
}

/// A change of members, by incarnation and name. It rides in the entry's context, so that members
/// rebuild the engine's own change from it and parse nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MemberChange {
    /// A fresh incarnation begins to learn the log.
    Learn { id: u64, name: String },
    /// A learner takes the vote of an old incarnation, in one joint change.
    Replace { old: u64, new: u64 },
    /// A learner that is gone is forgotten.
    Forget { id: u64 },
}

/// Why an entry cannot be applied. The member stops before applying it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EntryError {
    #[error("log entry of version {0}, this build knows {VERSION}: upgrade this member")]
    Version(u8),
    #[error("log entry does not decode")]
    Malformed,
}

/// Room for a LOCK with a short key, so that nearly every entry is written without growing.
const USUAL_BYTES: usize = 128;

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bytes.push(VERSION);
    encode_onto(&mut bytes, value);
    bytes
}

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, EntryError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|_| EntryError::Malformed),
        Some((&version, _)) => Err(EntryError::Version(version)),
        None => Err(EntryError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_an_unknown_version_is_refused_before_it_is_read() {
        let stamped = Stamped { stamp: ClusterTime(7), command: Command::Noop };
        let mut bytes = encode(&stamped);
        assert_eq!(decode::<Stamped>(&bytes), Ok(stamped));
        bytes[0] = 2;
        assert_eq!(decode::<Stamped>(&bytes), Err(EntryError::Version(2)));
    }
}
