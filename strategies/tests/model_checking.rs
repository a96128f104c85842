#![allow(clippy::unwrap_used, clippy::disallowed_methods)]
//! Goal: no interleaving of leader changes, late and repeated messages, slow clocks, deaths and
//! expiry breaks the contract. Method: stateright visits every state.

#[path = "model_checking/mod.rs"]
mod model;

use std::time::Instant;

use gaggle_strategies::lock_table::Wait;
use model::{bounds::{Bounds, Fault}, cluster::Cluster};
use stateright::{Checker, HasDiscoveries, Model};

fn try_it(name: &str, bounds: Bounds, threads: usize) {
    let begun = Instant::now();
    let cluster = Cluster::new(bounds);
    let checker = cluster.clone().checker().threads(threads).timeout(std::time::Duration::from_secs(100)).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{name}: {} unique, {} states, depth {}, logs {}, seen {:b}, {:?}, done {}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), cluster.replays.len(), cluster.seen.load(std::sync::atomic::Ordering::Relaxed), begun.elapsed(), checker.is_done());
    for (name, path) in checker.discoveries() { println!("  {name}: {} steps\n{:?}", path.clone().into_actions().len(), path.clone().into_actions());
       println!("{:#?}", path.last_state().nodes); println!("{:?}", path.last_state().committed); println!("{:?} {:?}", path.last_state().clients, path.last_state().replayed.ledger); }
}

#[test]
#[ignore]
fn scratch() {
    let two = Bounds::clients(&[Wait::Forever, Wait::Ms(2000)]);
    let env = |name: &str, or: u8| std::env::var(name).map_or(or, |v| v.parse().unwrap());
    let mut b = two;
    if env("C", 2) == 3 { b.waits.push(Wait::Forever); }
    b.slots = env("SLOTS", 5); b.ticks = env("TICKS", 3); b.terms = env("TERMS", 2);
    b.lock_copies = env("LC", 1); b.unlock_copies = env("UC", 1); b.deaths = env("D", 0); b.extends = env("E", 0);
    b.writes = env("W", 0) > 0; b.slow_clocks = env("SLOW", 0) > 0; b.nonce_memory = env("NM", 200);
    try_it("scratch", b, env("T", 2).into());
}
