#![allow(clippy::unwrap_used, clippy::disallowed_methods)]
//! Goal: within stated bounds, no order of leader changes, late, lost and repeated messages, slow
//! clocks, deaths and expiry breaks the contract (rules 1 to 6).
//!
//! Method: stateright visits every state of a model in which the lock table and the arithmetic of
//! deadlines are the library's own, over an abstract Raft of three nodes. A green search is shown
//! to mean something in two ways: each names the rare things that it must have come upon, and
//! each bug planted in the model's layers is found by the properties that claim to.
//!
//! The plain `cargo test` runs the small searches; all run in release, with `cargo test --release
//! -p gaggle-strategies --test model_checking -- --nocapture --test-threads 1`.

#[path = "model_checking/mod.rs"]
mod model;

use std::{
    collections::BTreeSet,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use gaggle_strategies::lock_table::Wait;
use model::{
    account::seen,
    bounds::{Bounds, Fault},
    cluster::Cluster,
    properties as rules,
};
use stateright::{Checker, HasDiscoveries, Model};

/// As long as a lease: the wait of one who queues at the grant ends with the holder's lease.
const TWO_TICKS: Wait = Wait::Ms(2000);

/// Visits every state, and asserts that no rule was broken, that there were `states` of them and
/// that `events` occurred. A changed number of states is no error of the library: the model, the
/// table's due times or the bounds changed; state the new number here and in the docs.
fn exhaust(name: &str, bounds: Bounds, states: usize, events: u32) -> Cluster {
    let begun = Instant::now();
    let cluster = Cluster::new(bounds);
    let search = cluster.clone().checker().threads(2);
    let search = search.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{name}: {} unique states, {} steps, depth {}, {} committed logs, {:.1} s",
        search.unique_state_count(),
        search.state_count(),
        search.max_depth(),
        cluster.replays.len(),
        begun.elapsed().as_secs_f64(),
    );
    search.assert_properties();
    assert!(search.is_done(), "every state was visited");
    let unseen = events & !cluster.seen.load(Ordering::Relaxed);
    assert_eq!(unseen, 0, "{name} came upon every rare thing it names: missing bits {unseen:#b}");
    assert_eq!(search.unique_state_count(), states, "unique states of {name}");
    cluster
}

