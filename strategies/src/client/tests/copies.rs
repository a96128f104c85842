//! Goal: a request that may have arrived is repeated and withdrawn as a copy, and no other.
//! Method: as of its parent.

use super::*;

/// What the next command says of copies.
fn copies(core: &mut Core, now: u64) -> bool {
    match &sent(core, now)[..] {
        [Command::Lock { copies, .. } | Command::Unlock { copies, .. }] => *copies,
        other => panic!("{other:?}"),
    }
}

fn unlock(core: &mut Core, lock: Lock, until: u64) {
    core.call(at(1), unlocks(None, lock, until));
}

#[test]
fn unlock_is_a_copy_when_it_is_repeated() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    unlock(&mut core, lock, 9_000);
    assert_eq!((copies(&mut core, 1), copies(&mut core, 101)), (false, true));
}

/// Another process may have sent a LOCK of the nonce, which may arrive after the unlock.
#[test]
fn unlock_of_a_given_nonce_is_a_copy() {
    let mut core = core(true);
    let given = Nonce::given(7);
    let Call::Lock(call) = waits(1, 5_000) else { unreachable!("it is a LOCK") };
    core.call(at(0), Call::Lock(LockCall { nonce: given, ..call }));
    assert!(!copies(&mut core, 0), "its own LOCK is sent once");
    let Event::Granted { key, token, waited, lease, .. } = granted(1) else {
        unreachable!("it is a grant")
    };
    core.handle(at(0), Event::Granted { nonce: given, key, token, waited, lease });
    unlock(&mut core, Lock::new("k", given, token, None), 9_000);
    assert!(copies(&mut core, 1));
}

/// The grant of a call that has timed out arrives during the next one of its nonce.
#[test]
fn late_grant_of_a_given_nonce_counts_from_its_first_call() {
    let mut core = core(true);
    let given = Nonce::given(7);
    let begin = |core: &mut Core, now: u64| {
        let Call::Lock(call) = waits(1, now + 1_000) else { unreachable!("it is a LOCK") };
        core.call(at(now), Call::Lock(LockCall { nonce: given, ..call }));
        sent(core, now);
    };
    begin(&mut core, 0);
    core.expire(at(1_000));
    begin(&mut core, 2_000);
    let Event::Granted { key, token, waited, lease, .. } = granted(1) else {
        unreachable!("it is a grant")
    };
    core.handle(at(2_100), Event::Granted { nonce: given, key, token, waited, lease });
    let replies = replies(&mut core);
    let Some((_, Reply::Granted { lock, .. })) = replies.last() else { panic!("{replies:?}") };
    assert!(lock.deadline().is_some_and(|deadline| deadline < at(0).after(waited + lease)));
}

/// At its end it is sent for the last time.
#[test]
fn unlock_is_repeated_until_its_end() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    unlock(&mut core, lock, 101);
    assert_eq!((sent(&mut core, 1).len(), sent(&mut core, 101).len()), (1, 1));
    assert_eq!((sent(&mut core, 9_000).len(), core.pending()), (0, 0));
}

/// The unlock may be late only by this process: the granting side knows when the lease ends.
#[test]
fn late_unlock_is_sent_once() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.handle(at(1), Event::Down { cause: None });
    unlock(&mut core, lock, 5);
    core.handle(at(10), Event::Up { state: ServerState::Same });
    assert_eq!((sent(&mut core, 10).len(), core.pending()), (1, 1));
    assert_eq!((sent(&mut core, 110).len(), core.pending()), (0, 0));
}

/// The first copy may have freed the lock. Without its reply this is unknown: another acquisition
/// may have held the key before that copy arrived.
#[test]
fn unlock_sent_again_that_finds_nothing_is_unknown() {
    for memory in [ServerState::Same, ServerState::MissedEvents, ServerState::Replaced] {
        let mut core = core(false);
        let lock = take(&mut core, 0);
        core.call(at(1), unlocks(Some((7, 1_000)), lock, 1_000));
        assert_eq!(sent(&mut core, 1).len(), 1);
        core.handle(at(2), failed(RequestId::Unlock(nonce(1)), Fate::NoReply));
        core.handle(at(2), Event::Down { cause: None });
        core.handle(at(3), Event::Up { state: memory });
        if memory != ServerState::Replaced {
            assert!(sent(&mut core, 3).iter().any(|command| is_unlock(command, 1)));
            core.handle(at(4), Event::Unlocked { nonce: nonce(1), held: false });
        }
        let replies = replies(&mut core);
        assert!(matches!(replies[..], [(7, Reply::Failed(Error::Unknown))]), "{replies:?}");
    }
}

