//! [`KeyedMutex`]: one trait, several strategies, one contract.
//!
//! | strategy | exclusion comes from | waiters | survives |
//! |---|---|---|---|
//! | [`Local`] | a lock table in this process | FIFO | nothing |
//! | `Redis` | one Redis: a key with an expiry, and a queue | FIFO | any client's loss |
//! | `Raft` | a replicated log of compare-and-set entries | random retries | a minority's loss |
//! | `Gaggle` | a replicated log of LOCK, UNLOCK and NOOP entries | FIFO | a minority's loss |
//! | `Http` | the strategy of a `gaggle serve` | FIFO | what that strategy survives |
//! | [`Noop`] | nothing: it grants every request, to prove that checks can fail | none | – |
//!
//! # Layout
//!
//! - the root: the interface of all strategies, and the strategies.
//! - [`lock`], [`mod@error`], [`capabilities`], [`status`]: what locks, errors, guarantees and
//!   members are described by. [`clock`]: the time of a strategy.
//! - [`operator`]: listing and force-unlock.
//! - [`defaults`] and [`limits`] of options and keys.
//! - [`implement`]: for implementors: checks, the arithmetic of leases, the loss signal.
//! - [`lock_table`], `client`, `http`, `member`, `redis`: the parts of the strategies, for drivers. They may
//!   change in 0.x.
//! - `testing` (feature `testing`): the conformance suite, and broken strategies that prove it.
//!
//! Features, none of them on by default: `http` adds `Http`; `redis` adds `Redis`; `raft` adds `Raft` and `Gaggle`;
//! `testing` is for implementors' own tests.
//!
//! **Invariant:** only drivers touch a channel or a socket; they and handles await and read a
//! clock. `lock_table` and the member's core take events and time as arguments and return effects;
//! the same code runs in production, in tests and in simulation.

/// Adds one to a counter of the `metrics` facade; a no-op without that feature.
#[allow(unused_macros, reason = "`Local` alone counts nothing")]
macro_rules! count {
    ($name:literal $(, $label:literal => $value:expr)?) => {
        #[cfg(feature = "metrics")]
        metrics::counter!($name $(, $label => $value)?).increment(1)
    };
}

pub mod capabilities;
#[cfg(any(feature = "http", feature = "raft", feature = "redis"))]
pub mod client;
pub mod clock;
mod deadline;
pub mod defaults;
pub mod error;
mod fork;
#[cfg(feature = "raft")]
mod gaggle;
#[cfg(feature = "http")]
pub mod http;
pub mod implement;
pub mod limits;
mod local;
pub mod lock;
pub mod lock_table;
mod losses;
#[cfg(feature = "raft")]
pub mod member;
mod mutex;
mod noop;
pub mod operator;
mod options;
mod printable;
#[cfg(feature = "raft")]
mod raft;
#[cfg(any(feature = "http", feature = "raft", feature = "redis"))]
mod random;
#[cfg(feature = "redis")]
pub mod redis;
pub mod status;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "http")]
pub use crate::http::{Http, HttpOptions};
#[cfg(feature = "redis")]
pub use crate::redis::{Queue, Redis, RedisOptions};
pub use crate::{
    capabilities::Capabilities,
    deadline::Drift,
    error::Error,
    local::Local,
    lock::{Inspection, Lock},
    mutex::KeyedMutex,
    noop::Noop,
    options::{LockOptions, MaxWait},
};
#[cfg(feature = "raft")]
pub use crate::{gaggle::Gaggle, member::MemberOptions, raft::Raft};
