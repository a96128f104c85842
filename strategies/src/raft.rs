//! The Raft strategy.

use crate::member::{Member, member_strategy};

/// The plain Raft strategy: the same group, member and table as [`Gaggle`](crate::Gaggle), but the
/// log holds compare-and-set entries. A caller that is refused retries with jitter until
/// `max_wait`. [`Gaggle`](crate::Gaggle) has an example: this one is opened in the same way.
///
/// # Guarantees
///
/// As [`Gaggle`](crate::Gaggle)'s, except that no order among waiters is promised.
#[derive(Debug)]
pub struct Raft {
    member: Member,
}

member_strategy!(Raft, CompareAndSet);
