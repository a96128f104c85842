//! The status of a group, as a member knows it.

use gaggle_channels::NodeName;

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
}
