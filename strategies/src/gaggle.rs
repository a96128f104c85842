//! The Gaggle strategy.

use std::sync::Arc;

use gaggle_channels::Channel;

use crate::{
    Error, MemberOptions, MemberSizes, MemberStatus,
    client::delegate::delegate_keyed_mutex,
    member::{Member, Policy},
};

/// The Gaggle strategy: an embedded Raft group whose log holds LOCK, UNLOCK and NOOP entries by
/// nonce. Waiters queue in the replicated table, and the entry that frees a key also hands it to
/// the next (gaggle-js, *The Gaggle Algorithm*).
///
/// # Guarantees
///
/// - At most one live lease per key, always, while clock rates differ by no more than the drift
///   bound; fencing tokens grow across expiry, leader change, snapshot, restart and re-forming.
/// - Waiters are granted in the order in which they queued, also across a change of leader.
/// - Loss of less than half of the members (3 − 1, 5 − 2) leaves the locks in place. A member that
///   restarts replaces its former self without anyone's help.
/// - Volatile: no disk. When fresh incarnations show that a majority is gone, the survivors mark
///   their locks lost, and all form a new group with an empty table and greater tokens.
/// - Calls made before a leader exists wait within `max_wait`.
///
/// A nameless cluster ([`MemberOptions::sized`]) is for demonstrations: sets of processes that do
/// not see each other form several groups; see
/// [`capabilities`](crate::KeyedMutex::capabilities).
#[derive(Debug)]
pub struct Gaggle {
    member: Member,
}

impl Gaggle {
    /// Connects `channel`, whose name is this member's, and begins to form or join the group.
    /// Returns at once; calls wait for a leader within their `max_wait`, and
    /// [`ready`](crate::KeyedMutex::ready) returns once it votes.
    ///
    /// The member is one task on the current runtime.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] naming the option; [`Error::Unavailable`] if the channel does not
    /// connect, and outside a tokio runtime.
    pub async fn open(channel: Arc<dyn Channel>, options: MemberOptions) -> Result<Self, Error> {
        Ok(Self { member: Member::open(channel, options, Policy::Queue).await? })
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of(member: Member) -> Self {
        Self { member }
    }

    /// What this member knows of its group now.
    #[must_use]
    pub fn status(&self) -> MemberStatus {
        self.member.member_status()
    }

    /// How much this member remembers: its table, its log, its pending requests.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Failed`], [`Error::Limit`], [`Error::Unavailable`].
    pub async fn sizes(&self) -> Result<MemberSizes, Error> {
        self.member.sizes().await
    }
}

delegate_keyed_mutex!(Gaggle, member);
