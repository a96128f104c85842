//! The models: the replies of one lock that does everything in one place, one step at a time.

mod fenced;
mod leased;
mod mutex;
mod queued;

use std::{fmt, hash::Hash, time::Duration};

use self::mutex::{Hold, Mutex};
pub(super) use self::{fenced::Fenced, leased::Leased, queued::Queued};

/// A lock as a state machine, for the search: it says which actions are possible in a state.
pub(super) trait Model {
    /// The state of one key.
    type State: Clone + Eq + Hash + Default + fmt::Debug;

    /// Which model this is.
    const KIND: ModelKind;

    /// Takes `action` at `at` or as soon after it as it can be taken: the state after it and the
    /// time at which it took effect, or `None` if it cannot be taken in this state.
    fn step(
        &self,
        state: &Self::State,
        action: &Action,
        at: Duration,
    ) -> Option<(Self::State, Duration)>;
}

/// Which model a history is checked against.
///
/// All three know the owner: only the nonce that holds is unlocked or extended. They differ in when
/// a hold may end without an unlock, and in the order of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelKind {
    /// **Expiry at any time**: a hold may end by itself at any moment, whatever its deadline. Only
    /// the tokens are checked: each grant has a greater one than all before, and a nonce has one.
    /// It trusts no clock: for runs with frozen clocks and drift beyond the bound, where the
    /// holder's deadline promises nothing, and for a Redis that lost its memory.
    Fenced,
    /// **Expiry from the deadline on**: a hold may end by itself, but not before its holder's
    /// deadline (contract, rule 2). A change of leader may delay the end without bound.
    ///
    /// Sound for a strategy while clock rates differ by no more than the drift that its deadlines
    /// allow for; for Redis also only while it keeps its memory and its wall clock is not stepped.
    Leased,
    /// [`Leased`](Self::Leased), and **first come, first served**: a waiter that was queued before
    /// another call's invocation is granted before it. Requests are delayed, so an invoked call is
    /// not yet queued. A LOCK counts as queued from its stamp
    /// [`Operation::queued`](super::Operation::queued), and never without one. Sound evidence is:
    ///
    /// - `Local`: the first poll of the call returned *pending*.
    /// - `Gaggle`: any member has applied the entry of this LOCK, and its table holds it as a
    ///   waiter.
    /// - `Redis` (with its queue): the script replied that the nonce has a place.
    /// - `Raft`, and Redis with `queue = none`: none; they promise no order. Not for them.
    ///
    /// A waiter whose process was silent for `waiter_ttl` has left the queue and, if it lives,
    /// queues again at the tail: stamp it again (the last stamp counts), or not at all. The order
    /// of the grants is that of the tokens.
    Queued,
}

impl ModelKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fenced, Self::Leased, Self::Queued];
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fenced => "a fenced lock",
            Self::Leased => "a lock with leases",
            Self::Queued => "a queue of leases",
        })
    }
}

/// A thing that happened, or may have, to a key. Acquisitions are numbered within the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A caller was granted.
    Grant {
        acquisition: u32,
        token: u64,
        /// Certainly until then, unless it is unlocked.
        until: Duration,
        /// The first invocation of a LOCK of this nonce.
        asked: Duration,
        /// When it was known to be in the queue.
        queued: Option<Duration>,
        /// From when on it may have ended by a call without a reply: an unlock, or a LOCK of the
        /// same nonce that failed and withdraws it.
        released: Option<Duration>,
        /// How many other actions must find it holding: it does not end before them.
        finds: u32,
        /// Whether more than one LOCK of this nonce may have taken effect.
        repeated: bool,
    },
    /// A LOCK without a grant took effect: later calls of its nonce find it holding.
    Ghost {
        acquisition: u32,
        /// The token, where a repetition was granted and showed it.
        token: Option<u64>,
        // The other fields mean the same in a grant.
        released: Option<Duration>,
        finds: u32,
        repeated: bool,
    },
    /// The nonce held and was unlocked.
    Unlock { acquisition: u32 },
    /// The nonce held and its lease was made longer, certainly until then.
    Extend { acquisition: u32, until: Duration },
    /// The nonce was seen not to hold.
    NotHolder { acquisition: u32 },
}
