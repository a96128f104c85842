//! Shows that every check of the other scenarios fails on a planted violation.

use std::{panic::AssertUnwindSafe, time::Duration};

use gaggle::{
    channels::testing::RedisServer,
    strategies::testing::history::{ModelKind, Rule},
};

use super::redis::{connect, residue};
use crate::{
    Plan,
    crew::{Crew, LEASE, Memory, Post},
    mutex_log::MutexLog,
    network::Network,
    protocol::{Event, Outcome, Reply, Resource, Value},
    signals::{self, Signal},
    store::{Protected, Trap},
    tally::Tally,
    worker::now,
};

pub(crate) fn checkers_fail(_: &mut Plan) -> Tally {
    checker_finds_every_violation();
    store_sees_what_is_lost();
    stray_key_is_residue();
    silent_cut_has_dropped_nothing();
    kill_that_was_none_is_noticed();
    stopped_holder_is_no_progress_and_no_free_key();
    crew_without_a_lock_is_found_out();
    Tally::default()
}

/// One acquisition, with its call, grant, deadline and unlock.
fn held(log: &mut MutexLog, instance: u32, token: u64, [asked, at, deadline, unlock]: [u64; 4]) {
    let op = 0;
    log.note(instance, &Event::Asked { op, at: asked });
    log.note(instance, &Event::Granted { op, at, token, deadline });
    log.note(instance, &Event::Unlocking { op, at: unlock });
    log.note(instance, &Event::Unlocked { op, at: unlock + 1, outcome: Outcome::Ok });
}

/// The rules that the log breaks.
fn broken(log: &MutexLog) -> Vec<Rule> {
    let models = [ModelKind::Fenced, ModelKind::Leased];
    let report = log.check(&models, Duration::from_nanos(200));
    report.violations.iter().map(|violation| violation.rule).collect()
}

fn checker_finds_every_violation() {
    let mut good = MutexLog::default();
    held(&mut good, 1, 5, [0, 10, 100, 20]);
    held(&mut good, 2, 7, [5, 22, 100, 90]);
    held(&mut good, 3, 9, [8, 101, 150, 140]);
    assert_eq!(broken(&good), []);

    let mut two = MutexLog::default();
    held(&mut two, 1, 5, [0, 10, 100, 60]);
    held(&mut two, 2, 7, [5, 50, 100, 80]);
    assert_eq!(broken(&two), [Rule::Overlap]);
    assert_eq!(two.overlaps(Duration::from_nanos(200)), 1);

    // A process holds until its death.
    let mut died = MutexLog::default();
    died.note(1, &Event::Granted { op: 0, at: 10, token: 5, deadline: 100 });
    held(&mut died, 2, 7, [20, 50, 200, 60]);
    assert_eq!(broken(&died), [Rule::Overlap]);
    died.died(1, 40);
    assert_eq!(broken(&died), []);

    good.note(3, &Event::Unlocked { op: 0, at: 141, outcome: Outcome::NotHolder });
    assert_eq!(broken(&good), [Rule::HolderRefused]);
    good.formings = vec![(0, 7), (142, 200)];
    assert_eq!(broken(&good), [Rule::HolderRefused]);
    good.formings = vec![(120, 130)];
    assert_eq!(broken(&good), []);
}

fn store_sees_what_is_lost() {
    let count = Value::Count;
    let mut plain = Protected::new(Resource::Counter);
    plain.put(false, 1, count(1));
    plain.put(false, 2, count(2));
    plain.put(false, 1, count(2));
    assert_eq!((plain.lost, plain.backwards, plain.applied, plain.present()), (1, 1, 3, 2));

    let mut checked = Protected::new(Resource::CheckedCounter);
    checked.get(1);
    checked.get(2);
    assert!(matches!(checked.put(true, 1, count(1)), Reply::Stale), "a newer one has read");
    assert!(matches!(checked.put(true, 2, count(1)), Reply::Written));
    assert_eq!((checked.lost, checked.refused, checked.present()), (0, 1, 1));
    // Two holders of one token: only a granting side that repeats itself brings that about.
    checked.put(true, 2, count(1));
    assert_eq!((checked.lost, checked.applied, checked.present()), (1, 2, 1));

    let elements = |all: &[u64]| Value::Elements(all.iter().copied().collect());
    let mut set = Protected::new(Resource::Set);
    set.put(false, 1, elements(&[1, 2]));
    set.put(false, 2, elements(&[1, 3]));
    assert_eq!((set.lost, set.present()), (1, 2));

    // Archived elements count, and later losses are still found.
    let mut long = Protected::new(Resource::Set);
    let many: Vec<u64> = (0..1000).collect();
    long.put(false, 1, elements(&many));
    assert_eq!((long.get(2), long.present()), (elements(&[]), 1000));
    long.put(false, 2, elements(&[1000]));
    long.put(false, 1, elements(&[5, 6, 1001]));
    assert_eq!((long.lost, long.present()), (1, 1001));
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

/// Without exclusion the checker finds overlaps, unchecked resources lose updates, and the run
/// fails.
fn crew_without_a_lock_is_found_out() {
    let post = |name: &str| Post { name: name.into(), namespace: None, url: "noop:".into() };
    let mut crew = Crew::start(vec![post("first"), post("second")]);
    let until = now() + u64::try_from(LEASE.as_nanos()).unwrap();
    while now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    crew.halt();
    assert!(crew.log.lock().overlaps(LEASE) > 0, "no overlap is found");
    assert!(crew.store.seen(Resource::Counter).lost > 0, "no lost update is seen");
    assert!(crew.store.seen(Resource::Set).lost > 0, "no lost element is seen");
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
