//! Goal: every rule of the asking side holds, whatever the granting side reports.
//! Method: single facts, event by event. The simulator runs random calls under faults.

use std::{sync::Arc, time::Duration};

use super::{
    call::{Answer, Call, CallId, LockCall, Output, Query, Until},
    command::{Cause, Command, Copies, Event, Fate, Memory, Profile, Subject},
    core::Core,
    held::Claim,
};
use crate::{Capabilities, Drift, Error, Instant, Lock, Nonce, Owner, UnavailableKind};

const LEASE: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(1);

fn at(ms: u64) -> Instant {
    Instant::from_origin(Duration::from_millis(ms))
}

fn nonce(n: u128) -> Nonce {
    Nonce::from_u128(n)
}

fn profile(resend: bool) -> Profile {
    Profile {
        capabilities: Capabilities::none("test"),
        queues: true,
        retry: (Duration::from_millis(5), Duration::from_millis(25)),
        resend: resend.then_some((Duration::from_millis(100), TIMEOUT)),
        lease_max: None,
        request_timeout: TIMEOUT,
        requests_max: 64,
        drift: Drift::default(),
        busy_poll: Duration::ZERO,
    }
}

fn core(resend: bool) -> Core {
    let mut core = Core::new(profile(resend), 7);
    core.handle(at(0), Event::Up { memory: Memory::Kept });
    core
}

/// A LOCK by the call whose id is its nonce.
fn lock_call(id: CallId, until: Until, limit: Option<Instant>) -> Call {
    Call::Lock(LockCall {
        id,
        key: "k".into(),
        nonce: nonce(id.into()),
        lease: LEASE,
        until,
        limit,
        tries: until == Until::Now,
        owner: Arc::new(Owner::default()),
    })
}

fn waits(id: CallId, ms: u64) -> Call {
    lock_call(id, Until::At(at(ms)), Some(at(ms)))
}

fn sent(core: &mut Core, now: u64) -> Vec<Command> {
    let mut commands = Vec::new();
    core.send_due(at(now), |command| {
        commands.push(command);
        Copies::One
    });
    commands
}

fn granted(id: u128) -> Event {
    let (key, token) = ("k".into(), 40 + id as u64);
    Event::Granted { nonce: nonce(id), key, token, waited: Duration::ZERO, lease: LEASE }
}

fn failed(of: Subject, fate: Fate) -> Event {
    Event::Failed { of, fate, cause: Cause::new(UnavailableKind::Refused, "refused") }
}

fn answers(core: &mut Core) -> Vec<(CallId, Answer)> {
    let answers = core.outputs().filter_map(|output| match output {
        Output::Answer { id, answer } => Some((id, answer)),
        _ => None,
    });
    answers.collect()
}

/// A lock that call 1 was granted and has read.
fn take(core: &mut Core, now: u64) -> Lock {
    core.call(at(now), waits(1, now + 5_000));
    assert_eq!(sent(core, now).len(), 1);
    core.handle(at(now), granted(1));
    match answers(core).as_slice() {
        [(1, Answer::Granted { lock, claim })] => {
            assert!(claim.take());
            lock.clone()
        }
        other => panic!("{other:?}"),
    }
}

fn is_unlock(command: &Command, of: u128) -> bool {
    matches!(command, Command::Unlock { nonce: n, .. } if *n == nonce(of))
}

#[test]
fn lease_counts_from_before_the_first_send() {
    let mut core = Core::new(profile(false), 7);
    core.call(at(0), waits(1, 5_000));
    assert!(sent(&mut core, 0).is_empty(), "down");
    core.handle(at(1_000), Event::Up { memory: Memory::Kept });
    assert_eq!(sent(&mut core, 1_000).len(), 1);
    core.handle(at(1_500), granted(1));
    let [(1, Answer::Granted { lock, .. })] = &answers(&mut core)[..] else { panic!() };
    assert_eq!(lock.deadline(), Some(at(1_000 + 10_000 - 100 - 1)));
}

#[test]
fn dropped_wait_frees_its_late_grant() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), Event::Queued { nonce: nonce(1), check_in: None });
    core.call(at(2), Call::Withdraw { id: 1, nonce: nonce(1) });
    assert!(is_unlock(&sent(&mut core, 2)[0], 1));
    core.handle(at(3), granted(1));
    core.handle(at(3), Event::Unlocked { nonce: nonce(1), held: true });
    assert!(core.pending() == 0 && sent(&mut core, 3).is_empty());
    // A second copy of the LOCK is granted after its withdrawal was answered.
    core.handle(at(4), granted(1));
    assert!(is_unlock(&sent(&mut core, 4)[0], 1));
}

