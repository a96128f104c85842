//! Histories in a few words. Times are in milliseconds.

#![allow(dead_code, reason = "each test file uses a part")]

use std::time::Duration;

use gaggle_lab::history::{
    Call, History, ModelKind, Operation, Outcome, Refusal, Report, Rule, Settings, check,
};
use gaggle_strategies::{Drift, lock::Nonce};

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An unbounded LOCK of nonce `n`; the client is the nonce.
pub(crate) fn lock(n: u32, invoked: u64, completed: u64, outcome: Outcome) -> Operation {
    operation(n, Call::Lock { duration: ms(1000), max_wait: None }, invoked, completed, outcome)
}

/// A LOCK granted with a token, until a time.
pub(crate) fn granted(n: u32, invoked: u64, completed: u64, token: u64, until: u64) -> Operation {
    lock(n, invoked, completed, Outcome::Granted { token, until: ms(until) })
}

pub(crate) fn timed_out(n: u32, invoked: u64, completed: u64) -> Operation {
    lock(n, invoked, completed, Outcome::Refused(Refusal::TimedOut))
}

pub(crate) fn unlock(n: u32, invoked: u64, completed: u64, outcome: Outcome) -> Operation {
    operation(n, Call::Unlock, invoked, completed, outcome)
}

pub(crate) fn unlocked(n: u32, invoked: u64, completed: u64) -> Operation {
    unlock(n, invoked, completed, Outcome::Done)
}

pub(crate) fn refused(n: u32, invoked: u64, completed: u64, refusal: Refusal) -> Operation {
    unlock(n, invoked, completed, Outcome::Refused(refusal))
}

pub(crate) fn extend(n: u32, invoked: u64, completed: u64, outcome: Outcome) -> Operation {
    operation(n, Call::Extend { duration: ms(1000) }, invoked, completed, outcome)
}

pub(crate) fn extended(n: u32, invoked: u64, completed: u64, until: u64) -> Operation {
    extend(n, invoked, completed, Outcome::Extended { until: ms(until) })
}

/// The same, known to be queued at a time.
pub(crate) fn queued(operation: Operation, at: u64) -> Operation {
    Operation { queued: Some(ms(at)), ..operation }
}

/// The same, without a reply.
pub(crate) fn without_reply(operation: Operation) -> Operation {
    Operation { completed: None, outcome: Outcome::Unknown, ..operation }
}

/// The same, by another client.
pub(crate) fn by(client: u32, operation: Operation) -> Operation {
    Operation { client, ..operation }
}

fn operation(n: u32, call: Call, invoked: u64, completed: u64, outcome: Outcome) -> Operation {
    Operation {
        client: n,
        key: "k".into(),
        nonce: Nonce::from_u128(n.into()),
        call,
        invoked: ms(invoked),
        queued: None,
        completed: Some(ms(completed)),
        outcome,
    }
}

/// Deadlines are exact.
pub(crate) fn exact() -> Settings {
    Settings { drift: Drift::from_ppm(0).unwrap(), ..Settings::default() }
}

pub(crate) fn check_as(model: ModelKind, operations: &[Operation]) -> Report {
    let history = History::new(operations.to_vec()).unwrap();
    check(&history, &[model], &exact())
}

pub(crate) fn passes(models: &[ModelKind], operations: &[Operation]) {
    for &model in models {
        check_as(model, operations).assert_passed();
    }
}

/// The rules that are broken, in order.
pub(crate) fn broken(model: ModelKind, operations: &[Operation]) -> Vec<Rule> {
    let report = check_as(model, operations);
    assert!(report.undecided.is_empty(), "{report}");
    let mut rules: Vec<Rule> = report.violations.iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}
