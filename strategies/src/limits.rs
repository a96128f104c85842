//! The limits of keys and options, the same for every strategy.

#[cfg(feature = "raft")]
pub use crate::member::CLUSTER_NAME_BYTES_MAX;
pub use crate::options::{
    DURATION_MAX, DURATION_MIN, KEY_BYTES_MAX, LABEL_BYTES_MAX, MAX_WAIT_MAX, REQUEST_TIMEOUT,
};

/// The most members of a cluster. More make no lock safer and every lock slower.
pub const MEMBERS_MAX: usize = 31;
