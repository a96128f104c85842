//! The Raft strategy.

use crate::member::{Member, member_strategy};

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
/// As [`Gaggle`](crate::Gaggle)'s. Each retry is an entry in the log, so that many waiters for one
/// key load the group; one of them may be granted the key many times in a row.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use gaggle_channels::{Hub, NodeName};
/// # use gaggle_strategies::{KeyedMutex, LockOptions, MemberOptions, Raft};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let name = NodeName::new("a")?; // the one member of this group: others stand in the same list
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

member_strategy!(Raft, CompareAndSet);
