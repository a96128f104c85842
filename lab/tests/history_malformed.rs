//! Goal: a malformed history is refused.
//! Method: one history for each error.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod history_support;

use std::time::Duration;

use gaggle_lab::history::{Call, History, Malformed, Operation, Outcome, Recorder, Refusal};
use gaggle_strategies::{Error, Lock, clock::Instant, lock::Nonce};
use history_support::*;

fn refused_history(operations: &[Operation]) -> Malformed {
    History::new(operations.to_vec()).unwrap_err()
}

#[test]
fn completion_before_invocation_is_refused() {
    let malformed = refused_history(&[granted(1, 5, 4, 1, 100)]);
    assert!(matches!(malformed, Malformed::OutsideCall { at, .. } if at == ms(4)), "{malformed}");
}

#[test]
fn queue_stamp_outside_the_call_is_refused() {
    for at in [4, 8] {
        let malformed = refused_history(&[queued(granted(1, 5, 7, 1, 100), at)]);
        assert!(matches!(malformed, Malformed::OutsideCall { .. }), "{malformed}");
    }
    let malformed = refused_history(&[queued(unlocked(1, 5, 7), 6)]);
    assert!(matches!(malformed, Malformed::QueuedWithoutLock { .. }), "{malformed}");
}

#[test]
fn two_open_calls_of_one_client_are_refused() {
    let two = [granted(1, 0, 10, 1, 100), by(1, granted(2, 5, 6, 2, 100))];
    let malformed = refused_history(&two);
    let expected = Malformed::TwoOpenCalls { client: 1, at: ms(5), open: ms(0) };
    assert_eq!(malformed, expected);
    // A call without a reply stays open.
    let after = [without_reply(lock(1, 0, 0, Outcome::Unknown)), unlocked(1, 5, 6)];
    assert!(matches!(refused_history(&after), Malformed::TwoOpenCalls { .. }));
    // A call with an unknown outcome ends, also at the time at which the next begins.
    let given_up = [lock(1, 0, 5, Outcome::Unknown), unlock(1, 5, 6, Outcome::Unknown)];
    History::new(given_up.to_vec()).unwrap();

    let mut recorder = Recorder::new();
    recorder.invoke(1, ms(0), "k", Nonce::from_u128(1), Call::Unlock);
    recorder.invoke(1, ms(1), "k", Nonce::from_u128(2), Call::Unlock);
    let expected = Malformed::TwoOpenCalls { client: 1, at: ms(1), open: ms(0) };
    assert_eq!(recorder.finish().unwrap_err(), expected);
}

#[test]
fn reply_without_a_call_is_refused() {
    let mut recorder = Recorder::new();
    recorder.complete(3, ms(1), Outcome::Done);
    let expected = Malformed::NothingOpen { client: 3, at: ms(1) };
    assert_eq!(recorder.finish().unwrap_err(), expected);
    let mut recorder = Recorder::new();
    recorder.queued(3, ms(1));
    assert!(matches!(recorder.finish(), Err(Malformed::NothingOpen { .. })));
}

#[test]
fn reply_of_another_call_is_refused() {
    let grant = Outcome::Granted { token: 1, until: ms(9) };
    let extended = Outcome::Extended { until: ms(9) };
    let foreign = [
        unlock(1, 0, 1, grant),
        extend(1, 0, 1, grant),
        lock(1, 0, 1, Outcome::Done),
        extend(1, 0, 1, Outcome::Done),
        lock(1, 0, 1, extended),
        unlock(1, 0, 1, extended),
        lock(1, 0, 1, Outcome::Refused(Refusal::NotHolder)),
        unlock(1, 0, 1, Outcome::Refused(Refusal::TimedOut)),
    ];
    for operation in foreign {
        let malformed = refused_history(std::slice::from_ref(&operation));
        assert!(matches!(malformed, Malformed::ForeignReply { .. }), "{operation}: {malformed}");
    }
}

#[test]
fn outcome_without_a_reply_is_refused() {
    let operation = Operation { completed: None, ..granted(1, 0, 1, 1, 9) };
    assert!(matches!(refused_history(&[operation]), Malformed::OutcomeWithoutReply { .. }));
}

#[test]
fn nonce_of_two_keys_is_refused() {
    let other = Operation { key: "other".into(), client: 2, ..unlocked(1, 5, 6) };
    let malformed = refused_history(&[granted(1, 0, 1, 1, 100), other]);
    assert!(matches!(malformed, Malformed::NonceOfTwoKeys { .. }), "{malformed}");
}

#[test]
fn library_outcomes_map_to_history_outcomes() {
    let at = Instant::from_origin(ms(5));
    let lock = Lock::new("k", Nonce::from_u128(1), 7, Some(at));
    assert_eq!(Outcome::granted(&lock), Outcome::Granted { token: 7, until: ms(5) });
    assert_eq!(Outcome::extended(&lock), Outcome::Extended { until: ms(5) });
    let received = Lock::new("k", Nonce::from_u128(1), 7, None);
    assert_eq!(Outcome::granted(&received), Outcome::Granted { token: 7, until: Duration::ZERO });

    let lock = Call::Lock { duration: ms(1), max_wait: None };
    let unavailable = || Error::no_quorum();
    let withdrawn = Outcome::Refused(Refusal::Withdrawn);
    for (call, error, outcome) in [
        (lock, Error::TimedOut(None), Outcome::Refused(Refusal::TimedOut)),
        (lock, Error::Held(None), Outcome::Refused(Refusal::TimedOut)),
        (lock, Error::Closed, withdrawn),
        (lock, unavailable(), withdrawn),
        (lock, Error::Unknown, Outcome::Unknown),
        (lock, Error::Limit { what: "keys", limit: 1 }, Outcome::Refused(Refusal::NoEffect)),
        (Call::Unlock, unavailable(), Outcome::Unknown),
        (Call::Unlock, Error::Closed, Outcome::Unknown),
        (Call::Unlock, Error::NotHolder, Outcome::Refused(Refusal::NotHolder)),
        (Call::Unlock, Error::Expired, Outcome::Refused(Refusal::Expired)),
    ] {
        assert_eq!(call.failed(&error), outcome, "{call}: {error}");
    }
}

#[test]
fn lost_queue_stamp_is_forgotten() {
    let stamped = |again: bool| {
        let mut recorder = Recorder::new();
        let call = Call::Lock { duration: ms(1000), max_wait: None };
        recorder.invoke(1, ms(0), "k", Nonce::from_u128(1), call);
        recorder.queued(1, ms(1));
        recorder.dropped(1);
        if again {
            recorder.queued(1, ms(5));
        }
        recorder.dropped(2);
        recorder.finish().unwrap().operations()[0].queued
    };
    assert_eq!((stamped(false), stamped(true)), (None, Some(ms(5))));
}
