//! Shows that every check of the other scenarios fails on a planted violation.

use std::{panic::AssertUnwindSafe, time::Duration};

use gaggle_fixtures::RedisServer;
use gaggle_lab::history::{ModelKind, Rule};

use super::redis::{connect, residue};
use crate::{
    Plan,
    crew::{Crew, LEASE, Memory, Post},
    mutex_log::MutexLog,
    network::Network,
    protocol::{Event, Outcome, Resource},
    signals::{self, Signal},
    store::Trap,
    tally::Tally,
    worker::now,
};

pub(crate) fn checkers_fail(_: &mut Plan) -> Tally {
    refused_holder_is_found_unless_a_group_forms();
    stray_key_is_residue();
    silent_cut_has_dropped_nothing();
    kill_that_was_none_is_noticed();
    stopped_holder_is_no_progress_and_no_free_key();
    crew_without_a_lock_is_found_out();
    Tally::default()
}

fn refused_holder_is_found_unless_a_group_forms() {
    let mut log = MutexLog::default();
    log.note(1, &Event::Granted { op: 0, at: 10, token: 5, deadline: 100 });
    log.note(1, &Event::Unlocking { op: 0, at: 20 });
    log.note(1, &Event::Unlocked { op: 0, at: 21, outcome: Outcome::NotHolder });
    for (forming, found) in [((22, 200), true), ((15, 30), false)] {
        log.formings = vec![forming];
        let report = log.check(&[ModelKind::Leased], Duration::from_nanos(200));
        let rules: Vec<Rule> = report.violations.iter().map(|violation| violation.rule).collect();
        assert_eq!(rules == [Rule::Unexplained(ModelKind::Leased)], found, "{rules:?}");
    }
}

fn stray_key_is_residue() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url());
    for (key, stays) in [
        ("gaggle:{b1}:t", true),
        ("gaggle:{b1}:l:k", false),
        ("gaggle:{b1}:f:k", false),
        // A tombstone that never goes.
        ("gaggle:{b1}:x", false),
    ] {
        redis::cmd("SET").arg(key).arg(1).exec(&mut connection).unwrap();
        assert_eq!(residue(&server.url()).is_empty(), stays, "{key}");
        redis::cmd("DEL").arg(key).exec(&mut connection).unwrap();
    }
}

fn silent_cut_has_dropped_nothing() {
    let network = Network::of(2);
    assert_eq!(network.cut(0, 1).lift(), 0, "no packet was sent");
}

/// The checker finds, without exclusion, overlaps, unchecked resources lose updates, and the run
/// fails.
fn crew_without_a_lock_is_found_out() {
    let post = |name: &str| Post { name: name.into(), namespace: None, url: "noop:".into() };
    let mut crew = Crew::start(vec![post("first"), post("second")]);
    let until = now() + u64::try_from(LEASE.as_nanos()).unwrap();
    while now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    crew.halt();
    assert!(crew.log.lock().overlaps() > 0, "no overlap is found");
    assert!(crew.store.seen(Resource::Counter).lost > 0, "no lost update is seen");
    let report = crew.log.lock().check(&[ModelKind::Leased], LEASE);
    assert!(!report.passed(), "the checker passes a run without a lock");
    let check = || crew.check(Memory::Kept);
    let failed = crate::silently(AssertUnwindSafe(check)).is_err();
    assert!(failed, "a run without a lock passes the checks");
}

fn kill_that_was_none_is_noticed() {
    let mut crew = Crew::start(Vec::new());
    let status = std::process::Command::new("true").status().unwrap();
    let killed = AssertUnwindSafe(|| crew.was_killed(status));
    assert!(crate::silently(killed).is_err());
    assert!(!signals::is_stopped(std::process::id()));
}

/// The checks of progress fail where there is none.
fn stopped_holder_is_no_progress_and_no_free_key() {
    let server = RedisServer::start();
    let post = |name: &str| Post { name: name.into(), namespace: None, url: server.url() };
    let mut crew = Crew::start(vec![post("first"), post("second")]);
    let (stopped, trapped) = crew.trap(Trap::Stop);
    let short = LEASE / 4;
    assert!(crew.free_within(short, 1 - stopped).is_err(), "the key of a stopped holder is free");
    let stalled = crew.progress_within(LEASE, now()).unwrap_err();
    assert!(stalled.contains("no progress"), "{stalled}");
    let silent =
        crew.processes[stopped].wait(short, |event| matches!(event, Event::Halted).then_some(()));
    assert!(silent.is_err(), "a stopped process has halted");
    signals::send(trapped.pid, Signal::CONT);
    crew.heal();
}
