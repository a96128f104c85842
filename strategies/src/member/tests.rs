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
mod frames;
mod group;
mod hand;
mod incarnations;
mod lists;
mod locking;
mod membership_state;
mod pitfalls;
mod rest;
pub(crate) mod silent;
mod time;
mod trio;
mod turn;
mod world;

use std::sync::Arc;

use gaggle_channels::Channel;

use self::world::World;
use super::{
    Member,
    backend::{Backend, Policy},
    group::Group,
    options::{MemberOptions, RunOptions},
    wire::{self, Body, Header, VERSION},
};
use crate::client::{Client, Driver};

const THREE: [&str; 3] = ["a", "b", "c"];
const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Members of these names, all ready.
fn ready(names: &[&str]) -> World {
    let mut world = World::new(names);
    world.run_until_ready();
    world
}

/// The last index of the log, and the greatest one committed.
fn ends_of_log(group: &Group) -> (u64, u64) {
    let view = group.view();
    (view.last.0, view.commit)
}

fn header(from: u64, to: u64, group: u128) -> Header<'static> {
    Header { version: VERSION, cluster: "test".into(), from, to, group }
}

fn frame(header: &Header<'_>, body: &Body) -> Vec<u8> {
    let mut frame = wire::encode(header);
    frame.extend(wire::encode(body));
    frame
}

/// A member with its driver, all of whose ids and jitter come from `seed`.
pub(crate) fn seeded(
    channel: Arc<dyn Channel>,
    options: MemberOptions,
    seed: u64,
) -> (Member, Driver<Backend>) {
    let run = RunOptions::new(seed);
    let backend = Backend::new(channel, &options, Policy::Queue, &run).expect("they are valid");
    Client::new(backend, options.clock, run.owner, Some(seed))
}
