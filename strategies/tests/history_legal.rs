//! Goal: the history checker accepts what a lock may do. Method: histories whose legality needs an
//! argument (calls without answers, withdrawals, expiry, repetitions), and the budget and the
//! report.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod history_support;

use gaggle_strategies::{
    Drift,
    testing::history::{
        History,
        ModelKind::{self, Fenced, Leased, Owner, Queued},
        Operation, Outcome, Refusal, Settings, check,
    },
};
use history_support::*;

fn passes(models: &[ModelKind], operations: &[Operation]) {
    for &model in models {
        check_as(model, operations).assert_passed();
    }
}

#[test]
fn nothing_at_all() {
    passes(&ModelKind::ALL, &[]);
}

#[test]
fn a_lock_handed_on_in_turn() {
    let operations = [
        granted(1, 0, 1, 1, 100),
        extended(1, 2, 3, 150),
        held(2, 2, 4),
        queued(granted(3, 5, 12, 2, 200), 6),
        unlocked(1, 10, 11),
        refused(1, 13, 14, Refusal::NotHolder),
        unlocked(3, 20, 21),
    ];
    passes(&ModelKind::ALL, &operations);
}

#[test]
fn answers_come_in_another_order_than_grants() {
    // The second was granted at 5 of an unlock at 4, and heard of it before the first's unlock did.
    let operations = [granted(1, 0, 1, 1, 100), unlocked(1, 4, 9), granted(2, 0, 5, 2, 100)];
    passes(&ModelKind::ALL, &operations);
    // A grant whose answer took longer than its whole life is over when the next is granted.
    let late = [granted(1, 0, 20, 1, 4), granted(2, 0, 5, 2, 100)];
    passes(&[Fenced, Leased, Queued], &late);
}

#[test]
fn a_dropped_guard_frees_the_key_without_an_answer() {
    let operations = [
        granted(1, 0, 1, 1, 100),
        unlock(1, 5, 5, Outcome::Unknown),
        granted(2, 0, 6, 2, 100),
        unlock(2, 7, 7, Outcome::Unknown),
        // The second one's unlock was lost.
        refused(9, 8, 9, Refusal::NotHolder),
        granted(3, 0, 100, 3, 200),
    ];
    passes(&ModelKind::ALL, &operations);
}

#[test]
fn a_lock_that_timed_out_may_have_held_for_a_while() {
    let operations = [
        granted(1, 0, 1, 1, 100),
        timed_out(2, 0, 5),
        unlocked(1, 6, 7),
        held(3, 8, 9),
        granted(4, 10, 11, 3, 100),
    ];
    passes(&ModelKind::ALL, &operations);
}

#[test]
fn a_lock_without_an_answer_is_unlocked_and_extended_by_another_process() {
    let operations = [
        lock(1, 0, 1, Outcome::Unknown),
        by(2, extended(1, 5, 6, 50)),
        by(2, unlocked(1, 7, 8)),
        granted(3, 9, 10, 1, 100),
    ];
    passes(&ModelKind::ALL, &operations);
}

#[test]
fn an_unlock_repeated_after_one_without_an_answer_may_report_its_effect() {
    let operations = [
        granted(1, 0, 1, 1, 100),
        unlock(1, 2, 3, Outcome::Unknown),
        granted(2, 4, 5, 2, 100),
        unlocked(1, 6, 7),
    ];
    passes(&ModelKind::ALL, &operations);
}

#[test]
fn a_repetition_of_a_nonce_finds_its_grant() {
    let operations = [
        lock(1, 0, 1, Outcome::Unknown),
        held(2, 2, 3),
        by(9, granted(1, 4, 5, 1, 90)),
        by(8, granted(1, 6, 7, 1, 100)),
        by(8, unlocked(1, 8, 9)),
    ];
    passes(&ModelKind::ALL, &operations);
}

#[test]
fn a_failed_call_withdraws_the_nonce_that_another_call_was_granted() {
    let operations = [
        granted(1, 0, 1, 1, 100),
        by(9, lock(1, 2, 3, Outcome::Refused(Refusal::TimedOut))),
        granted(2, 4, 5, 2, 100),
    ];
    passes(&ModelKind::ALL, &operations);
}

#[test]
fn expired_from_the_deadline_on_says_nothing_about_the_key() {
    // Said by the caller's own clock; the granting side ends the lease later.
    let operations = [
        granted(1, 0, 1, 1, 10),
        extend(1, 10, 11, Outcome::Refused(Refusal::Expired)),
        held(2, 12, 13),
        unlocked(1, 14, 15),
    ];
    passes(&ModelKind::ALL, &operations);
}

