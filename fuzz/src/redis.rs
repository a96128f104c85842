//! The Redis strategy without a Redis: its scripts, as they ship, over a key space of a few hundred
//! lines, and a client that sends what the strategy's client sends.
//!
//! - `keyspace`: strings, sorted sets and hashes with expiries, and the commands that the scripts
//!   use; time is virtual.
//! - `server`: runs the scripts in Lua 5.1, as Redis does, and carries what they publish.
//! - `client`: a [`KeyedMutex`](gaggle_strategies::KeyedMutex) with the arguments, the waits and the
//!   withdrawals of the strategy; no connection, so nothing of what fails with one.

mod client;
mod keyspace;
mod server;

pub use self::{client::Scripted, server::Server};
