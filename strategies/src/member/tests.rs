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
mod silent;
mod standing;
mod time;
mod turn;

use super::{
    wire::{self, Body, Header, VERSION},
    world::{self, World},
};

const THREE: [&str; 3] = ["a", "b", "c"];
const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Members of these names, all ready.
fn ready(names: &[&str]) -> World {
    let mut world = World::new(names);
    world.run_until_ready();
    world
}

fn header(from: u64, to: u64, group: u128) -> Header<'static> {
    Header { version: VERSION, cluster: "test".into(), from, to, group }
}

fn frame(header: &Header<'_>, body: &Body) -> Vec<u8> {
    let mut frame = wire::encode(header);
    frame.extend(wire::encode(body));
    frame
}
