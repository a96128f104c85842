//! The client side of a lock call, implemented once for every strategy that grants remotely. For
//! drivers and backends; may change in 0.x.
//!
//! ```text
//!   Client (handle)      checks, generates the nonce, arms the drop guard, sends one message
//!     Turns              awaits; its task, or a thread that releases a lock, takes the turn
//!     Driver             reads the clock, takes one turn after another
//!       Core             pure: calls, events and time in; commands, replies and losses out
//!       Backend          the granting side: a store behind a connection, or a consensus member
//! ```
//!
//! A type with a [`Client`] becomes a strategy by [`Remote`]; a `Client` is one itself:
//!
//! ```ignore
//! let (client, driver) = Client::new(backend, clock, Owner::this_process(None), None);
//! tokio::spawn(client.run(driver));
//! let locker = gaggle::Locker::new(client);
//! ```
//!
//! **Invariants.** `Core` is a function of its inputs. A nonce names one request of one call: a
//! refused LOCK is retried under a fresh nonce. Each rule of the contract for the holder's side is
//! implemented here and nowhere else.

pub(crate) mod backend;
pub(crate) mod backoff;
pub(crate) mod busy_poll;
pub(crate) mod calls;
pub(crate) mod commands;
mod core;
mod driver;
mod handle;
pub(crate) mod mailbox;
#[cfg(any(feature = "http", feature = "redis"))]
pub(crate) mod reconnect;
mod remote;
#[cfg(test)]
mod tests;
mod turns;

#[cfg(feature = "redis")]
pub(crate) use self::core::earlier;
pub(crate) use self::handle::check_runtime;
pub use self::{
    backend::{Backend, Cause, Failure, Profile},
    calls::{Call, CallId, LockCall, Output, Query, Reply, RequestId, Until},
    commands::{Command, Copies, Event, Fate, ServerState},
    core::{Core, Delivery},
    driver::{Driver, SHORTEST_SLEEP},
    handle::Client,
    remote::Remote,
};
