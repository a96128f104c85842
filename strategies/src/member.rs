//! The consensus member that [`Raft`](crate::Raft) and [`Gaggle`](crate::Gaggle) share.
//!
//! ```text
//!   Member (handle)      checks, deadlines, outcomes; one message into the mailbox
//!     driver             the only one that awaits, reads the clock, touches the channel
//!       Node             sync: forming, peers, requests; frames and calls in, outputs out
//!         Group          sync: the `raft` engine, the volatile log, the lock table
//! ```
//!
//! **Invariants.** `Node` and `Group` are functions of what they are given: time and randomness
//! are arguments. A request is idempotent by its nonce and repeated until the log answers it; no
//! reply message exists where the log is the reply. A Raft id is one incarnation of one process,
//! and whoever leaves a group for any reason draws a fresh one.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod decoders;
mod driver;
mod entry;
mod formation;
mod group;
mod handle;
mod log_store;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod machine;
mod mailbox;
mod membership;
mod node;
mod options;
mod peers;
use crate::random;
mod requests;
#[cfg(test)]
mod tests;
mod transfers;
mod wire;
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "the tests use all of it"))]
pub(crate) mod world;

pub(crate) use self::handle::{Member, Policy};
pub use self::{
    handle::{MemberSizes, MemberStatus},
    options::{CLUSTER_NAME_BYTES_MAX, MEMBERS_MAX, MemberOptions, Members, Replicate},
};
