//! Goal: within stated bounds, no order of leader changes, late, lost and repeated requests, slow
//! clocks, deaths and expiry breaks the contract (rules 1 to 6).
//!
//! Method: stateright visits every state of a model in which the lock table and the arithmetic of
//! deadlines are the library's own. The group is one log, which is what Raft provides and what the
//! simulator checks of it. Each search names the rare events that it must reach, and each bug
//! planted in the model is found by the properties that claim it.
//!
//! The plain `cargo test` runs one search. All run with `cargo test --release -p gaggle-strategies
//! --test model_checking -- --nocapture`, which shows their sizes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "model_checking/client.rs"]
mod client;
#[path = "model_checking/group.rs"]
mod group;
#[path = "model_checking/past.rs"]
mod past;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use gaggle_strategies::lock_table::{TableConfig, Wait};
use group::{Group, rules};
use past::seen;
use stateright::{Checker, HasDiscoveries, Model};

/// A tick of every clock, in milliseconds of the lock table.
const TICK_MS: u64 = 1000;
/// Every lease, in ticks.
const LEASE_TICKS: u64 = 2;
/// The most clients of any search.
const CLIENTS_MAX: usize = 3;
/// A wait as long as a lease: if it begins at the grant, it ends with the holder's lease.
const TWO_TICKS: Wait = Wait::Ms(2000);

/// A bug of the model: of the leader's clock, or of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A new leader stamps with its own clock, which does not continue from the last stamp.
    LeaderKeepsItsClock,
    /// A late copy of a LOCK carries the time of its delivery, not that of its sending.
    CopyCarriesFreshTime,
}

/// The bounds of one search. Within them it is exhaustive.
#[derive(Clone, Debug)]
struct Bounds {
    /// How long each client's LOCK queues; their number is the number of clients.
    waits: Vec<Wait>,
    /// Entries in the log.
    slots: usize,
    /// Ticks of real time.
    ticks: u8,
    /// How often one LOCK may be appended: a retry or a duplicate that comes late.
    lock_copies: u8,
    /// How many clients may die, at any moment.
    deaths: usize,
    /// How many clients may extend, once each.
    extends: usize,
    /// How long ended nonces are remembered, in ticks; the whole run by default.
    nonce_memory: u8,
    fault: Option<Fault>,
}

impl Bounds {
    fn clients(waits: &[Wait]) -> Self {
        Self {
            waits: waits.to_vec(),
            slots: 5,
            ticks: 3,
            lock_copies: 1,
            deaths: 0,
            extends: 0,
            nonce_memory: 200,
            fault: None,
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn table(&self) -> TableConfig {
        let nonce_memory_ms = u64::from(self.nonce_memory) * TICK_MS;
        TableConfig { nonce_memory_ms, ..TableConfig::default() }
    }
}

/// Visits every state, and asserts that no rule was broken, that there were `states` of them and
/// that `events` occurred. A changed number of states is no error of the library: the model, the
/// table's due times or the bounds changed; state the new number here and in the docs.
fn exhaust(name: &str, bounds: Bounds, states: usize, events: &[&'static str]) {
    let begun = Instant::now();
    let group = Group::new(bounds);
    let search = group.clone().checker().threads(2);
    let search = search.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{name}: {} unique states, {} steps, depth {}, {} logs, {:.1} s",
        search.unique_state_count(),
        search.state_count(),
        search.max_depth(),
        group.logs(),
        begun.elapsed().as_secs_f64(),
    );
    search.assert_properties();
    assert!(search.is_done(), "every state was visited");
    let seen = group.seen();
    let unseen: Vec<_> = events.iter().filter(|event| !seen.contains(*event)).collect();
    assert!(unseen.is_empty(), "{name} did not reach {unseen:?}");
    assert_eq!(search.unique_state_count(), states, "unique states of {name}");
}

/// Asserts that the search finds the planted bug by each of `rules`.
fn finds(fault: Fault, bounds: Bounds, rules: &[&'static str]) {
    for rule in rules {
        let stop = HasDiscoveries::AnyOf(BTreeSet::from([*rule]));
        let group = Group::new(Bounds { fault: Some(fault), ..bounds.clone() });
        let search = group.checker().threads(2).timeout(Duration::from_secs(300));
        let search = search.finish_when(stop).spawn_bfs().join();
        assert!(search.discovery(rule).is_some(), "{fault:?} breaks «{rule}»");
    }
}

/// Two clients, the second of which waits no longer than a lease; no repeats.
fn two_clients() -> Bounds {
    Bounds::clients(&[Wait::Forever, TWO_TICKS])
}

#[test]
#[cfg_attr(debug_assertions, ignore = "tens of seconds without --release")]
fn two_clients_keep_every_rule() {
    let bounds = Bounds { slots: 8, ticks: 6, ..two_clients() };
    let events = [
        seen::EXPIRED_WITH_WAITER,
        seen::WAITER_EXPIRED,
        seen::WAITER_WITHDRAWN,
        seen::GRANTED_BY_UNLOCK,
        seen::UNLOCK_BEFORE_LOCK,
        seen::HOLDER_GAVE_UP_FIRST,
        seen::LEADER_CLOCK_BEHIND,
    ];
    exhaust("two clients", bounds, 2_638_421, &events);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "tens of seconds without --release")]
fn retries_and_deaths_keep_every_rule() {
    let bounds = Bounds {
        slots: 8,
        ticks: 4,
        lock_copies: 2,
        deaths: 1,
        ..Bounds::clients(&[TWO_TICKS, TWO_TICKS])
    };
    let events = [
        seen::GRANT_REPEATED,
        seen::LATE_LOCK_REFUSED,
        seen::UNLOCK_BEFORE_LOCK,
        seen::WAITER_DROPPED,
        seen::EXPIRED_WITH_WAITER,
    ];
    exhaust("two clients, retry, death", bounds, 4_285_439, &events);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "tens of seconds without --release")]
fn three_clients_keep_every_rule() {
    let bounds = Bounds { slots: 7, ticks: 3, ..Bounds::clients(&[Wait::Forever; 3]) };
    exhaust(
        "three clients",
        bounds,
        4_008_212,
        &[seen::EXPIRED_WITH_WAITER, seen::GRANTED_BY_UNLOCK],
    );
}

#[test]
fn extends_keep_every_rule() {
    let bounds =
        Bounds { slots: 7, extends: 1, ..Bounds::clients(&[Wait::Forever, Wait::Forever]) };
    let events = [seen::EXTENDED, seen::EXTENDED_TOO_LATE];
    exhaust("extends", bounds, 327_584, &events);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "tens of seconds without --release")]
fn forgotten_nonces_keep_every_rule() {
    let bounds = Bounds {
        slots: 7,
        ticks: 4,
        lock_copies: 2,
        nonce_memory: 1,
        ..Bounds::clients(&[TWO_TICKS, TWO_TICKS])
    };
    let events = [seen::NONCE_FORGOTTEN, seen::STALE_REFUSED, seen::LATE_LOCK_REFUSED];
    exhaust("forgotten nonces", bounds, 6_013_377, &events);
}

#[test]
fn leader_that_keeps_its_own_clock_is_found() {
    finds(Fault::LeaderKeepsItsClock, two_clients(), &[rules::BELIEVER_HOLDS, rules::ONE_BELIEVER]);
}

#[test]
fn late_copy_with_a_fresh_time_is_found() {
    let bounds = Bounds { lock_copies: 2, nonce_memory: 1, ..Bounds::clients(&[TWO_TICKS]) };
    finds(Fault::CopyCarriesFreshTime, bounds, &[rules::WITHDRAWN, rules::ONE_GRANT]);
}
