//! The lock table: key -> holder, FIFO waiters, leases, tokens, nonces. The pure core.
//!
//! [`LockTable::apply`] is a function of the table, the cluster time and one [`Command`]; what
//! happened comes out as [`Effect`]s. No clock, no randomness, no I/O, and nothing in what it emits
//! depends on the order of a hash map: members that apply the same commands at the same stamps hold
//! byte-identical tables.
mod command;

pub use self::command::{
    Bound, ClusterTime, Command, Effect, Ended, Grant, LockRequest, ProcessId, Refusal, Seen, Wait,
};
