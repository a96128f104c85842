//! The Raft strategy.

use std::sync::Arc;

use gaggle_channels::Channel;

use crate::{
    client::Remote,
    error::Error,
    member::{Backend, Member, MemberOptions, Policy},
    status::MemberSizes,
};

/// The plain Raft strategy: the same group, member and table as [`Gaggle`](crate::Gaggle), but the
/// log holds compare-and-set entries. A caller that is refused retries with jitter until
/// `max_wait`.
///
/// # Guarantees
///
/// As [`Gaggle`](crate::Gaggle)'s, except that no order among waiters is promised.
///
/// # Options
///
/// [`MemberOptions`](crate::MemberOptions), as for [`Gaggle`](crate::Gaggle).
///
/// # Limits
///
/// As [`Gaggle`](crate::Gaggle)'s. Each retry is a log command: many waiters for one key load the
/// group, and one of them may be granted the key many times in a row.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use gaggle_channels::{Hub, NodeName};
/// use gaggle_strategies::{KeyedMutex, LockOptions, MemberOptions, Raft};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let name = NodeName::new("a")?; // a group of one: larger groups list every name
/// let channel = Arc::new(Hub::new().channel(name.clone()));
/// let raft = Raft::open(channel, MemberOptions::named("orders", [name])).await?;
/// let lock = raft.lock("orders/42", LockOptions::default()).await?;
/// raft.unlock(&lock).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Raft {
    member: Member,
}

impl Raft {
    /// Connects `channel` and begins to form or join the group, as
    /// [`Gaggle::open`](crate::Gaggle::open) does.
    ///
    /// # Errors
    ///
    /// As [`Gaggle::open`](crate::Gaggle::open).
    pub async fn open(channel: Arc<dyn Channel>, options: MemberOptions) -> Result<Self, Error> {
        Member::open(channel, options, Policy::CompareAndSet).await.map(|member| Self { member })
    }

    /// How much this member remembers: its table, its log, its pending requests.
    ///
    /// # Errors
    ///
    /// As [`Gaggle::sizes`](crate::Gaggle::sizes).
    pub fn sizes(&self) -> Result<MemberSizes, Error> {
        self.member.sizes()
    }
}

impl Remote for Raft {
    type Backend = Backend;

    fn client(&self) -> &Member {
        &self.member
    }
}