/// Asserts that the search finds the planted bug by each of `rules`.
fn finds(fault: Fault, bounds: Bounds, rules: &[&'static str]) {
    for rule in rules {
        let begun = Instant::now();
        let stop = HasDiscoveries::AnyOf(BTreeSet::from([*rule]));
        let search = Cluster::new(bounds.clone().with(fault)).checker().threads(2);
        let limit = Duration::from_secs(300);
        let search = search.timeout(limit).finish_when(stop).spawn_bfs().join();
        let found = search.discovery(rule);
        let steps = found.map(|path| path.into_actions().len());
        println!(
            "{fault:?}: {} steps to «{rule} fails», {} states, {:.2} s",
            steps.map_or_else(|| "no".into(), |steps| steps.to_string()),
            search.unique_state_count(),
            begun.elapsed().as_secs_f64(),
        );
        assert!(steps.is_some(), "{fault:?} breaks «{rule}»");
    }
}

/// Two clients, the second of which waits no longer than a lease; no repeats.
fn two_clients() -> Bounds {
    Bounds::clients(&[Wait::Forever, TWO_TICKS])
}

#[test]
fn small_search_of_two_clients_holds() {
    let bounds = Bounds { slots: 4, ticks: 2, ..two_clients() };
    exhaust("small", bounds, 85_701, seen::GRANTED_BY_UNLOCK | seen::UNLOCK_BEFORE_LOCK);
}

/// The reduction merges equivalent states, also those of clients that wait alike. It must not lose
/// any behaviour that clients can see.
#[test]
fn reduced_search_commits_the_same_logs() {
    let clients = Bounds::clients(&[TWO_TICKS, TWO_TICKS]);
    let reduced = Bounds { slots: 3, ticks: 1, ..clients };
    let full = Bounds { reduced: false, ..reduced.clone() };
    let reduced = exhaust("small, reduced", reduced, 4967, 0);
    let full = exhaust("small, full", full, 83526, 0);
    assert_eq!(reduced.replays.logs_by_any_name(), full.replays.logs_by_any_name());
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds in release, minutes without")]
fn two_clients_keep_every_rule() {
    let bounds = Bounds { slots: 7, ticks: 4, slow_clocks: true, ..two_clients() };
    let events = seen::GRANT_ACROSS_TERMS
        | seen::EXPIRED_WITH_WAITER
        | seen::WAITER_RAN_OUT
        | seen::WAITER_WITHDRAWN
        | seen::GRANTED_BY_UNLOCK
        | seen::UNLOCK_BEFORE_LOCK
        | seen::OLD_ENTRY_COMMITTED
        | seen::HOLDER_GAVE_UP_FIRST;
    exhaust("two clients", bounds, 2_232_306, events);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds in release, minutes without")]
fn two_clients_with_retries_and_deaths_keep_every_rule() {
    let bounds =
        Bounds { slots: 6, lock_copies: 2, deaths: 1, ..Bounds::clients(&[TWO_TICKS, TWO_TICKS]) };
    let events = seen::GRANT_ACROSS_TERMS
        | seen::GRANT_REPEATED
        | seen::LATE_LOCK_REFUSED
        | seen::UNLOCK_BEFORE_LOCK
        | seen::WAITER_GONE
        | seen::EXPIRED_WITH_WAITER;
    exhaust("two clients, retry, death", bounds, 4_991_102, events);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds in release, minutes without")]
fn three_clients_keep_every_rule() {
    let bounds = Bounds { slots: 7, ticks: 2, ..Bounds::clients(&[Wait::Forever; 3]) };
    let events = seen::GRANT_ACROSS_TERMS | seen::EXPIRED_WITH_WAITER | seen::GRANTED_BY_UNLOCK;
    exhaust("three clients", bounds, 3_245_427, events);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds in release, minutes without")]
fn three_terms_keep_every_rule() {
    let bounds = Bounds { slots: 5, terms: 3, ..Bounds::clients(&[TWO_TICKS, TWO_TICKS]) };
    let events = seen::TWO_LEADERS
        | seen::ENTRY_OVERWRITTEN
        | seen::OLD_ENTRY_COMMITTED
        | seen::GRANT_ACROSS_TERMS;
    exhaust("three terms", bounds, 2_504_505, events);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds in release, minutes without")]
fn extends_and_writes_keep_every_rule() {
    let bounds = Bounds {
        slots: 5,
        extends: 1,
        writes: true,
        ..Bounds::clients(&[Wait::Forever, Wait::Forever])
    };
    let events = seen::EXTENDED | seen::EXTENDED_TOO_LATE | seen::LATE_WRITE_REFUSED;
    exhaust("extends and writes", bounds, 2_856_082, events);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds in release, minutes without")]
fn forgotten_nonces_keep_every_rule() {
    let bounds = Bounds {
        slots: 5,
        lock_copies: 2,
        nonce_memory: 1,
        ..Bounds::clients(&[TWO_TICKS, TWO_TICKS])
    };
    let events = seen::NONCE_FORGOTTEN | seen::STALE_REFUSED | seen::LATE_LOCK_REFUSED;
    exhaust("forgotten nonces", bounds, 1_734_811, events);
}

#[test]
fn quorum_of_one_is_found() {
    let rules = [rules::COMMITTED, rules::LEADER_COMPLETE, rules::ONE_LEADER, rules::ONE_BELIEVER];
    finds(Fault::QuorumOfOne, Bounds { slots: 2, ticks: 0, ..two_clients() }, &rules);
}

#[test]
fn commit_of_an_old_term_by_count_is_found() {
    let rules = [rules::LEADER_COMPLETE, rules::COMMITTED];
    let bounds = Bounds { slots: 2, terms: 4, ticks: 0, ..two_clients() };
    finds(Fault::OldTermCommittedByCount, bounds, &rules);
}

#[test]
fn vote_for_a_log_behind_is_found() {
    let rules = [rules::LEADER_COMPLETE, rules::COMMITTED, rules::ONE_BELIEVER];
    finds(Fault::VoteForLogBehind, Bounds { slots: 3, ticks: 0, ..two_clients() }, &rules);
}

#[test]
fn second_vote_in_a_term_is_found() {
    let rules = [rules::ONE_LEADER];
    finds(Fault::SecondVote, Bounds { slots: 3, ticks: 0, ..two_clients() }, &rules);
}

#[test]
fn leader_clock_behind_the_log_is_found() {
    let rules = [rules::STAMPS, rules::BELIEVER_HOLDS];
    finds(Fault::ClockNotClamped, Bounds { slots: 3, ticks: 2, ..two_clients() }, &rules);
}

#[test]
fn deadline_from_the_reply_is_found() {
    let rules = [rules::BELIEVER_HOLDS, rules::ONE_BELIEVER];
    finds(Fault::DeadlineFromReply, Bounds { slots: 4, terms: 1, ..two_clients() }, &rules);
}

#[test]
fn deadline_without_drift_is_found() {
    let rules = [rules::BELIEVER_HOLDS, rules::ONE_BELIEVER];
    finds(Fault::DriftIgnored, Bounds { slots: 4, terms: 1, ..two_clients() }, &rules);
}

#[test]
fn reply_before_the_commit_is_found() {
    let rules = [rules::BELIEVER_HOLDS, rules::ONE_BELIEVER];
    finds(Fault::ReplyBeforeCommit, Bounds { slots: 3, ticks: 0, ..two_clients() }, &rules);
}

#[test]
fn late_copy_with_a_fresh_time_is_found() {
    let bounds = Bounds {
        slots: 5,
        terms: 1,
        lock_copies: 2,
        nonce_memory: 1,
        ..Bounds::clients(&[TWO_TICKS])
    };
    finds(Fault::CopyCarriesFreshTime, bounds, &[rules::WITHDRAWN, rules::ONE_GRANT]);
}

#[test]
fn resource_without_token_check_is_found() {
    let bounds = Bounds { slots: 4, terms: 1, ticks: 0, writes: true, ..two_clients() };
    finds(Fault::TokenNotChecked, bounds, &[rules::RESOURCE]);
}
