//! [`KeyedMutex`]: one trait, several strategies, one contract.
//!
//! | strategy | exclusion comes from | waiters | survives |
//! |---|---|---|---|
//! | [`Local`] | a lock table in this process | FIFO | nothing |
//! | [`Redis`] | one Redis: `SET NX PX` and a queue in scripts | FIFO | any client's loss |
//! | [`Raft`] | a replicated log of compare-and-set entries | random retries | a minority's loss |
//! | [`Gaggle`] | a replicated log of LOCK, UNLOCK and NOOP entries | FIFO | a minority's loss |
//! | [`Noop`] | nothing: it grants every request, to prove that checks can fail | none | – |
//!
//! # Layout
//!
//! - the root: the interface of all strategies, and the strategies.
//! - [`limits`]: the limits of options and keys.
//! - [`implement`]: for implementors: the checks, the arithmetic of leases, and the loss signal.
//! - `testing` (feature `testing`): the conformance suite, and broken strategies that prove it.
//!
//! Features, none of them on by default: `redis` adds `Redis`; `raft` adds `Raft` and `Gaggle`;
//! `testing` is for implementors' own tests and opens the lock table; `simulator` adds the
//! simulator, which builds Lua and so needs a C compiler.
//!
//! **Invariant:** only drivers touch a channel or a socket; they and handles await and read a
//! clock. `lock_table` and the member's core take events and time as arguments and return effects;
//! the same code runs in production, in tests and in simulation.

/// Whether this process runs with this [`Bug`](planted::Bug).
#[cfg(feature = "planted-bugs")]
macro_rules! planted {
    ($bug:ident) => {
        crate::planted::planted(crate::planted::Bug::$bug)
    };
}
#[cfg(not(feature = "planted-bugs"))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

/// Adds one to a counter of the `metrics` facade; without that feature nothing.
#[allow(unused_macros, reason = "`Local` alone counts nothing")]
macro_rules! count {
    ($name:literal $(, $label:literal => $value:expr)?) => {
        #[cfg(feature = "metrics")]
        metrics::counter!($name $(, $label => $value)?).increment(1)
    };
}

mod capabilities;
#[cfg(any(feature = "raft", feature = "redis"))]
#[cfg_attr(
    not(all(feature = "raft", feature = "redis")),
    allow(dead_code, reason = "each backend uses a part of it")
)]
mod client;
mod clock;
mod deadline;
mod error;
#[cfg(feature = "raft")]
mod gaggle;
mod holds;
pub mod implement;
pub mod limits;
mod local;
mod lock;
#[cfg(feature = "testing")]
pub mod lock_table;
#[cfg(not(feature = "testing"))]
#[allow(unreachable_pub, unused_imports, reason = "it is public with `testing`")]
#[cfg_attr(not(feature = "raft"), allow(dead_code, reason = "some of it is for members"))]
mod lock_table;
mod max_wait;
#[cfg(feature = "raft")]
#[cfg_attr(
    all(feature = "testing", not(feature = "simulator")),
    allow(dead_code, reason = "the simulator looks inside")
)]
mod member;
mod mutex;
mod noop;
mod operator;
mod options;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod prose;
#[cfg(feature = "raft")]
mod raft;
#[cfg(any(feature = "raft", feature = "redis"))]
mod random;
#[cfg(feature = "redis")]
mod redis;
mod status;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wait;

// The strategies here implement the trait as any other does.
use crate::{implement::*, limits::*};

/// Texts of the packages above.
#[doc(hidden)]
pub use crate::prose::in_prose;
#[cfg(feature = "redis")]
pub use crate::redis::{Queue, Redis, RedisOptions};
pub use crate::{
    capabilities::{Capabilities, Exclusion, Order, Survives},
    clock::{BootClock, Clock, Instant, TokioClock},
    deadline::Drift,
    error::{Contention, Error, UnavailableKind},
    holds::LossCause,
    local::Local,
    lock::{Inspection, Lock, Nonce, Owner},
    max_wait::MaxWait,
    mutex::KeyedMutex,
    noop::Noop,
    operator::{Cursor, Entry, ForcedUnlock, ListOptions, Operator, Page},
    options::LockOptions,
    status::MemberStatus,
};
#[cfg(feature = "raft")]
pub use crate::{
    gaggle::Gaggle,
    member::{MemberOptions, MemberSizes, Members},
    raft::Raft,
};
