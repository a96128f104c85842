//! What a member shows of itself and its group.

use super::node::Status;
use crate::{MemberStatus, lock_table::Sizes};

impl From<&Status> for MemberStatus {
    fn from(status: &Status) -> Self {
        let Status { ready, leader, leads, group, term, .. } = status.clone();
        Self { ready, leader, leads, group, term }
    }
}

/// How much a member remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberSizes {
    /// The lock table's sizes.
    pub table: Sizes,
    /// Entries in the log.
    pub log: usize,
    /// Pending requests of this process.
    pub pending: usize,
    /// Frames dropped because they did not decode, were for another cluster or incarnation, or
    /// broke a rule.
    pub frames_dropped: u64,
    /// Messages of this member that were not sent because no frame has room for them; 0 unless there
    /// is a bug in this library.
    pub overlong: u64,
}
