//! Servers of claims over a simulated group, and HTTP clients, in virtual time.
//!
//! Each node runs the routes of `gaggle serve` over a member, and each client process the strategy
//! [`Http`](gaggle_strategies::Http) with users. Streams are in memory: they are delayed, held up and
//! cut. Nodes die, close and start again, members are isolated, and clients die.
//!
//! The server needs the tasks and timers of tokio, so these runs have a runtime of one thread with
//! paused time. A seed decides the plan and all identifiers.
//!
//! - `plan`: the sizes and faults of a run. `world`: starts, faults and the end of a run.
//! - `clock`, `channel`, `stream`: virtual time and the network. `node`: a server with its member.
//! - `user`: the work of a client. `beliefs`: what must hold of its locks.

mod beliefs;
mod channel;
mod clock;
mod node;
mod plan;
mod stream;
mod user;
mod world;

pub use self::world::simulate_claims;

/// A batch must have injected each of these faults.
pub(super) const FAULTS: [&str; 10] = [
    "node killed",
    "node closed",
    "member isolated",
    "client died",
    "connection cut",
    "connection refused",
    "segment held up",
    "call cancelled",
    "lock left to its lease",
    "lock force-unlocked",
];

/// A batch must have reached each of these events.
pub(super) const SOMETIMES: [&str; 6] = [
    "lock waited for",
    "lock extended",
    "lock unlocked",
    "lock found lost",
    "outcome unknown",
    "call at another node",
];