#[test]
fn unsent_wait_is_dropped_without_a_message() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    core.call(at(0), Call::Withdraw { id: 1, nonce: nonce(1) });
    assert!(sent(&mut core, 0).is_empty() && core.pending() == 0);
}

#[test]
fn nonce_with_a_pending_unlock_is_refused() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    core.call(at(1), Call::Unlock { caller: None, lock, until: at(9_000) });
    core.call(at(1), waits(1, 5_000));
    assert!(matches!(answers(&mut core)[..], [(1, Answer::Ended)]));
}

#[test]
fn timed_out_wait_is_withdrawn() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), Event::Queued { nonce: nonce(1), check_in: None });
    core.expire(at(4_999));
    assert!(answers(&mut core).is_empty());
    assert_eq!(core.next_wake(), Some(at(5_000)));
    core.expire(at(5_000));
    assert!(matches!(answers(&mut core)[..], [(1, Answer::Failed(Error::TimedOut(_)))]));
    assert!(is_unlock(&sent(&mut core, 5_000)[0], 1));
}

#[test]
fn unanswered_try_is_unknown_if_sent() {
    let mut core = core(false);
    core.call(at(0), lock_call(1, Until::Now, Some(at(1_000))));
    sent(&mut core, 0);
    core.expire(at(1_000));
    assert!(matches!(answers(&mut core)[..], [(1, Answer::Failed(Error::Unknown))]));
    core.handle(at(1_000), Event::Down { cause: None });
    core.call(at(1_000), lock_call(2, Until::Now, Some(at(2_000))));
    core.expire(at(2_000));
    assert!(matches!(answers(&mut core)[..], [(2, Answer::Failed(Error::Unavailable { .. }))]));
    core.handle(at(2_000), Event::Up { memory: Memory::Kept });
    assert!(
        is_unlock(&sent(&mut core, 2_000)[0], 1),
        "the first is withdrawn, the second is not there"
    );
}

#[test]
fn outage_refuses_tries_but_no_waits() {
    let mut core = core(false);
    core.handle(at(0), Event::Down { cause: None });
    core.call(at(0), lock_call(1, Until::Now, Some(at(1_000))));
    core.call(at(0), waits(2, 5_000));
    core.handle(
        at(5),
        Event::Down { cause: Some(Cause::new(UnavailableKind::Refused, "refused")) },
    );
    assert!(matches!(answers(&mut core)[..], [(1, Answer::Failed(Error::Unavailable { .. }))]));
    core.handle(at(10), Event::Up { memory: Memory::Perhaps });
    assert_eq!(sent(&mut core, 10).len(), 1);
}

#[test]
fn unanswered_lock_is_repeated_as_a_copy() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    let first = sent(&mut core, 0);
    assert!(matches!(first[..], [Command::Lock { copies: false, .. }]));
    core.handle(at(1), failed(Subject::Lock(nonce(1)), Fate::Unanswered));
    assert!(sent(&mut core, 1).is_empty(), "it backs off");
    assert!(matches!(sent(&mut core, 7)[..], [Command::Lock { copies: true, .. }]));
    core.handle(at(8), Event::Held { nonce: nonce(1) });
    assert!(matches!(answers(&mut core)[..], [(1, Answer::Held)]));
    assert!(matches!(sent(&mut core, 8)[..], [Command::Unlock { copies: true, .. }]));
}

#[test]
fn failed_withdrawn_lock_leaves_copies() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.call(at(1), Call::Withdraw { id: 1, nonce: nonce(1) });
    assert!(matches!(sent(&mut core, 1)[..], [Command::Unlock { copies: false, .. }]));
    core.handle(at(2), failed(Subject::Lock(nonce(1)), Fate::Unanswered));
    core.handle(at(2), failed(Subject::Unlock(nonce(1)), Fate::Unanswered));
    assert!(matches!(sent(&mut core, 60)[..], [Command::Unlock { copies: true, .. }]));
}

#[test]
fn permanent_failure_ends_a_wait_at_once() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    let cause = Cause::new(UnavailableKind::Misconfigured, "refused");
    core.handle(at(1), Event::Failed { of: Subject::Lock(nonce(1)), fate: Fate::Refused, cause });
    assert!(matches!(answers(&mut core)[..], [(1, Answer::Failed(Error::Unavailable { .. }))]));
    assert!(core.pending() == 0);
}

#[test]
fn unlock_outlasts_its_timeout() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.call(at(1), Call::Unlock { caller: Some((2, at(1_001))), lock, until: at(9_000) });
    assert_eq!(sent(&mut core, 1).len(), 1);
    core.expire(at(1_001));
    assert!(matches!(answers(&mut core)[..], [(2, Answer::Failed(Error::Unknown))]));
    assert!(is_unlock(&sent(&mut core, 1_001)[0], 1));
    core.handle(at(1_002), Event::Unlocked { nonce: nonce(1), held: true });
    assert!(core.pending() == 0 && core.held.get(nonce(1)).is_none());
}

