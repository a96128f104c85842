//! The record of one lock.

use serde::{Deserialize, Serialize};

/// A lock and its unlock, in nanoseconds of [`now`](super::now).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockSample {
    /// The number of the task, unique over all processes.
    pub task: u32,
    /// Before the call of `lock`.
    pub lock_called_at: u64,
    /// After `lock` has returned.
    pub granted_at: u64,
    /// Before the call of `unlock`.
    pub unlock_called_at: u64,
    /// After `unlock` has returned.
    pub unlocked_at: u64,
    /// The fencing token, if the lock has one.
    pub token: Option<u64>,
}
