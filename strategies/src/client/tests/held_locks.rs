//! Goal: unlocks, extensions and losses of what this process holds follow the contract.
//! Method: as of its parent.

use super::*;

/// Whether the core counts acquisition 1 as held. Drops the outputs before.
fn holds(core: &mut Core) -> bool {
    core.outputs().for_each(drop);
    core.call(at(0), Call::Check { lock: Lock::new("k", nonce(1), 41, None) });
    core.outputs().count() == 0
}

#[test]
fn unlock_outlasts_its_timeout() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.call(at(1), unlocks(Some((2, 1_001)), lock, 9_000));
    assert_eq!(sent(&mut core, 1).len(), 1);
    core.expire(at(1_001));
    assert!(matches!(replies(&mut core)[..], [(2, Reply::Failed(Error::Unknown))]));
    assert!(is_unlock(&sent(&mut core, 1_001)[0], 1));
    core.handle(at(1_002), Event::Unlocked { nonce: nonce(1), held: true });
    assert!(core.pending() == 0 && !holds(&mut core));
}

/// The loss may come before the reply to the call.
#[test]
fn refused_extension_is_noted_while_it_is_repeated() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    let extend = |id| {
        let query = Query::Extend { lock: lock.clone(), lease: LEASE };
        Call::Query { id, limit: at(1_000), query }
    };
    let noted = |core: &mut Core| match &core.outputs().collect::<Vec<_>>()[..] {
        [Output::Unextended { lock: of, cause }] if *of == lock => cause.text().to_string(),
        other => panic!("{other:?}"),
    };
    core.call(at(1), extend(2));
    sent(&mut core, 1);
    core.handle(at(2), failed(RequestId::Query(2), Fate::Refused));
    assert_eq!(noted(&mut core), "refused");
    let cause = Cause::new(UnavailableKind::Unreachable, "no connection");
    core.handle(at(3), Event::Reconnecting { cause });
    core.call(at(4), extend(3));
    assert_eq!(noted(&mut core), "no connection");
}

/// The loss is reported by the reply to its UNLOCK: no watch of the lock is left.
#[test]
fn loss_before_the_unlock_of_a_dropped_guard_is_counted() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    core.call(at(1), unlocks(None, lock, 9_000));
    sent(&mut core, 1);
    core.handle(at(2), Event::Lost { nonce: nonce(1), key: "k".into(), token: 41, forced: None });
    core.handle(at(3), Event::Unlocked { nonce: nonce(1), held: false });
    let is_loss = |output: &Output| matches!(output, Output::Released { is_loss: true, .. });
    assert_eq!(core.outputs().filter(is_loss).count(), 1);
    assert!(!holds(&mut core));
}

/// The nonce may never have held the key.
#[test]
fn repeated_unlock_of_another_lock_is_unknown() {
    let mut core = core(true);
    let lock = Lock::new("k", nonce(1), 41, Some(at(9_000)));
    core.call(at(1), unlocks(Some((2, 20_000)), lock, 20_000));
    sent(&mut core, 1);
    sent(&mut core, 101);
    core.handle(at(102), Event::Unlocked { nonce: nonce(1), held: false });
    assert!(matches!(replies(&mut core)[..], [(2, Reply::Failed(Error::Unknown))]));
}

#[test]
fn unlock_by_another_process_is_a_loss() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.handle(at(1), Event::Unlocked { nonce: nonce(1), held: true });
    let lost: Vec<Output> = core.outputs().collect();
    assert!(matches!(&lost[..], [Output::Lost { lock: l, forced: Some(_) }] if l == &lock));
}

