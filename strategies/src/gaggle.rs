//! The Gaggle strategy.

use std::sync::Arc;

use gaggle_channels::Channel;

use crate::{
    client::Remote,
    error::Error,
    member::{Backend, Member, MemberOptions, Policy},
    status::MemberSizes,
};

/// The Gaggle strategy: an embedded Raft group whose log holds LOCK, UNLOCK, EXTEND and NOOP
/// commands. Waiters queue in the replicated table, and the entry that frees a key also grants it
/// to the next waiter (gaggle-js, *The Gaggle Algorithm*).
///
/// # Guarantees
///
/// - At most one live lease per key, always, while clock rates differ by at most the drift bound.
///   Fencing tokens grow across expiry, leader change, snapshot, restart and re-forming.
/// - Waiters are granted in the order in which they queued, also across a change of leader.
/// - Loss of less than half of the members (3 − 1, 5 − 2) leaves the locks in place. A member that
///   restarts replaces its old incarnation automatically.
/// - Volatile: no disk. Fresh incarnations show when a majority has restarted. The survivors then
///   mark their locks lost, and all form a new group with an empty table and greater tokens.
/// - Calls made before a leader exists wait within `max_wait`.
///
/// # Options
///
/// [`MemberOptions`](crate::MemberOptions) lists them with their defaults and limits. The cluster's
/// name and the names of all members are required, and are the same at each member.
///
/// # Limits
///
/// A group has 31 members at most. One name is run by one process at a time. A majority must run
/// and be connected: without it no lock is granted, and holders lose theirs with their leases.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use gaggle_channels::{Hub, NodeName};
/// use gaggle_strategies::{Gaggle, KeyedMutex, LockOptions, MemberOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let name = NodeName::new("a")?; // a group of one: larger groups list every name
/// let channel = Arc::new(Hub::new().channel(name.clone()));
/// let gaggle = Gaggle::open(channel, MemberOptions::named("orders", [name])).await?;
/// let lock = gaggle.lock("orders/42", LockOptions::default()).await?;
/// gaggle.unlock(&lock).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gaggle {
    member: Member,
}

impl Gaggle {
    /// Connects `channel`, whose name is this member's, and begins to form or join the group.
    /// Returns at once; calls wait for a leader within their `max_wait`, and
    /// [`ready`](crate::KeyedMutex::ready) returns once this member votes.
    ///
    /// The member is one task on the current runtime.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] naming the option; [`Error::Unavailable`] if the channel does not
    /// connect, and outside a tokio runtime.
    pub async fn open(channel: Arc<dyn Channel>, options: MemberOptions) -> Result<Self, Error> {
        Member::open(channel, options, Policy::Queue).await.map(|member| Self { member })
    }

    /// How much this member remembers: its table, its log, its pending requests.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Failed`].
    pub fn sizes(&self) -> Result<MemberSizes, Error> {
        self.member.sizes()
    }
}

impl Remote for Gaggle {
    type Backend = Backend;

    fn client(&self) -> &Member {
        &self.member
    }
}
