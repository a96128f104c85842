//! The Gaggle strategy.

use crate::member::{Member, member_strategy};

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
/// A nameless cluster ([`sized`](crate::MemberOptions::sized)) is for demonstrations: sets of
/// processes that do not see each other form several groups; see
/// [`capabilities`](crate::KeyedMutex::capabilities).
#[derive(Debug)]
pub struct Gaggle {
    member: Member,
}

member_strategy!(Gaggle, Queue);
