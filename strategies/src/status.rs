//! The status of a group, as a member knows it.

use std::sync::Arc;

use gaggle_channels::NodeName;

#[cfg(feature = "raft")]
use crate::lock_table::Sizes;

/// The status of a group as a member knows it: for operators and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// This member votes, in a group that has a leader and is not in the middle of changing its
    /// members: the next one may be restarted.
    pub ready: bool,
    /// The leader's name, as far as this member knows.
    pub leader: Option<NodeName>,
    /// Whether this member leads.
    pub leads: bool,
    /// The group's random id; a newly formed group has another.
    pub group: Option<u128>,
    /// The term.
    pub term: u64,
    /// The names of the group's members, sorted; a member that joins is among them. Empty without a
    /// group.
    pub members: Arc<[NodeName]>,
}

/// How much a member remembers.
#[cfg(feature = "raft")]
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
}
