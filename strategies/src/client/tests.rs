//! Goal: every rule of the asking side holds for all reports of the granting side.
//! Method: single facts, event by event. The simulator runs random calls under faults.

mod acquisitions;
mod calls;
mod checks;
mod copies;
mod held_locks;
mod operators;
mod scripted;
mod turns;

use std::{sync::Arc, time::Duration};

use super::{
    Core, Delivery,
    backend::{Cause, Profile},
    calls::{Call, CallId, LockCall, Output, Query, Reply, RequestId, Until},
    commands::{Command, Copies, Event, Fate, ServerState},
};
use crate::{
    capabilities::Capabilities,
    clock::Instant,
    deadline::Drift,
    error::{Error, UnavailableKind},
    limits::DURATION_MAX,
    lock::{Lock, Nonce, Owner},
};

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
        check_every: None,
        lease_max: DURATION_MAX,
        request_timeout: TIMEOUT,
        requests_max: 64,
        drift: Drift::default(),
        busy_poll: Duration::ZERO,
    }
}

fn core(resend: bool) -> Core {
    let mut core = Core::new(profile(resend), 7);
    core.handle(at(0), Event::Up { state: ServerState::Same });
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
        unsafe_grant: None,
    })
}

fn waits(id: CallId, ms: u64) -> Call {
    lock_call(id, Until::At(at(ms)), Some(at(ms)))
}

/// An unlock, and its caller with the time at which that stops waiting.
fn unlocks(caller: Option<(CallId, u64)>, lock: Lock, until: u64) -> Call {
    let caller = caller.map(|(id, limit)| (id, at(limit)));
    Call::Unlock { caller, lock, until: at(until), forced: None }
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

fn failed(request: RequestId, fate: Fate) -> Event {
    Event::Failed { request, fate, cause: Cause::new(UnavailableKind::Refused, "refused") }
}

fn replies(core: &mut Core) -> Vec<(CallId, Reply)> {
    let replies = core.outputs().filter_map(|output| match output {
        Output::Reply { id, reply } => Some((id, reply)),
        _ => None,
    });
    replies.collect()
}

/// Why call 1, which has failed, could not be served.
fn unserved(core: &mut Core) -> UnavailableKind {
    match replies(core).as_slice() {
        [(1, Reply::Failed(Error::Unavailable { kind, .. }))] => *kind,
        other => panic!("{other:?}"),
    }
}

/// A lock that call 1 was granted and has read.
fn take(core: &mut Core, now: u64) -> Lock {
    core.call(at(now), waits(1, now + 5_000));
    assert_eq!(sent(core, now).len(), 1);
    core.handle(at(now), granted(1));
    match replies(core).as_slice() {
        [(1, Reply::Granted { lock, delivery })] => {
            assert!(delivery.take());
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
    core.handle(at(1_000), Event::Up { state: ServerState::Same });
    assert_eq!(sent(&mut core, 1_000).len(), 1);
    core.handle(at(1_500), granted(1));
    let [(1, Reply::Granted { lock, .. })] = &replies(&mut core)[..] else { panic!() };
    assert_eq!(lock.deadline(), Some(at(1_000 + 10_000 - 100 - 1)));
}

#[test]
fn dropped_wait_frees_its_late_grant() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), Event::Queued { nonce: nonce(1), holder_lease: None });
    core.call(at(2), Call::Withdraw(RequestId::Lock(nonce(1))));
    assert!(is_unlock(&sent(&mut core, 2)[0], 1));
    core.handle(at(3), granted(1));
    core.handle(at(3), Event::Unlocked { nonce: nonce(1), held: true });
    assert!(core.pending() == 0 && sent(&mut core, 3).is_empty());
    // A second copy of the LOCK is granted after the reply to its withdrawal.
    core.handle(at(4), granted(1));
    assert!(is_unlock(&sent(&mut core, 4)[0], 1));
}

/// The withdrawal is repeated, and no reply to an earlier check grants it.
#[test]
fn unsafe_grant_is_withdrawn() {
    let mut core = core(false);
    let cause = Cause::new(UnavailableKind::Refused, "too few".to_owned());
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), Event::Queued { nonce: nonce(1), holder_lease: None });
    let found = [Event::Unsafe { nonce: nonce(1), cause: cause.clone() }, granted(1)];
    found.into_iter().for_each(|event| core.handle(at(2), event));
    assert!(matches!(replies(&mut core)[..], [(1, Reply::Unsafe(_))]));
    assert!(is_unlock(&sent(&mut core, 2)[0], 1));
    core.handle(at(3), granted(1));
    let of = RequestId::Unlock(nonce(1));
    core.handle(at(3), Event::Failed { request: of, fate: Fate::Refused, cause: cause.clone() });
    assert!(replies(&mut core).is_empty());
    assert!(is_unlock(&sent(&mut core, 1_000)[0], 1), "refused, and sent again");
    core.handle(at(1_001), Event::Unlocked { nonce: nonce(1), held: true });
    // A later reply to a copy of a LOCK whose grant was safe.
    let lock = take(&mut core, 1_002);
    let found = [Event::Unsafe { nonce: lock.nonce(), cause }, granted(1)];
    found.into_iter().for_each(|event| core.handle(at(1_003), event));
    assert!(sent(&mut core, 1_003).is_empty() && replies(&mut core).is_empty());
}