/// The granting side has said so.
#[test]
fn unlock_sent_again_that_frees_the_lock_is_unlocked() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    core.call(at(1), unlocks(Some((7, 1_000)), lock, 1_000));
    sent(&mut core, 1);
    core.handle(at(2), failed(RequestId::Unlock(nonce(1)), Fate::NoReply));
    assert_eq!(sent(&mut core, 100).len(), 1);
    core.handle(at(101), Event::Unlocked { nonce: nonce(1), held: true });
    assert!(matches!(replies(&mut core)[..], [(7, Reply::Unlocked)]));
}

#[test]
fn unlock_of_a_repeated_lock_leaves_copies() {
    let mut core = core(true);
    core.call(at(0), waits(1, 5_000));
    assert_eq!((copies(&mut core, 0), copies(&mut core, 100)), (false, true));
    core.handle(at(101), granted(1));
    let replies = replies(&mut core);
    let [(1, Reply::Granted { lock, .. })] = &replies[..] else { panic!("{replies:?}") };
    unlock(&mut core, lock.clone(), 9_000);
    assert!(copies(&mut core, 101));
}

/// The LOCK may arrive after a withdrawal that has not been sent yet.
#[test]
fn withdrawal_learns_whether_its_lock_may_arrive() {
    for (fate, leaves) in [(Fate::NoReply, true), (Fate::Refused, false), (Fate::Unsent, false)] {
        let mut core = core(false);
        core.call(at(0), waits(1, 5_000));
        sent(&mut core, 0);
        core.call(at(1), Call::Withdraw(RequestId::Lock(nonce(1))));
        core.handle(at(1), failed(RequestId::Lock(nonce(1)), fate));
        assert_eq!(copies(&mut core, 1), leaves, "{fate:?}");
    }
}

/// The copy finds the lock held: the caller may have extended it, or transferred it to another
/// process.
#[test]
fn copy_of_a_granted_lock_frees_nothing() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.expire(at(20_000));
    assert!(core.next_wake().is_none(), "the deadline is past: the hold is forgotten");
    let extend = Query::Extend { lock, lease: LEASE };
    core.call(at(20_000), Call::Query { id: 2, limit: at(20_500), query: extend });
    assert_eq!(sent(&mut core, 20_000).len(), 1);
    core.handle(at(20_001), granted(1));
    assert!(sent(&mut core, 20_001).is_empty());
    core.handle(at(20_002), Event::Extended { id: 2, nonce: nonce(1), token: Some(41) });
    assert!(matches!(replies(&mut core)[..], [(2, Reply::Extended { .. })]));
}

#[test]
fn replied_or_reset_lock_is_no_copy() {
    let mut core = core(true);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), Event::Queued { nonce: nonce(1), holder_lease: None });
    core.handle(at(2), Event::Forgotten { nonce: nonce(1) });
    assert!(!copies(&mut core, 2), "the granting side has replied to it");
    core.handle(at(3), Event::Up { state: ServerState::Replaced });
    assert!(!copies(&mut core, 3), "no copy reaches another granting side");
}

/// The time that a backend knows must move on before a third attempt.
#[test]
fn stale_lock_is_sent_again() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    let mut now = 0;
    for pause in [0, 0, 10, 10] {
        if pause > 0 {
            assert!(sent(&mut core, now + pause - 1).is_empty());
        }
        now += pause;
        assert!(!copies(&mut core, now), "a refused request has no effect");
        core.handle(at(now), Event::Stale { nonce: nonce(1) });
    }
    // A late copy of this event changes nothing for a waiter.
    assert!(!copies(&mut core, now + 10));
    core.handle(at(now), Event::Queued { nonce: nonce(1), holder_lease: None });
    core.handle(at(now), Event::Stale { nonce: nonce(1) });
    assert!(sent(&mut core, now + 10).is_empty());
}

/// A try is repeated only to learn its outcome; a wait has time.
#[test]
fn try_is_not_repeated_after_a_refusal() {
    for (tries, fate, repeats) in [
        (true, Fate::NoReply, true),
        (true, Fate::Refused, false),
        (true, Fate::Unsent, false),
        (false, Fate::NoReply, true),
        (false, Fate::Refused, true),
        (false, Fate::Unsent, true),
    ] {
        let mut core = core(false);
        let until = if tries { Until::Now } else { Until::At(at(5_000)) };
        core.call(at(0), lock_call(1, until, Some(at(5_000))));
        sent(&mut core, 0);
        core.handle(at(1), failed(RequestId::Lock(nonce(1)), fate));
        let ends = matches!(replies(&mut core)[..], [(1, Reply::Failed(_))]);
        assert_eq!((ends, sent(&mut core, 100).len()), (!repeats, usize::from(repeats)));
    }
}

