//! A plain strategy, sound or with one [`Fault`], to show that the suite can fail.
//!
//! [`Server`] is the granting side, a [`Local`](crate::Local) that can be stopped; [`Handle`] is a
//! process that uses it. Without a fault it passes every case; each fault changes one thing and
//! must be found.

mod handle;
mod operator;
mod server;

pub use self::{handle::Handle, server::Server};

macro_rules! faults {
    ($($(#[$what:meta])+ $name:ident,)+) => {
        /// A bug of a strategy. A real strategy has had each, or could have it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$what])+ $name,)+
        }

        impl Fault {
            /// All faults.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

faults! {
    /// Every lock is refused as held.
    NeverGrants,
    /// A contended lock is refused at once, as the original's Raft did.
    RefusesContended,
    /// The key is not looked at: one lock for all.
    OneLockForAll,
    /// Keys are compared without regard to case and surrounding space.
    FoldsKeys,
    /// An unlock with any nonce frees the key.
    UnlockIgnoresNonce,
    /// An unlock frees the key and wakes no waiter; waiters retry every 10 s.
    UnlockWakesNoWaiter,
    /// An unlock that finds nothing says success.
    UnlockAlwaysSucceeds,
    /// `release` (the guard's drop) does nothing.
    ReleaseDoesNothing,
    /// A `max_wait` of zero fails on a free key, as the original's Redis strategy did.
    ZeroWaitNeverTries,
    /// A refused attempt waits for a while first.
    TryWaits,
    /// A lease never ends.
    NeverExpires,
    /// A lease ends 5 s late, as in the original.
    ExpiresLate,
    /// A lease ends at half its time.
    ExpiresEarly,
    /// A lock of which nothing is left is returned.
    GrantsSpentLease,
    /// The holder counts its deadline from the reply instead of the request.
    DeadlineFromReply,
    /// `max_wait` is overrun by a retry's sleep.
    OverrunsMaxWait,
    /// The bounds of options and keys are not checked.
    ChecksNothing,
    /// An extend sets the end of the lease, also to an earlier one.
    ExtendShortens,
    /// An extend of a lost lock creates it again.
    ExtendCreates,
    /// An extend succeeds between the holder's deadline and the end of its lease.
    ExtendsPastDeadline,
    /// An extend by another nonce lengthens the holder's lease.
    ExtendIgnoresNonce,
    /// The holder's own client enters again.
    Reentrant,
    /// Every token is 1.
    ConstantTokens,
    /// A token is the time of its grant: two grants in one tick of the clock have one token.
    TokensFromClock,
    /// Tokens fall when a key has left the table.
    TokensPerTableRow,
    /// Tokens start again at 1 when the memory is lost.
    TokensRestart,
    /// Tokens start again at 1 under a new leader.
    TokensRestartWithLeader,
    /// The last waiter is served first.
    LastComeFirstServed,
    /// No order is promised, and the last waiter is always served first.
    Starves,
    /// A dropped waiter stays in the queue and is granted in its turn.
    GhostWaiters,
    /// A waiter dropped after its grant keeps the lock.
    GhostGrants,
    /// Every tenth grant lets a second waiter in as well.
    GrantsTwo,
    /// Free keys stay in the table.
    LeaksKeys,
    /// Calls hang while the server is down.
    HangsWhenDown,
    /// A server that is down is reported as a held key.
    DownIsHeld,
    /// A handle that has met a server that is down never tries again.
    NeverReconnects,
    /// Closing leaves the waiters waiting.
    CloseForgetsWaiters,
    /// Closing unlocks nothing.
    CloseUnlocksNothing,
    /// Closing leaves a task behind.
    CloseLeavesTask,
    /// `unlock_all` ends no wait.
    UnlockAllForgetsWaiters,
    /// `unlock_all` unlocks first, and ends the waits a moment later.
    UnlockAllGrantsEndedWaits,
    /// A listing shows no waiters.
    ListHidesWaiters,
    /// A force-unlock does not notify the holder.
    ForceIsSilent,
    /// A force-unlock with any token ends the grant.
    ForceIgnoresToken,
}