/// In the turn in which the caller unlocks, or while no leader is known.
#[test]
fn unlock_by_another_process_before_the_own_is_a_loss() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.call(at(1), unlocks(Some((2, 1_001)), lock.clone(), 9_000));
    core.handle(at(1), Event::Unlocked { nonce: nonce(1), held: true });
    let outputs: Vec<Output> = core.outputs().collect();
    let [Output::Lost { lock: lost, forced: Some(_) }, Output::Reply { id: 2, reply }] =
        &outputs[..]
    else {
        panic!("{outputs:?}")
    };
    assert!(*lost == lock && matches!(reply, Reply::NotHeld), "{reply:?}");
    assert!(sent(&mut core, 1).is_empty());
}

/// A force-unlock by a caller that waits a second.
fn forces(lock: Lock) -> Call {
    let (end, forced) = (at(1_001), Some("ops: it hangs".into()));
    Call::Unlock { caller: Some((9, end)), lock, until: end, forced }
}

#[test]
fn forced_unlock_carries_its_note_and_loses() {
    let force = |core: &mut Core, lock: &Lock| {
        core.call(at(1), forces(lock.clone()));
        let sent = sent(core, 1);
        let [Command::Unlock { token: 41, forced: Some(note), copies: true, .. }] = &sent[..]
        else {
            panic!("{sent:?}")
        };
        assert_eq!(&**note, "ops: it hangs");
        core.handle(at(2), Event::Unlocked { nonce: nonce(1), held: true });
        core.outputs().collect::<Vec<_>>()
    };
    let foreign = Lock::new("k", nonce(1), 41, None);
    let outputs = force(&mut core(true), &foreign);
    assert!(matches!(outputs[..], [Output::Reply { id: 9, reply: Reply::Unlocked }]));
    // A handle that ends its own grant loses it as well.
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.call(at(1), forces(lock));
    sent(&mut core, 1);
    core.handle(at(2), Event::Unlocked { nonce: nonce(1), held: true });
    let outputs: Vec<Output> = core.outputs().collect();
    assert!(matches!(
        &outputs[..],
        [Output::Lost { forced: Some(note), .. }, Output::Reply { reply: Reply::Unlocked, .. }]
            if &**note == "ops: it hangs"
    ));
}

#[test]
fn new_granting_side_voids_holds_and_restarts_waits() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    core.call(at(1), waits(2, 60_000));
    sent(&mut core, 1);
    core.handle(at(1), Event::Queued { nonce: nonce(2), holder_lease: None });
    core.call(at(1), unlocks(Some((3, 1_001)), lock, 9_000));
    sent(&mut core, 1);
    core.handle(at(2), Event::Up { state: ServerState::Replaced });
    let outputs: Vec<Output> = core.outputs().collect();
    assert!(outputs.iter().any(|output| matches!(output, Output::Lost { .. })));
    let is_unknown = |output: &Output| {
        matches!(output, Output::Reply { id: 3, reply: Reply::Failed(Error::Unknown) })
    };
    assert!(outputs.iter().any(is_unknown), "the former one may go on, and hold it: {outputs:?}");
    assert!(matches!(sent(&mut core, 2)[..], [Command::Lock { copies: false, .. }]));
}

#[test]
fn new_granting_side_refuses_extensions() {
    let mut core = core(true);
    let lock = take(&mut core, 0);
    let query = Query::Extend { lock: lock.clone(), lease: LEASE };
    core.call(at(1), Call::Query { id: 2, limit: at(1_000), query });
    sent(&mut core, 1);
    core.handle(at(2), Event::Up { state: ServerState::Replaced });
    let outputs: Vec<Output> = core.outputs().collect();
    assert!(matches!(&outputs[0], Output::Lost { lock: lost, .. } if *lost == lock));
    assert!(matches!(outputs.last(), Some(Output::Reply { id: 2, reply: Reply::NotHeld })));
    assert!(!holds(&mut core));
}

/// A later grant of one nonce has a greater token.
#[test]
fn loss_of_an_earlier_token_leaves_the_later() {
    let mut core = core(true);
    take(&mut core, 0);
    for (token, remains) in [(40, true), (41, false)] {
        let key = "k".into();
        core.handle(at(1), Event::Lost { nonce: nonce(1), key, token, forced: None });
        assert_eq!(holds(&mut core), remains);
    }
}