#[test]
fn repeated_unlock_succeeds_or_is_unknown() {
    for (read_at, taken) in [(500, true), (9_899, false)] {
        let mut core = core(true);
        let lock = take(&mut core, 0);
        core.call(at(1), Call::Unlock { caller: Some((2, at(20_000))), lock, until: at(20_000) });
        sent(&mut core, 1);
        sent(&mut core, 101);
        core.handle(at(read_at), Event::Unlocked { nonce: nonce(1), held: false });
        match &answers(&mut core)[..] {
            [(2, Answer::Unlocked)] => assert!(taken),
            [(2, Answer::Failed(Error::Unknown))] => assert!(!taken),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn unlock_by_another_process_is_a_loss() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.handle(at(1), Event::Unlocked { nonce: nonce(1), held: true });
    let lost: Vec<Output> = core.outputs().collect();
    assert!(matches!(&lost[..], [Output::Lost { lock: l, forced: Some(_) }] if l == &lock));
}

#[test]
fn forced_unlock_carries_its_note_and_loses() {
    let force = |core: &mut Core, lock: &Lock| {
        let (lock, note) = (lock.clone(), "ops: it hangs".into());
        core.call(at(1), Call::Force { id: 9, limit: at(1_001), lock, note });
        let sent = sent(core, 1);
        let [Command::Unlock { forced: Some((41, note)), copies: true, ours, .. }] = &sent[..]
        else {
            panic!("{sent:?}")
        };
        assert_eq!(&**note, "ops: it hangs");
        let ours = *ours;
        core.handle(at(2), Event::Unlocked { nonce: nonce(1), held: true });
        (ours, core.outputs().collect::<Vec<_>>())
    };
    let foreign = Lock::new("k", nonce(1), 41, None);
    let (ours, outputs) = force(&mut core(true), &foreign);
    assert!(!ours && matches!(outputs[..], [Output::Answer { id: 9, answer: Answer::Unlocked }]));
    // A handle that ends its own grant loses it as well.
    let mut core = core(true);
    let lock = take(&mut core, 0);
    let (lock, note) = (lock, "ops: it hangs".into());
    core.call(at(1), Call::Force { id: 9, limit: at(1_001), lock, note });
    sent(&mut core, 1);
    core.handle(at(2), Event::Unlocked { nonce: nonce(1), held: true });
    let outputs: Vec<Output> = core.outputs().collect();
    assert!(matches!(
        &outputs[..],
        [Output::Lost { forced: Some(note), .. }, Output::Answer { answer: Answer::Unlocked, .. }]
            if &**note == "ops: it hangs"
    ));
}

#[test]
fn holds_and_waits_are_checked_after_outage() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    core.call(at(1), waits(2, 60_000));
    sent(&mut core, 1);
    core.handle(at(1), Event::Queued { nonce: nonce(2), check_in: Some(TIMEOUT) });
    core.handle(at(2), Event::Down { cause: None });
    core.handle(at(3), Event::Up { memory: Memory::Perhaps });
    let checks = sent(&mut core, 3);
    assert!(matches!(
        checks[..],
        [Command::CheckWaiter { .. }, Command::CheckHold { token: 41, .. }]
    ));
    let (nonce1, key) = (nonce(1), lock.key().clone());
    core.handle(at(4), Event::Lost { nonce: nonce1, key, token: 41, forced: None });
    assert!(matches!(core.outputs().next(), Some(Output::Lost { .. })));
    core.handle(at(4), Event::Forgotten { nonce: nonce(2) });
    assert!(matches!(sent(&mut core, 4)[..], [Command::Lock { .. }]));
}

#[test]
fn checks_that_are_due_soon_leave_together() {
    let mut core = core(false);
    for id in 1..=40 {
        core.call(at(id), waits(id, 60_000));
        sent(&mut core, id);
        core.handle(at(id), Event::Queued { nonce: nonce(id.into()), check_in: Some(TIMEOUT) });
    }
    assert_eq!(core.next_wake(), Some(at(1_001)));
    assert_eq!(sent(&mut core, 1_001).len(), 40);
    assert_eq!(core.next_wake(), Some(at(60_000)), "no check is left");
}

#[test]
fn failed_check_is_repeated() {
    let mut core = core(false);
    core.call(at(0), waits(1, 60_000));
    sent(&mut core, 0);
    core.handle(at(0), Event::Queued { nonce: nonce(1), check_in: Some(TIMEOUT) });
    assert_eq!(sent(&mut core, 1_000).len(), 1);
    core.handle(at(1_001), failed(Subject::Check(nonce(1)), Fate::Unanswered));
    assert!(matches!(sent(&mut core, 1_010)[..], [Command::CheckWaiter { .. }]));
}

#[test]
fn new_granting_side_voids_holds_and_restarts_waits() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.call(at(1), waits(2, 60_000));
    sent(&mut core, 1);
    core.handle(at(1), Event::Queued { nonce: nonce(2), check_in: None });
    core.call(at(1), Call::Unlock { caller: Some((3, at(1_001))), lock, until: at(9_000) });
    sent(&mut core, 1);
    core.handle(at(2), Event::Up { memory: Memory::Lost });
    let outputs: Vec<Output> = core.outputs().collect();
    assert!(outputs.iter().any(|output| matches!(output, Output::LostAll { token: 41 })));
    assert!(
        outputs
            .iter()
            .any(|output| matches!(output, Output::Answer { id: 3, answer: Answer::Unlocked }))
    );
    assert!(matches!(sent(&mut core, 2)[..], [Command::Lock { copies: false, .. }]));
}

