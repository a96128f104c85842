//! The Raft strategy.

use std::sync::Arc;

use gaggle_channels::Channel;

use crate::{
    Error, MemberOptions, MemberSizes, MemberStatus,
    client::delegate::delegate_keyed_mutex,
    member::{Member, Policy},
};

/// The plain Raft strategy: the same group, member and table as [`Gaggle`](crate::Gaggle), but the
/// log holds compare-and-set entries. A caller that is refused retries with jitter until
/// `max_wait`.
///
/// # Guarantees
///
/// As [`Gaggle`](crate::Gaggle)'s, except that no order among waiters is promised.
#[derive(Debug)]
pub struct Raft {
    member: Member,
}

impl Raft {
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
        Ok(Self { member: Member::open(channel, options, Policy::CompareAndSet).await? })
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

delegate_keyed_mutex!(Raft, member);