/// An extension has until the deadline of its lock.
#[test]
fn outage_refuses_inspections_but_no_extensions() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    let extend = Query::Extend { lock, lease: LEASE };
    core.call(at(1), Call::Query { id: 2, limit: at(1_000), query: extend });
    let inspect = Query::Inspect { key: "k".into() };
    core.call(at(1), Call::Query { id: 3, limit: at(1_000), query: inspect });
    let cause = Some(Cause::new(UnavailableKind::Refused, "refused"));
    core.handle(at(2), Event::Down { cause });
    assert!(matches!(replies(&mut core)[..], [(3, Reply::Failed(Error::Unavailable { .. }))]));
}

/// The LOCK was refused, and then queued: only the latest counts.
#[test]
fn wait_that_failed_names_its_cause_at_the_end() {
    for queued in [false, true] {
        let mut core = core(false);
        core.call(at(0), waits(1, 5_000));
        sent(&mut core, 0);
        core.handle(at(1), failed(RequestId::Lock(nonce(1)), Fate::Refused));
        sent(&mut core, 100);
        if queued {
            core.handle(at(101), Event::Queued { nonce: nonce(1), holder_lease: None });
            core.handle(at(102), Event::Forgotten { nonce: nonce(1) });
        }
        core.expire(at(5_000));
        match &replies(&mut core)[..] {
            [(1, Reply::Failed(Error::Unavailable { kind, .. }))] => {
                assert_eq!((queued, *kind), (false, UnavailableKind::Refused));
            }
            [(1, Reply::Failed(Error::TimedOut(None)))] => assert!(queued),
            other => panic!("{other:?}"),
        }
    }
}

fn unconfirmed() -> Event {
    let cause = Cause::new(UnavailableKind::NoQuorum, "too few replicas");
    Event::Unconfirmed { nonce: nonce(1), cause }
}

/// A failure, before or after, is the better cause.
#[test]
fn unconfirmed_wait_names_what_is_missing() {
    let refused = || failed(RequestId::Lock(nonce(1)), Fate::Refused);
    for (events, expected) in [
        (vec![unconfirmed()], UnavailableKind::NoQuorum),
        (vec![unconfirmed(), unconfirmed(), refused()], UnavailableKind::Refused),
        (vec![refused(), unconfirmed()], UnavailableKind::Refused),
    ] {
        let mut core = core(false);
        core.call(at(0), waits(1, 5_000));
        sent(&mut core, 0);
        for (now, event) in (1..).zip(events) {
            core.handle(at(now * 1_000), event);
            sent(&mut core, now * 1_000 + 500);
        }
        core.expire(at(5_000));
        assert_eq!(unserved(&mut core), expected);
        assert!(is_unlock(&sent(&mut core, 5_000)[0], 1), "it may hold the key");
    }
}

#[test]
fn unconfirmed_lock_is_granted_or_unknown() {
    for (call, kept) in [(waits(1, 5_000), true), (lock_call(1, Until::Now, Some(at(900))), false)]
    {
        let mut core = core(false);
        core.call(at(0), call);
        sent(&mut core, 0);
        core.handle(at(500), unconfirmed());
        assert!(sent(&mut core, 800).is_empty(), "its reply is on the way");
        core.expire(at(900));
        core.handle(at(1_000), granted(1));
        match &replies(&mut core)[..] {
            [(1, Reply::Granted { lock, .. })] => {
                assert_eq!((kept, lock.deadline()), (true, Some(at(10_000 - 100 - 1))));
            }
            [(1, Reply::Failed(Error::Unknown))] => assert!(!kept),
            other => panic!("{other:?}"),
        }
    }
}

/// The granting side was flushed, and a late copy of the LOCK was granted: the first grant is lost,
/// the second is freed, and an unlock of the first does not count as one of the second.
#[test]
fn nonce_granted_again_loses_its_lock() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    let (key, token) = ("k".into(), lock.fencing_token() + 1);
    let again =
        Event::Granted { nonce: nonce(1), key, token, waited: Duration::ZERO, lease: LEASE };
    core.handle(at(1), again);
    let outputs: Vec<_> = core.outputs().collect();
    assert!(matches!(&outputs[..], [Output::Lost { lock: lost, .. }] if *lost == lock));
    core.call(at(2), unlocks(Some((7, 1_000)), lock, 1_000));
    assert!(matches!(replies(&mut core)[..], [(7, Reply::NotHeld)]));
    let sent = sent(&mut core, 2);
    assert!(matches!(sent[..], [Command::Unlock { token: t, .. }] if t == token), "{sent:?}");
    core.handle(at(3), Event::Unlocked { nonce: nonce(1), held: true });
    assert_eq!(core.pending(), 0);
}
