//! The client side of a lock call, implemented once for every strategy that grants remotely. For
//! drivers; may change in 0.x.
//!
//! ```text
//!   Client (handle)      checks, generates the nonce, arms the drop guard, sends one message
//!     Turns              awaits; its task, or a thread that releases a lock, takes the turn
//!     Driver             reads the clock, takes one turn after another
//!       Core             pure: calls, events and time in; commands, replies and losses out
//!       Backend          the granting side: a store behind a connection, or a consensus member
//! ```
//!
//! **Invariants.** `Core` is a function of its inputs. A nonce names one request of one call: a
//! refused LOCK is retried under a fresh nonce. Each rule of the contract for the holder's side is
//! implemented here and nowhere else.

mod attempts;
pub(crate) mod backend;
pub(crate) mod busy_poll;
pub(crate) mod call;
pub(crate) mod cause;
pub(crate) mod command;
pub(crate) mod core;
pub(crate) mod delegate;
pub(crate) mod driver;
mod events;
pub(crate) mod handle;
mod held;
mod lock;
pub(crate) mod mailbox;
mod mutex;
mod operator;
pub(crate) mod pace;
mod pending;
mod request;
mod requests;
#[cfg(test)]
mod tests;
mod timers;
pub(crate) mod turns;

pub use self::{
    backend::{Backend, Failure},
    call::{CallId, Until},
    command::{Cause, Command, Copies, Event, Fate, Memory, Profile, Subject},
    driver::{Driver, SHORTEST_SLEEP},
    handle::Client,
};