#[test]
fn extend_of_another_nonce_is_refused() {
    for (token, extends) in [(Some(41), true), (Some(42), false), (None, false)] {
        let mut core = core(true);
        let lock = take(&mut core, 0);
        let query = Query::Extend { lock, lease: LEASE };
        core.call(at(1), Call::Query { id: 2, limit: at(1_000), query });
        sent(&mut core, 1);
        core.handle(at(2), Event::Extended { id: 2, token });
        let answers = answers(&mut core);
        match &answers[..] {
            [(2, Answer::Extended { claim, .. })] => assert!(extends && claim.take()),
            [(2, Answer::NotHeld)] => assert!(!extends && core.held.get(nonce(1)).is_none()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn close_ends_waits_and_unread_grants() {
    let mut core = core(false);
    let watched = take(&mut core, 0);
    core.call(at(1), waits(2, 60_000));
    core.call(at(1), waits(3, 60_000));
    sent(&mut core, 1);
    core.handle(at(2), granted(2));
    let unread = answers(&mut core);
    core.call(at(3), Call::Close { until: at(1_003), watched: vec![watched] });
    assert!(matches!(answers(&mut core)[..], [(3, Answer::Failed(Error::Closed))]));
    assert_eq!(sent(&mut core, 3).len(), 3, "three unlocks");
    let [(2, Answer::Granted { claim, .. })] = &unread[..] else { panic!() };
    assert!(!claim.take(), "closing has it");
    core.call(at(4), waits(4, 60_000));
    assert!(matches!(answers(&mut core)[..], [(4, Answer::Failed(Error::Closed))]));
    for id in [1, 2, 3] {
        core.handle(at(4), Event::Unlocked { nonce: nonce(id), held: true });
    }
    assert!(core.pending() == 0);
}

/// A caller that was granted the lock still relies on it, whether it reads the extension or not.
#[test]
fn close_keeps_lock_of_unread_extend() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    for id in [2, 3] {
        let query = Query::Extend { lock: lock.clone(), lease: LEASE };
        core.call(at(1), Call::Query { id, limit: at(1_000), query });
        sent(&mut core, 1);
        core.handle(at(2), Event::Extended { id, token: Some(41) });
    }
    let unread = answers(&mut core);
    core.call(at(3), Call::Close { until: at(1_003), watched: Vec::new() });
    assert!(sent(&mut core, 3).is_empty(), "its lease ends by itself");
    assert!(unread.iter().all(|(_, answer)| match answer {
        Answer::Extended { claim, .. } => !claim.take(),
        _ => false,
    }));
}

#[test]
fn full_core_takes_only_unlocks() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    for id in 2..66 {
        core.call(at(0), waits(id, 5_000));
    }
    core.call(at(0), waits(66, 5_000));
    assert!(matches!(
        answers(&mut core)[..],
        [(66, Answer::Failed(Error::Limit { limit: 64, .. }))]
    ));
    core.call(at(0), Call::Unlock { caller: None, lock, until: at(9_000) });
    assert!(is_unlock(&sent(&mut core, 0)[0], 1), "before the locks");
}

#[test]
fn holds_past_their_deadline_are_forgotten() {
    let mut core = core(false);
    take(&mut core, 0);
    core.expire(at(10_000));
    assert!(core.held.get(nonce(1)).is_none() && core.next_wake().is_none());
}

#[test]
fn claim_is_taken_or_revoked_but_not_both() {
    let (taken, revoked) = (Claim::default(), Claim::default());
    assert!(taken.take() && taken.take() && !taken.revoke());
    assert!(revoked.revoke() && !revoked.take());
}
