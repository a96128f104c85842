//! Bugs that can be planted, one at a time, so that every layer of tests can be seen to fail.
//!
//! Only test runs enable the feature `planted-bugs`; without it `planted!` is `false`.
//! The environment variable `GAGGLE_BUG` names the bug of the process, and `GAGGLE_SCRIPTS` a
//! folder whose scripts for Redis replace the shipped ones.

macro_rules! bugs {
    ($($(#[doc = $what:literal])+ $bug:ident = $name:literal,)+) => {
        /// A plausible bug, which some layer must find.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $what])+ $bug,)+
        }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Self] = &[$(Self::$bug),+];

            /// Its name in `GAGGLE_BUG`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    /// A repeated LOCK is granted once more, under a new token.
    GrantedTwice = "granted-twice",
    /// Cluster time follows every stamp, and a new leader stamps with its own clock.
    ClusterTimeFalls = "cluster-time-falls",
    /// An UNLOCK frees the key of any holder.
    UnlockByAnyone = "unlock-by-anyone",
    /// An unlock frees the key and forgets the waiters.
    NoHandOff = "no-hand-off",
    /// Tokens begin again when no key is held.
    TokenReset = "token-reset",
    /// Leases never end.
    ExpiryIgnored = "expiry-ignored",
    /// A waiter past its deadline is granted all the same.
    DeadWaiterGranted = "dead-waiter-granted",
    /// Every founder counts itself alone as the majority.
    QuorumOfOne = "quorum-of-one",
    /// A restarted process comes back as the incarnation it was, without its log and its vote.
    IncarnationReused = "incarnation-reused",
    /// A process that leaves its group keeps its incarnation.
    IncarnationKept = "incarnation-kept",
    /// A snapshot leaves out the waiters.
    SnapshotWithoutQueue = "snapshot-without-queue",
    /// A leader replies before the entry is committed.
    ReplyBeforeCommit = "reply-before-commit",
    /// A LOCK is accepted however old it is.
    StaleLockAccepted = "stale-lock-accepted",
    /// The script unlocks without comparing the nonce: GET and DEL.
    RedisUnlockByAnyone = "redis-unlock-by-anyone",
    /// A server that does not know a script is not taught it.
    NoScriptFallback = "no-script-fallback",
    /// A connection that comes back is not subscribed again.
    SubscriptionLost = "subscription-lost",
    /// Of two replies that arrive one after the other each is credited to the other's request.
    ReplyMiscredited = "reply-miscredited",
    /// Waiters are never checked, so that a lost publication is never noticed.
    CheckSkipped = "check-skipped",
    /// A dropped call leaves its waiter in the queue.
    CancelLeavesWaiter = "cancel-leaves-waiter",
    /// A call that ends while there is no connection is not withdrawn.
    WithdrawalForgotten = "withdrawal-forgotten",
    /// The holder counts its lease from when the reply came.
    DeadlineFromReply = "deadline-from-reply",
    /// Effects come in the order of a hash map.
    HashOrder = "hash-order",
    /// A heartbeat reaches the engine whatever it claims to be committed.
    HeartbeatUnchecked = "heartbeat-unchecked",
    /// A member's refusal of a vote or of entries arrives as its consent.
    RefusalLost = "refusal-lost",
    /// A member that installs a snapshot marks all its locks lost.
    SnapshotLosesHeld = "snapshot-loses-held",
    /// A new group does not wait for leases that are held outside the members.
    OutsideIgnored = "outside-ignored",
    /// A follower of three commits entries of an earlier term as soon as it has them.
    EarlierTermCommitted = "earlier-term-committed",
    /// A leader stamps cluster time only while a key has waiters.
    StampsForWaitersOnly = "stamps-for-waiters-only",
    /// A new group waits for leases of an earlier one without the drift of clocks. It costs no
    /// exclusion, because each holder subtracts the drift from its deadline as well.
    NewGroupWithoutDrift = "new-group-without-drift",
    /// A process pledges to a new group while it rests after leaving one.
    PledgeWhileResting = "pledge-while-resting",
}

/// The bug of this process, if there is one.
///
/// # Errors
///
/// A text that names the known bugs, where `GAGGLE_BUG` names another. A program shows it once, at
/// its start; the library panics wherever a bug could be.
pub fn chosen() -> Result<Option<Bug>, String> {
    let Some(name) = std::env::var_os("GAGGLE_BUG") else { return Ok(None) };
    let name = name.to_string_lossy();
    let found = Bug::ALL.iter().find(|bug| bug.name() == name);
    found.copied().map(Some).ok_or_else(|| {
        let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        format!("GAGGLE_BUG={name}: there is no such bug; there are {}", names.join(", "))
    })
}

/// Whether this process runs with `bug`.
pub(crate) fn planted(bug: Bug) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| chosen().unwrap_or_else(|error| panic!("{error}"))) == Some(bug)
}

/// The text of a file of scripts for Redis in the folder `GAGGLE_SCRIPTS`, if that is set.
#[cfg(feature = "redis")]
pub(crate) fn script(file: &str) -> Option<String> {
    let folder = std::env::var_os("GAGGLE_SCRIPTS")?;
    let path = std::path::Path::new(&folder).join(file);
    Some(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}")))
}
