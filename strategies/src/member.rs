//! The consensus member that [`Raft`](crate::Raft) and [`Gaggle`](crate::Gaggle) share. For
//! drivers; may change in 0.x.
//!
//! ```text
//!   Member (handle)      the client core's handle: checks, deadlines, outcomes
//!     Backend            the granting side of the client core: channel, node, ticks
//!       Node             sync: forming, peers, membership; frames and commands in, events out
//!         Group          sync: the `raft` engine, the volatile log, the lock table
//! ```
//!
//! **Invariants.** `Node` and `Group` are functions of what they are given: time and randomness
//! are arguments. A request is idempotent by its nonce and repeated until the log has it; no
//! reply message exists where the log is the reply. A Raft id is one incarnation of one process: a
//! process that leaves a group, for any reason, generates a fresh one.

mod backend;
mod entry;
mod formation;
mod group;
mod handle;
mod identity;
mod log_store;
mod membership;
mod node;
mod options;
mod peers;
#[cfg(test)]
pub(crate) mod tests;
mod timers;
mod transfers;
mod wire;

pub(crate) use self::handle::Member;
pub use self::{
    backend::{Backend, Policy, State},
    group::{Group, GroupView, LogEntry},
    node::{Frame, NameInUse, Node},
    options::{MemberOptions, RunOptions},
};
