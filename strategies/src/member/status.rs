//! What a member tells its users about itself and its group.

use gaggle_channels::NodeName;

use super::node::Status;
use crate::lock_table::Sizes;

/// What a member knows of its group: for operators and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// This member votes, in a group that has a leader and is not in the middle of changing its
    /// members: the next one may be restarted.
    pub ready: bool,
    /// The leader's name, as far as this member knows.
    pub leader: Option<NodeName>,
    /// Whether this member leads.
    pub leads: bool,
    /// The group's random id; a group that replaces a lost one has another.
    pub group: Option<u128>,
    /// The term.
    pub term: u64,
}

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