/// The holder is older than the waiter, whose withdrawal is sent first all the same.
#[test]
fn ended_wait_leaves_the_queue_before_an_unlock() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    core.call(at(0), waits(2, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), Event::Queued { nonce: nonce(2), holder_lease: None });
    core.call(at(2), Call::EndWaits { prefix: "k".into() });
    core.call(at(2), unlocks(None, lock, 10_000));
    let ended = replies(&mut core);
    assert!(matches!(&ended[..], [(2, Reply::Failed(Error::Withdrawn))]), "{ended:?}");
    let sent = sent(&mut core, 2);
    assert!(is_unlock(&sent[0], 2) && is_unlock(&sent[1], 1), "{sent:?}");
}

#[test]
fn unread_grant_is_revoked_by_its_prefix() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), granted(1));
    let [(1, Reply::Granted { delivery, .. })] = &replies(&mut core)[..] else { panic!() };
    core.call(at(2), Call::EndWaits { prefix: "other".into() });
    assert!(!delivery.is_revoked() && sent(&mut core, 2).is_empty());
    core.call(at(2), Call::EndWaits { prefix: "k".into() });
    assert!(!delivery.take());
    assert!(is_unlock(&sent(&mut core, 2)[0], 1));
}

#[test]
fn unsent_wait_is_dropped_without_a_message() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    core.call(at(0), Call::Withdraw(RequestId::Lock(nonce(1))));
    assert!(sent(&mut core, 0).is_empty() && core.pending() == 0);
}

#[test]
fn nonce_with_a_pending_unlock_is_refused() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    core.call(at(1), unlocks(None, lock, 9_000));
    core.call(at(1), waits(1, 5_000));
    assert!(matches!(replies(&mut core)[..], [(1, Reply::Ended)]));
}

/// Pending, withdrawn, or held.
#[test]
fn nonce_names_one_request() {
    let is_refused = |core: &mut Core| {
        core.call(at(2), waits(1, 5_000));
        matches!(replies(core)[..], [(1, Reply::Ended)])
    };
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    assert!(is_refused(&mut core));
    sent(&mut core, 0);
    core.call(at(1), Call::Withdraw(RequestId::Lock(nonce(1))));
    assert!(
        matches!(replies(&mut core)[..], [(1, Reply::Ended)]),
        "to the caller that has withdrawn"
    );
    assert!(is_refused(&mut core));
    core.handle(at(3), Event::Unlocked { nonce: nonce(1), held: true });
    take(&mut core, 3);
    assert!(is_refused(&mut core));
}

/// For errors.
#[test]
fn command_names_its_key() {
    let check = Command::Check { nonce: nonce(1), key: "k".into(), token: None };
    let scan = Command::Scan { id: 1, after: None, prefix: "k".into(), limit: 1 };
    assert_eq!([check.key().map(|key| &**key), scan.key().map(|key| &**key)], [Some("k"), None]);
}

#[test]
fn queued_request_is_not_in_flight() {
    let mut core = core(false);
    let in_flight = |core: &mut Core, event| {
        core.handle(at(1), event);
        core.in_flight()
    };
    core.call(at(0), waits(1, 5_000));
    core.call(at(0), waits(2, 5_000));
    sent(&mut core, 0);
    for nonce in [nonce(1), nonce(2)] {
        let left = 2 - nonce.as_u128() as usize;
        assert_eq!(in_flight(&mut core, Event::Queued { nonce, holder_lease: None }), left);
    }
    assert_eq!(in_flight(&mut core, Event::Forgotten { nonce: nonce(1) }), 1);
    assert_eq!(in_flight(&mut core, Event::Held { nonce: nonce(1) }), 0);
    assert_eq!(in_flight(&mut core, granted(2)), 0);
}

#[test]
fn withdrawal_in_an_outage_is_sent_after_it() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), Event::Down { cause: None });
    core.call(at(2), Call::Withdraw(RequestId::Lock(nonce(1))));
    assert!(sent(&mut core, 2).is_empty());
    core.handle(at(3), Event::Up { state: ServerState::Same });
    assert!(is_unlock(&sent(&mut core, 3)[0], 1));
}

#[test]
fn timed_out_wait_is_withdrawn() {
    let mut core = Core::new(Profile { check_every: None, ..profile(false) }, 7);
    core.handle(at(0), Event::Up { state: ServerState::Same });
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.handle(at(1), Event::Queued { nonce: nonce(1), holder_lease: None });
    core.expire(at(4_999));
    assert!(replies(&mut core).is_empty());
    assert_eq!(core.next_wake(), Some(at(5_000)));
    core.expire(at(5_000));
    assert!(matches!(replies(&mut core)[..], [(1, Reply::Failed(Error::TimedOut(_)))]));
    assert!(is_unlock(&sent(&mut core, 5_000)[0], 1));
}