#[test]
fn extend_of_another_nonce_is_refused() {
    for (token, extends) in [(Some(41), true), (Some(42), false), (None, false)] {
        let mut core = core(true);
        let lock = take(&mut core, 0);
        let query = Query::Extend { lock, lease: LEASE };
        core.call(at(1), Call::Query { id: 2, limit: at(1_000), query });
        sent(&mut core, 1);
        core.handle(at(2), Event::Extended { id: 2, nonce: nonce(1), token });
        let replies = replies(&mut core);
        match &replies[..] {
            [(2, Reply::Extended { .. })] => assert!(extends),
            [(2, Reply::NotHeld)] => assert!(!extends && !holds(&mut core)),
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
    let unread = replies(&mut core);
    core.call(at(3), Call::Close { watched: vec![watched] });
    assert!(matches!(replies(&mut core)[..], [(3, Reply::Failed(Error::Closed))]));
    assert_eq!(sent(&mut core, 3).len(), 3, "three unlocks");
    let [(2, Reply::Granted { delivery, .. })] = &unread[..] else { panic!() };
    assert!(!delivery.take(), "closing has it");
    core.call(at(4), waits(4, 60_000));
    assert!(matches!(replies(&mut core)[..], [(4, Reply::Failed(Error::Closed))]));
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
    let query = Query::Extend { lock, lease: LEASE };
    core.call(at(1), Call::Query { id: 2, limit: at(1_000), query });
    sent(&mut core, 1);
    core.handle(at(2), Event::Extended { id: 2, nonce: nonce(1), token: Some(41) });
    core.call(at(3), Call::Close { watched: Vec::new() });
    assert!(sent(&mut core, 3).is_empty(), "its lease ends by itself");
}

/// The call that was granted it extends a late grant before it returns it.
#[test]
fn close_unlocks_extended_lock_that_is_unread() {
    let mut core = core(true);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(0), granted(1));
    let grant = replies(&mut core);
    let [(1, Reply::Granted { lock, .. })] = &grant[..] else { panic!("{grant:?}") };
    let query = Query::Extend { lock: lock.clone(), lease: LEASE };
    core.call(at(1), Call::Query { id: 2, limit: at(1_000), query });
    sent(&mut core, 1);
    core.handle(at(2), Event::Extended { id: 2, nonce: nonce(1), token: Some(41) });
    core.call(at(3), Call::Close { watched: Vec::new() });
    assert!(is_unlock(&sent(&mut core, 3)[0], 1));
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
        replies(&mut core)[..],
        [(66, Reply::Failed(Error::Limit { limit: 64, .. }))]
    ));
    core.call(at(0), unlocks(None, lock, 9_000));
    assert!(is_unlock(&sent(&mut core, 0)[0], 1), "before the locks");
}

#[test]
fn holds_past_their_deadline_are_forgotten() {
    let mut core = core(false);
    take(&mut core, 0);
    assert_eq!(core.next_wake(), Some(at(10_000)));
    core.expire(at(10_000));
    assert!(!holds(&mut core) && core.next_wake().is_none());
}

#[test]
fn delivery_is_taken_or_revoked_but_not_both() {
    let (taken, revoked) = (Delivery::default(), Delivery::default());
    assert!(taken.take() && taken.take() && !taken.revoke());
    assert!(revoked.revoke() && !revoked.take());
}

/// The caller may still extend the lock, or be dropped.
#[test]
fn unread_grant_past_its_deadline_is_withdrawn() {
    let mut core = core(true);
    core.call(at(0), waits(1, 60_000));
    sent(&mut core, 0);
    core.handle(at(0), granted(1));
    let unread = replies(&mut core);
    core.expire(at(20_000));
    core.call(at(20_001), Call::Withdraw(RequestId::Lock(nonce(1))));
    assert!(is_unlock(&sent(&mut core, 20_001)[0], 1));
    drop(unread);
}
