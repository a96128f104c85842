//! The member's promises, on whole clusters of real nodes in virtual time.
//!
//! Method: a [`World`](world::World) moves frames between nodes, drives ticks, and fires faults; no
//! task, clock or socket takes part. Each test is a sentence of the contract, or a pitfall of
//! the engine (docs/raft-group.md).

mod batches;
mod commits;
mod driver;
mod dropped;
mod forged;
mod forming;
mod group;
mod hand;
mod incarnations;
mod interleavings;
mod lists;
mod locking;
mod original;
mod pitfalls;
mod rest;
mod standing;
mod time;
mod turn;

use super::world;
