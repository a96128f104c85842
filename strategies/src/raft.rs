//! The Raft strategy.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use gaggle_channels::{Channel, NodeName};

use crate::{
    Capabilities, Clock, Error, Inspection, KeyedMutex, Lock, LockOptions, LossWatch,
    MemberOptions, MemberSizes, MemberStatus,
    member::{Member, Policy},
};

/// The plain Raft strategy: the same group, member and table as [`Gaggle`](crate::Gaggle), but the log holds
/// compare-and-set entries. A caller that is refused retries with jitter until `max_wait`.
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
    /// [`ready`](KeyedMutex::ready) tells when this member votes.
    ///
    /// The member is one task on the current runtime.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] naming the option; [`Error::Unavailable`] if the channel does not
    /// connect.
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

    /// The leader's name, as far as this member knows.
    #[must_use]
    pub fn leader(&self) -> Option<NodeName> {
        self.status().leader
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

#[async_trait]
impl KeyedMutex for Raft {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        self.member.lock(key, &options).await
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        self.member.unlock(lock).await
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        self.member.extend(lock, duration).await
    }

    /// Shows this member's own table, which may be behind the leader's.
    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        self.member.inspect(key).await
    }

    /// Completes once this member votes in a group that has a leader and is not in the middle of
    /// changing its members: what a rolling restart waits for before it goes on.
    async fn ready(&self) -> Result<(), Error> {
        self.member.ready().await
    }

    fn group_status(&self) -> Option<MemberStatus> {
        Some(self.status())
    }

    fn capabilities(&self) -> Capabilities {
        self.member.profile().capabilities
    }

    async fn close(&self) {
        self.member.close().await;
    }

    fn release(&self, lock: &Lock) {
        self.member.release(lock);
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.member.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.member.clock()
    }
}
