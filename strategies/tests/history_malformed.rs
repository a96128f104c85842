//! Goal: nothing is concluded from a recorder's mistakes, and files keep what was recorded. Method:
//! each mistake is refused by its own error; histories go to a file and come back the same.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod history_support;

use std::{error::Error, time::Duration};

use gaggle_strategies::{
    Instant, Lock, Nonce,
    testing::history::{
        Call, Event, History, Malformed, ModelKind, Operation, Outcome, ReadError, Recorder,
        Refusal, Settings, check,
    },
};
use history_support::*;

fn refused_history(operations: &[Operation]) -> Malformed {
    History::new(operations.to_vec()).unwrap_err()
}

#[test]
fn a_completion_before_the_invocation_is_refused() {
    let malformed = refused_history(&[granted(1, 5, 4, 1, 100)]);
    assert!(matches!(malformed, Malformed::OutsideCall { at, .. } if at == ms(4)), "{malformed}");
}

#[test]
fn a_place_in_the_queue_outside_of_the_call_is_refused() {
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
    // A call that was never answered stays open.
    let after = [unanswered(lock(1, 0, 0, Outcome::Unknown)), unlocked(1, 5, 6)];
    assert!(matches!(refused_history(&after), Malformed::TwoOpenCalls { .. }));
    // One that was given up does not, nor does one that ends as the next begins.
    let given_up = [lock(1, 0, 5, Outcome::Unknown), unlock(1, 5, 6, Outcome::Unknown)];
    History::new(given_up.to_vec()).unwrap();

    let mut recorder = Recorder::new();
    recorder.invoke(1, ms(0), "k", Nonce::from_u128(1), Call::Unlock);
    recorder.invoke(1, ms(1), "k", Nonce::from_u128(2), Call::Unlock);
    let expected = Malformed::TwoOpenCalls { client: 1, at: ms(1), open: ms(0) };
    assert_eq!(recorder.finish().unwrap_err(), expected);
}

#[test]
fn an_answer_without_a_call_is_refused() {
    let mut recorder = Recorder::new();
    recorder.complete(3, ms(1), Outcome::Done);
    let expected = Malformed::NothingOpen { client: 3, at: ms(1) };
    assert_eq!(recorder.finish().unwrap_err(), expected);
    let mut recorder = Recorder::new();
    recorder.queued(3, ms(1));
    assert!(matches!(recorder.finish(), Err(Malformed::NothingOpen { .. })));
}

#[test]
fn an_answer_of_another_call_is_refused() {
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
        unlock(1, 0, 1, Outcome::Refused(Refusal::Held)),
        // It waits, so it is not refused as held.
        lock(1, 0, 1, Outcome::Refused(Refusal::Held)),
    ];
    for operation in foreign {
        let malformed = refused_history(std::slice::from_ref(&operation));
        assert!(matches!(malformed, Malformed::ForeignAnswer { .. }), "{operation}: {malformed}");
    }
}

#[test]
fn an_outcome_that_nobody_was_told_is_refused() {
    let operation = Operation { completed: None, ..granted(1, 0, 1, 1, 9) };
    assert!(matches!(refused_history(&[operation]), Malformed::OutcomeWithoutAnswer { .. }));
}

#[test]
fn a_nonce_of_two_keys_is_refused() {
    let other = Operation { key: "other".into(), client: 2, ..unlocked(1, 5, 6) };
    let malformed = refused_history(&[granted(1, 0, 1, 1, 100), other]);
    assert!(matches!(malformed, Malformed::NonceOfTwoKeys { .. }), "{malformed}");
}

fn varied() -> History {
    let operations = vec![
        queued(granted(1, 0, 10, 7, 100), 5),
        extended(1, 11, 12, 200),
        unlocked(1, 13, 14),
        held(2, 1, 2),
        timed_out(3, 1, 20),
        unanswered(lock(4, 1, 1, Outcome::Unknown)),
        unlock(5, 1, 2, Outcome::Unknown),
        refused(6, 1, 2, Refusal::NotHolder),
        Operation { key: "another \u{1F984}\n".into(), ..unlocked(7, 1, 2) },
    ];
    History::new(operations).unwrap()
}

#[test]
fn a_history_comes_back_from_a_file_as_it_was() {
    let mut file = Vec::new();
    varied().write(&mut file).unwrap();
    assert!(file.split(|byte| *byte == b'\n').count() > 15, "one event a line");
    let back = History::read(&file[..]).unwrap();
    let sorted = |history: &History| {
        let mut operations = history.operations().to_vec();
        operations.sort_by_key(|operation| (operation.client, operation.invoked));
        operations
    };
    assert_eq!(sorted(&back), sorted(&varied()));
}

#[test]
fn a_line_names_its_event() {
    let mut line = Vec::new();
    let outcome = Outcome::Granted { token: 3, until: ms(2) };
    Event::Complete { client: 1, at: ms(1), outcome }.write_line(&mut line).unwrap();
    let expected = "{\"event\":\"complete\",\"client\":1,\"at\":1000000,\
                    \"outcome\":{\"granted\":{\"token\":3,\"until\":2000000}}}\n";
    assert_eq!(String::from_utf8(line).unwrap(), expected);
}