#[test]
fn try_without_reply_is_unknown_if_sent() {
    let mut core = core(false);
    core.call(at(0), lock_call(1, Until::Now, Some(at(1_000))));
    sent(&mut core, 0);
    core.expire(at(1_000));
    assert!(matches!(replies(&mut core)[..], [(1, Reply::Failed(Error::Unknown))]));
    core.handle(at(1_000), Event::Down { cause: None });
    core.call(at(1_000), lock_call(2, Until::Now, Some(at(2_000))));
    core.expire(at(2_000));
    assert!(matches!(replies(&mut core)[..], [(2, Reply::Failed(Error::Unavailable { .. }))]));
    core.handle(at(2_000), Event::Up { state: ServerState::Same });
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
    assert!(matches!(replies(&mut core)[..], [(1, Reply::Failed(Error::Unavailable { .. }))]));
    core.handle(at(10), Event::Up { state: ServerState::MissedEvents });
    assert_eq!(sent(&mut core, 10).len(), 1);
}

/// The first error of an outage that an operator sees.
#[test]
fn call_that_is_never_sent_has_the_cause_of_the_outage() {
    let mut core = core(false);
    let cause = Cause::new(UnavailableKind::Unreachable, "lost the connection to here");
    core.handle(at(0), Event::Reconnecting { cause });
    core.call(at(0), lock_call(1, Until::Now, Some(at(1_000))));
    core.call(at(0), waits(2, 1_000));
    assert!(replies(&mut core).is_empty(), "the connection may be back in time");
    core.expire(at(1_000));
    let replies = replies(&mut core);
    assert_eq!(replies.len(), 2);
    for (_, reply) in replies {
        let Reply::Failed(error) = reply else { panic!("{reply:?}") };
        assert_eq!(error.to_string(), "lost the connection to here");
    }
}

#[test]
fn lock_without_reply_is_repeated_as_a_copy() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    let first = sent(&mut core, 0);
    assert!(matches!(first[..], [Command::Lock { copies: false, .. }]));
    core.handle(at(1), failed(RequestId::Lock(nonce(1)), Fate::NoReply));
    assert!(sent(&mut core, 1).is_empty(), "it backs off");
    assert!(matches!(sent(&mut core, 7)[..], [Command::Lock { copies: true, .. }]));
    core.handle(at(8), Event::Held { nonce: nonce(1) });
    assert!(matches!(replies(&mut core)[..], [(1, Reply::Held)]));
    assert!(matches!(sent(&mut core, 8)[..], [Command::Unlock { copies: true, .. }]));
}

#[test]
fn failed_withdrawn_lock_leaves_copies() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    core.call(at(1), Call::Withdraw(RequestId::Lock(nonce(1))));
    assert!(matches!(sent(&mut core, 1)[..], [Command::Unlock { copies: false, .. }]));
    core.handle(at(2), failed(RequestId::Lock(nonce(1)), Fate::NoReply));
    core.handle(at(2), failed(RequestId::Unlock(nonce(1)), Fate::NoReply));
    assert!(matches!(sent(&mut core, 60)[..], [Command::Unlock { copies: true, .. }]));
}

#[test]
fn permanent_failure_ends_a_wait_at_once() {
    let mut core = core(false);
    core.call(at(0), waits(1, 5_000));
    sent(&mut core, 0);
    let cause = Cause::new(UnavailableKind::Misconfigured, "refused");
    core.handle(
        at(1),
        Event::Failed { request: RequestId::Lock(nonce(1)), fate: Fate::Refused, cause },
    );
    assert!(matches!(replies(&mut core)[..], [(1, Reply::Failed(Error::Unavailable { .. }))]));
    assert!(core.pending() == 0);
}

#[test]
fn wait_without_a_connection_names_the_connection() {
    for (waits_for_leader, expected) in
        [(false, UnavailableKind::Unreachable), (true, UnavailableKind::NoQuorum)]
    {
        let mut profile = profile(false);
        profile.capabilities.waits_for_leader = waits_for_leader;
        let mut core = Core::new(profile, 7);
        core.call(at(0), waits(1, 5_000));
        core.expire(at(5_000));
        assert_eq!(unserved(&mut core), expected);
    }
}

#[test]
fn unsent_try_of_a_connected_process_names_no_leader() {
    let mut profile = profile(false);
    profile.capabilities.waits_for_leader = true;
    let mut core = Core::new(profile, 7);
    core.handle(at(0), Event::Up { state: ServerState::Same });
    core.call(at(0), lock_call(1, Until::Now, Some(at(1_000))));
    core.expire(at(1_000));
    assert_eq!(unserved(&mut core), UnavailableKind::Unreachable);
}
