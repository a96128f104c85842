//! Goal: the history checker accepts every legal history. Method: histories whose legality is not
//! obvious (pending calls, withdrawals, expiry, repetitions), and the budget and the report.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod history_support;

use gaggle_lab::history::{
    History,
    ModelKind::{self, Fenced, Leased, Queued},
    Operation, Outcome, Refusal, Settings, check,
};
use gaggle_strategies::Drift;
use history_support::*;

#[test]
fn empty_history_is_legal() {
    passes(&ModelKind::ALL, &[]);
}

#[test]
fn deadline_is_certain_less_the_drift() {
    let operations = [granted(1, 0, 100, 1, 1100), granted(2, 0, 1095, 2, 2000)];
    let history = History::new(operations.to_vec()).unwrap();
    for (ppm, passed) in [(0, false), (4_000, false), (5_000, true), (10_000, true)] {
        let settings = Settings { drift: Drift::from_ppm(ppm).unwrap(), ..exact() };
        for model in [Leased, Queued] {
            let report = check(&history, &[model], &settings);
            assert_eq!(report.passed(), passed, "{ppm} ppm: {report}");
            assert_eq!(report.violations_found, u64::from(!passed), "{report}");
        }
    }
}

/// Each of these nonces may have held for a while or not: with forty, a search that tries both of
/// each does not end.
fn withdrawn_and_seen_spent() -> Vec<Operation> {
    let both = |n: u32| {
        let at = u64::from(n);
        [timed_out(n, at, at + 1), refused(n, 1000 + at, 1001 + at, Refusal::NotHolder)]
    };
    (10..50).flat_map(both).collect()
}

#[test]
fn unneeded_ghosts_cost_no_search() {
    let mut operations = withdrawn_and_seen_spent();
    operations.extend([granted(1, 0, 1, 1, 100), granted(2, 200, 300, 2, 400)]);
    passes(&[Fenced, Leased, Queued], &operations);
    // `NotHolder` for a certain holder: no order of the others explains it.
    operations
        .extend([granted(3, 1500, 1501, 3, 5000), refused(3, 1600, 1601, Refusal::NotHolder)]);
    for model in [Leased, Queued] {
        let history = History::new(operations.clone()).unwrap();
        let report = check(&history, &[model], &Settings { budget: 10_000, ..exact() });
        assert!(report.undecided.is_empty(), "{report}");
        assert!(!report.passed(), "{model}");
    }
}

#[test]
fn keys_are_checked_apart() {
    let other = Operation { key: "other".into(), ..granted(2, 5, 6, 1, 100) };
    let report = check_as(Leased, &[granted(1, 0, 1, 1, 100), other]);
    report.assert_passed();
    assert_eq!((report.keys, report.searches), (2, 2));
}

/// `NotHolder` for a certain holder.
fn unexplained() -> [Operation; 2] {
    [granted(99, 1001, 1002, 99, 2000), refused(99, 1003, 1004, Refusal::NotHolder)]
}

/// Many concurrent acquisitions whose tokens do not order them, and then an unexplained refusal.
fn laborious() -> History {
    let mut operations = unexplained().to_vec();
    for n in 0..24 {
        operations.push(granted(n, 0, 1000, u64::from(n / 2) + 1, 1000));
        operations.push(by(100 + n, unlocked(n, 0, 1000)));
    }
    History::new(operations).unwrap()
}

#[test]
fn search_beyond_its_budget_is_undecided() {
    let history = laborious();
    let settings = Settings { budget: 1000, ..exact() };
    let report = check(&history, &[Leased], &settings);
    assert_eq!(report.undecided.len(), 1, "{report}");
    assert_eq!(report.steps, 1000, "{report}");
    assert!(!report.passed());
    assert!(report.to_string().contains("1 undecided"), "{report}");
    assert!(std::panic::catch_unwind(|| report.assert_passed()).is_err());
}

#[test]
fn report_counts_operations() {
    let report = check_as(
        Leased,
        &[
            granted(1, 0, 1, 1, 100),
            extended(1, 2, 3, 150),
            unlocked(1, 10, 11),
            refused(2, 2, 4, Refusal::NotHolder),
            timed_out(3, 2, 4),
            without_reply(lock(4, 0, 0, Outcome::Unknown)),
            unlock(5, 0, 1, Outcome::Unknown),
            granted(6, 20, 21, 2, 100),
            granted(7, 22, 23, 3, 100),
        ],
    );
    assert_eq!((report.operations, report.keys, report.granted), (9, 1, 3));
    assert_eq!((report.unlocked, report.extended, report.unknown), (1, 1, 2));
    assert_eq!(report.refused.len(), 2);
    assert!((report.unknown_share() - 2.0 / 9.0).abs() < 1e-9);
    let text = report.to_string();
    for part in ["9 operations on 1 keys", "2 unknown (22.2 %)", "VIOLATION", "no order explains"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// n acquisitions at one time have n! orders, and only 3ⁿ places on the way through them.
#[test]
fn state_is_searched_once() {
    let mut operations = unexplained().to_vec();
    for n in 0..8 {
        operations.push(granted(n, 0, 1000, u64::from(n / 2) + 1, 1000));
        operations.push(by(100 + n, unlocked(n, 0, 1000)));
    }
    let history = History::new(operations).unwrap();
    let report = check(&history, &[Leased], &Settings { budget: 20_000, ..exact() });
    assert!(report.undecided.is_empty() && !report.passed(), "{report}");
}

#[test]
fn steps_are_counted() {
    let report = check_as(Leased, &[granted(1, 0, 1, 1, 100), unlocked(1, 2, 3)]);
    assert!((2..10).contains(&report.steps), "{report}");
}