#[test]
fn a_line_that_a_killed_process_left_half_is_left_out() {
    let mut file = Vec::new();
    let call = Call::Lock { duration: ms(10), max_wait: None };
    let nonce = Nonce::from_u128(1);
    Event::Invoke { client: 1, at: ms(0), key: "k".into(), nonce, call }
        .write_line(&mut file)
        .unwrap();
    let whole = file.len();
    let outcome = Outcome::Granted { token: 1, until: ms(9) };
    Event::Complete { client: 1, at: ms(1), outcome }.write_line(&mut file).unwrap();
    for end in whole..file.len() - 1 {
        let history = History::read(&file[..end]).unwrap();
        assert_eq!(history.operations().len(), 1);
        assert_eq!(history.operations()[0].outcome, Outcome::Unknown);
        assert_eq!(Recorder::new().read(&file[..end]).unwrap(), end > whole, "{end}");
    }
    // An event that lacks nothing but the end of its line is one, and nothing is left out.
    for end in [file.len() - 1, file.len()] {
        assert_eq!(History::read(&file[..end]).unwrap().operations()[0].outcome, outcome);
        assert!(!Recorder::new().read(&file[..end]).unwrap());
    }
}

#[test]
fn a_last_line_that_is_the_beginning_of_no_event_is_refused() {
    let mut one_line = Vec::new();
    varied().write(&mut one_line).unwrap();
    one_line.retain(|byte| *byte != b'\n');
    let noise: Vec<u8> = (0..100_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .filter(|byte| *byte != b'\n')
        .collect();
    let lines: [&[u8]; 7] = [
        b"garbage",
        &one_line,
        &noise,
        b"{\"event\":\"revoke\",\"client\":1",
        b"{\"event\":\"queued\",\"client\":-1,\"at\":0}",
        // Unfinished, but of no object.
        b"\"queued",
        b"[1",
    ];
    let whole = b"{\"event\":\"invoke\",\"client\":1,\"at\":0,\"key\":\"k\",\
                  \"nonce\":\"00000000-0000-0000-0000-000000000001\",\"call\":\"unlock\"}\n";
    assert_eq!(History::read(&whole[..]).unwrap().operations().len(), 1);
    for line in lines {
        let said = String::from_utf8_lossy(&line[..line.len().min(60)]);
        let error = History::read(line).unwrap_err();
        assert!(matches!(error, ReadError::Line { line: 1, .. }), "{said}: {error}");
        let error = History::read(&[whole, line].concat()[..]).unwrap_err();
        assert!(matches!(error, ReadError::Line { line: 2, .. }), "{said}: {error}");
    }
}

#[test]
fn a_line_that_is_no_event_is_named_by_its_number() {
    let error = History::read(&b"\n{\"event\":\"complete\"}\n"[..]).unwrap_err();
    assert!(matches!(error, ReadError::Line { line: 2, .. }), "{error}");
    assert!(error.source().is_some());
    let orphan = b"{\"event\":\"queued\",\"client\":1,\"at\":0}\n";
    assert!(matches!(History::read(&orphan[..]), Err(ReadError::Malformed(_))));
}

#[test]
fn files_of_several_processes_make_one_history() {
    let mut recorder = Recorder::new();
    for client in [1, 2] {
        let mut file = Vec::new();
        History::new(vec![granted(client, 0, 1, client.into(), 50)])
            .unwrap()
            .write(&mut file)
            .unwrap();
        recorder.read(&file[..]).unwrap();
    }
    let history = recorder.finish().unwrap();
    let report = check(&history, &[ModelKind::Leased], &Settings::default());
    assert_eq!((report.operations, report.violations_found), (2, 1), "{report}");
}

#[test]
fn outcomes_of_the_library_become_outcomes_of_a_history() {
    let at = Instant::from_origin(ms(5));
    let lock = Lock::new("k", Nonce::from_u128(1), 7, Some(at));
    assert_eq!(Outcome::granted(&lock), Outcome::Granted { token: 7, until: ms(5) });
    assert_eq!(Outcome::extended(&lock), Outcome::Extended { until: ms(5) });
    let received = Lock::new("k", Nonce::from_u128(1), 7, None);
    assert_eq!(Outcome::granted(&received), Outcome::Granted { token: 7, until: Duration::ZERO });

    use gaggle_strategies::Error;
    let lock = Call::Lock { duration: ms(1), max_wait: None };
    let unavailable = || Error::no_quorum();
    let withdrawn = Outcome::Refused(Refusal::Withdrawn);
    for (call, error, outcome) in [
        (lock, Error::TimedOut, Outcome::Refused(Refusal::TimedOut)),
        (lock, Error::Held, Outcome::Refused(Refusal::Held)),
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
fn a_place_in_the_queue_that_was_lost_is_forgotten_until_the_next() {
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
