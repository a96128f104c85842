//! Bugs that can be planted, one at a time, so that every layer of tests can be seen to fail.
//!
//! Only test runs enable the feature `planted-bugs`; without it `planted!` is `false`.
//! The environment variable `GAGGLE_BUG` names the bug of the process.

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
    /// A member that installs a snapshot marks all its locks lost.
    SnapshotLosesHeld = "snapshot-loses-held",
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
