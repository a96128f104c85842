//! The Gaggle strategy.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use gaggle_channels::{Channel, NodeName};

use crate::{
    Capabilities, Clock, Error, Inspection, KeyedMutex, Lock, LockOptions, LossWatch,
    MemberOptions, MemberSizes, MemberStatus,
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
/// not see each other form several groups. [`capabilities`](KeyedMutex::capabilities) says so.
#[derive(Debug)]
pub struct Gaggle {
    member: Member,
}

impl Gaggle {
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
impl KeyedMutex for Gaggle {
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
