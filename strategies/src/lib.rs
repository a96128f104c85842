//! [`KeyedMutex`]: one trait, several strategies, one contract.
//!
//! | strategy | exclusion comes from | waiters | survives |
//! |---|---|---|---|
//! | [`Local`] | a lock table in this process | FIFO | nothing |
//! | [`Redis`] | one Redis: `SET NX PX` and a queue in scripts | FIFO | any client; not Redis |
//! | [`Raft`] | a replicated log of compare-and-set entries | retry with jitter | loss of less than half |
//! | [`Gaggle`] | a replicated log of LOCK, UNLOCK and NOOP entries by nonce | FIFO | loss of less than half |
//! | [`Noop`] | nothing: it grants everybody, to prove that checks can fail | none | – |
//!
//! # Layout
//!
//! - `mutex`, `lock`, `options`, `error`, `capabilities`: what a user and an implementor see.
//! - `clock`, `deadline`, `wait`, `holds`: local time, the arithmetic of leases and waits, and the
//!   loss signal.
//! - `spin`: when to stay awake for an answer.
//! - `sync`: the mutex of what threads share, which tests can put in order.
//! - `lock_table`: the pure core. A command and the cluster time in, effects out.
//! - `member`: the consensus member, a pure core around the `raft` engine and one async driver.
//! - `local`, `redis`, `gaggle` (with `Raft`), `noop`: the strategies.
//! - `testing` (feature `testing`): the conformance suite, and broken strategies that prove it.
//!
//! **Invariant:** only drivers touch a channel or a socket; they and handles await and read a clock. `lock_table`
//! and the member's core take events and time as arguments and return effects; the same code runs
//! in production, in tests and in simulation.

mod capabilities;
#[allow(dead_code, reason = "strategies move onto it one by one")]
mod client;
mod clock;
mod deadline;
mod error;
mod gaggle;
mod holds;
mod local;
mod lock;
pub mod lock_table;
mod member;
mod mutex;
mod noop;
mod options;
#[cfg_attr(not(feature = "planted-bugs"), doc(hidden))]
pub mod planted;
mod random;
mod redis;
mod spin;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timeline;
mod wait;

pub use crate::{
    capabilities::{Capabilities, Exclusion, Order, Survives},
    clock::{BootClock, Clock, Instant, TokioClock},
    deadline::{Drift, extended, extended_deadline, gone, granted_deadline},
    error::Error,
    gaggle::{Gaggle, Raft},
    holds::{Holds, LossWatch},
    local::{Local, LocalOptions},
    lock::{Inspection, Lock, Nonce, Owner},
    member::{
        CLUSTER_NAME_BYTES_MAX, MEMBERS_MAX, MemberOptions, MemberSizes, MemberStatus, Members,
        Replicate,
    },
    mutex::KeyedMutex,
    noop::Noop,
    options::{
        DURATION_MAX, DURATION_MIN, KEY_BYTES_MAX, LABEL_BYTES_MAX, LockOptions, MAX_WAIT_MAX,
        MaxWait, REQUEST_TIMEOUT, check_duration, check_key, check_request,
    },
    redis::{BUCKETS, Queue, Redis, RedisOptions},
    wait::{found_deadline, lasts, refusal, wait_until, whole_ms},
};
