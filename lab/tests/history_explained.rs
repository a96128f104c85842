//! Goal: a report explains each violation by what led to it, and counts all of them.
//! Method: small histories with a planted violation.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod history_support;

use gaggle_lab::history::{ModelKind::Leased, Operation, Refusal, Rule, VIOLATIONS_KEPT};
use history_support::*;

#[test]
fn explanation_ends_with_the_first_wrong_reply() {
    let mut operations = Vec::new();
    for n in 1..50 {
        let at = u64::from(n) * 10;
        operations.push(granted(n, at, at + 1, u64::from(n), at + 5));
        operations.push(unlocked(n, at + 2, at + 3));
    }
    operations.push(granted(100, 1000, 1001, 100, 1050));
    operations.push(granted(101, 1060, 1061, 101, 2000));
    operations.push(by(100, refused(101, 1062, 1063, Refusal::NotHolder)));
    for n in 200..250 {
        let at = u64::from(n) * 10;
        operations.push(granted(n, at, at + 1, u64::from(n), at + 5));
    }
    let report = check_as(Leased, &operations);
    let search = report
        .violations
        .iter()
        .find(|violation| violation.rule == Rule::Unexplained(Leased))
        .unwrap();
    assert_eq!(search.operations, operations[..=100], "{report}");
}

#[test]
fn violations_are_counted_and_100_kept() {
    let on = |n: u32| Operation { key: format!("k{n}").into(), ..unlocked(n, n.into(), n.into()) };
    let report = check_as(Leased, &(0..160).map(on).collect::<Vec<_>>());
    assert_eq!((report.violations_found, report.violations.len()), (160, VIOLATIONS_KEPT));
}