#[test]
fn a_deadline_is_certain_only_less_the_drift() {
    let operations = [granted(1, 0, 100, 1, 1100), granted(2, 0, 1095, 2, 2000)];
    let history = History::new(operations.to_vec()).unwrap();
    for (ppm, passed) in [(0, false), (4_000, false), (5_000, true), (10_000, true)] {
        let settings =
            Settings { drift: Drift::from_ppm(ppm).unwrap(), search_all: true, ..exact() };
        for model in [Leased, Queued] {
            let report = check(&history, &[model], &settings);
            assert_eq!(report.passed(), passed, "{ppm} ppm: {report}");
            assert_eq!(report.violations_found, if passed { 0 } else { 2 }, "{report}");
        }
    }
}

#[test]
fn a_withdrawn_lock_that_its_own_caller_saw_spent_may_be_what_another_was_refused_for() {
    let refused = refused(2, 8, 9, Refusal::NotHolder);
    passes(&ModelKind::ALL, &[timed_out(2, 0, 5), held(3, 6, 7), refused.clone()]);
    let asked_too_late = [held(3, 0, 1), timed_out(2, 2, 5), refused];
    for model in ModelKind::ALL {
        assert!(!check_as(model, &asked_too_late).passed(), "{model}");
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
fn what_nobody_needs_to_have_held_costs_no_search() {
    let mut operations = withdrawn_and_seen_spent();
    operations.extend([granted(1, 0, 1, 1, 100), granted(2, 200, 300, 2, 400)]);
    passes(&[Fenced, Leased, Queued], &operations);
    // One that holds is told that it does not: no order of all the others explains it.
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
fn a_waiter_that_left_is_not_overtaken() {
    let operations = [
        granted(1, 0, 1, 1, 100),
        queued(timed_out(2, 2, 30), 3),
        granted(3, 5, 20, 2, 200),
        unlocked(1, 10, 11),
    ];
    passes(&[Queued], &operations);
}

#[test]
fn keys_are_checked_apart() {
    let other = Operation { key: "other".into(), ..granted(2, 5, 6, 1, 100) };
    let report = check_as(Leased, &[granted(1, 0, 1, 1, 100), other]);
    report.assert_passed();
    assert_eq!((report.keys, report.searches), (2, 2));
}

/// Many acquisitions of one time in any order, which one token for two does not tell; and after them
/// a refusal that none explains.
fn laborious() -> History {
    let mut operations = vec![held(99, 1002, 1003)];
    for n in 0..24 {
        operations.push(granted(n, 0, 1000, u64::from(n / 2) + 1, 1000));
        operations.push(by(100 + n, unlocked(n, 0, 1000)));
    }
    History::new(operations).unwrap()
}

#[test]
fn a_search_that_ends_by_its_budget_is_undecided_and_no_pass() {
    let history = laborious();
    let settings = Settings { budget: 1000, ..exact() };
    let report = check(&history, &[Owner], &settings);
    assert_eq!(report.undecided.len(), 1, "{report}");
    assert_eq!(report.steps, 1000, "{report}");
    assert!(!report.passed());
    assert!(report.to_string().contains("1 undecided"), "{report}");
    assert!(std::panic::catch_unwind(|| report.assert_passed()).is_err());
}

#[test]
fn a_report_counts_what_it_saw() {
    let report = check_as(
        Leased,
        &[
            granted(1, 0, 1, 1, 100),
            extended(1, 2, 3, 150),
            unlocked(1, 10, 11),
            held(2, 2, 4),
            timed_out(3, 2, 4),
            unanswered(lock(4, 0, 0, Outcome::Unknown)),
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
    for part in ["9 operations on 1 keys", "2 unknown (22.2 %)", "VIOLATION", "two hold at once"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Of n acquisitions at one time there are n! orders, and only 3ⁿ places on the way through them.
#[test]
fn a_place_that_is_reached_by_another_way_is_not_searched_again() {
    let mut operations = vec![held(99, 1002, 1003)];
    for n in 0..8 {
        operations.push(granted(n, 0, 1000, u64::from(n / 2) + 1, 1000));
        operations.push(by(100 + n, unlocked(n, 0, 1000)));
    }
    let history = History::new(operations).unwrap();
    let report = check(&history, &[Owner], &Settings { budget: 20_000, ..exact() });
    assert!(report.undecided.is_empty() && !report.passed(), "{report}");
}

#[test]
fn steps_are_counted() {
    let report = check_as(Leased, &[granted(1, 0, 1, 1, 100), unlocked(1, 2, 3)]);
    assert!((2..10).contains(&report.steps), "{report}");
}
