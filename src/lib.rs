//! A keyed mutex whose strategy you choose: in one process, on one Redis, or on a Raft group
//! embedded in your own processes.
//!
//! **What no lock can promise.** A valid guard does not stop a write that is already in flight: a
//! process may be paused between checking its lock and writing. Only a resource that checks the
//! [fencing token](Guard::fencing_token) stops it. Everything else here makes that rare, bounded
//! in time, and known to the holder. Nothing makes it impossible.
//!
//! # Quickstart
//!
//! ```
//! use std::time::Duration;
//! use gaggle::LockOptions;
//!
//! async fn write_order(token: u64) {
//!     println!("the database refuses a token below {token}");
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locker = gaggle::open("local:").await?;
//!
//! // Defaults: a lease of 10 s, after a wait of at most 5 s.
//! let guard = locker.lock("orders/42").await?;
//! write_order(guard.fencing_token()).await;
//! guard.unlock().await?;
//!
//! // Or as a critical section, dropped if its lock is lost.
//! let options = LockOptions::default().duration(Duration::from_secs(2));
//! locker
//!     .with_lock("orders/42", options, |section| async move {
//!         write_order(section.fencing_token()).await;
//!     })
//!     .await?;
//!
//! locker.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Which strategy
//!
//! - One process: [`Local`](strategies::Local), `local:`.
//! - You run a Redis, and a lock that is lost with Redis' memory is acceptable:
//!   [`Redis`](strategies::Redis), `redis://…`.
//! - The lock must survive the loss of a minority of your own processes:
//!   [`Gaggle`](strategies::Gaggle), `gaggle+tcp://…`, an embedded Raft group whose log holds the
//!   queue. [`Raft`](strategies::Raft) is the same group without the queue, for comparison.
//! - Programs that are no members of the group, or all those of one machine:
//!   [`Http`](strategies::Http), `http://…`, the client of a `gaggle serve`.
//!
//! [`open`] lists every URL; [`Locker::new`] wraps a strategy made by its own constructor, or your
//! own [`KeyedMutex`]. [`Capabilities`] describes the guarantees of a strategy as values.
//!
//! # What it is not
//!
//! - Not a substitute for `tokio::sync::Mutex`, which is faster within one process.
//! - Not reentrant: a second `lock` of the same key waits for the first, also in the same task.
//! - Not a lock without an end: every lease ends, by default after 10 s, unless it is
//!   [extended](Guard::extend), by hand or by [`auto_extend`](Acquire::auto_extend).
//! - Not durable: nothing is on disk. Tokens grow all the same.
//! - Not secret without the feature `tls`: members speak plain text.
//!
//! # Layout
//!
//! - [`Locker`], [`Acquire`], [`Guard`], [`SectionError`]: ergonomics over any strategy.
//! - [`open`], [`open_on_thread`], [`Url`]: from a URL to a strategy; the only module that names
//!   every implementation.
//! - `blocking` (feature `blocking`): the same locks for programs without tokio.
//! - [`strategies`]: the trait, its contract and the strategies. [`channels`]: frames between
//!   the members of a group.
//! - [`operator`]: listing and force-unlock, by [`Locker::operator`].
//!
//! Features: `redis` (default) adds the strategy and the channel of that name; `http` adds
//! [`Http`](strategies::Http); `raft` adds [`Gaggle`](strategies::Gaggle) and
//! [`Raft`](strategies::Raft); `tcp` adds their channel over TCP, and `raft`; `tls` adds TLS.
//! Without features there are [`Local`](strategies::Local) and [`Noop`](strategies::Noop), and none
//! of their dependencies. `metrics` counts grants, losses and connections for the crate `metrics`;
//! `blocking` adds the module of that name. The conformance suite is the feature `testing` of
//! `gaggle-strategies`. The command line is the package `gaggle-cli`.

mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod guard;
mod keepalive;
mod lease;
mod lock_all;
mod locker;
mod metrics;
mod open;
mod own_thread;
mod scope;
mod section;

pub use gaggle_channels as channels;
pub use gaggle_strategies::{
    self as strategies, Capabilities, Error, Inspection, KeyedMutex, Lock, LockOptions, MaxWait,
    capabilities::{Exclusion, Order, Survives},
    clock::{BootClock, Clock, Instant},
    error::{Contention, UnavailableKind},
    lock::{LossCause, Nonce, Owner},
    operator,
    status::MemberStatus,
};

pub use crate::{
    acquire::Acquire,
    guard::Guard,
    locker::Locker,
    open::{OpenError, Url, open, open_on_thread, parse_duration},
    section::{Section, SectionError},
};

/// The examples of the README and of the book are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/quick-start.md")]
    struct QuickStart;
    #[doc = include_str!("../docs/fencing-tokens.md")]
    struct FencingTokens;
    #[doc = include_str!("../docs/inspecting-locks.md")]
    struct InspectingLocks;
    #[cfg(feature = "http")]
    #[doc = include_str!("../docs/http-client.md")]
    struct HttpClient;
    #[doc = include_str!("../docs/recipes.md")]
    struct Recipes;
    #[doc = include_str!("../docs/writing-a-strategy.md")]
    struct WritingAStrategy;
}
