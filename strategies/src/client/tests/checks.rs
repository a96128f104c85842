//! Goal: waiters and holds are checked where events may be lost, and again where a check fails.
//! Method: as of its parent.

use super::*;

/// The check of lock 1 failed.
fn held_check_failed(kind: UnavailableKind) -> Event {
    let (request, fate) = (RequestId::HeldCheck(nonce(1)), Fate::NoReply);
    Event::Failed { request, fate, cause: Cause::new(kind, "no reply") }
}

/// A core that checks its waiters.
fn core(resend: bool) -> Core {
    let mut core = Core::new(Profile { check_every: Some(LEASE), ..profile(resend) }, 7);
    core.handle(at(0), Event::Up { state: ServerState::Same });
    core
}

/// A waiter behind a lease of this length is checked 999 to 1,000 ms after.
const CHECKED_BEHIND: Duration = Duration::from_millis(998);

/// The nonces and tokens of checks of holds, which are all that was sent.
fn checked(sent: &[Command]) -> Vec<(u128, u64)> {
    let check = |command: &Command| match command {
        Command::Check { nonce, token: Some(token), .. } => (nonce.as_u128(), *token),
        other => panic!("no check of a hold: {other:?}"),
    };
    sent.iter().map(check).collect()
}

#[test]
fn holds_and_waits_are_checked_after_outage() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    core.call(at(1), waits(2, 60_000));
    sent(&mut core, 1);
    core.handle(at(1), Event::Queued { nonce: nonce(2), holder_lease: Some(CHECKED_BEHIND) });
    core.handle(at(2), Event::Down { cause: None });
    core.handle(at(3), Event::Up { state: ServerState::MissedEvents });
    let checks = sent(&mut core, 3);
    assert!(matches!(
        checks[..],
        [Command::Check { token: None, .. }, Command::Check { token: Some(41), .. }]
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
        core.handle(
            at(id),
            Event::Queued { nonce: nonce(id.into()), holder_lease: Some(CHECKED_BEHIND) },
        );
    }
    assert!((at(1_000)..=at(1_001)).contains(&core.next_wake().unwrap()));
    assert_eq!(sent(&mut core, 1_001).len(), 40);
    assert_eq!(core.next_wake(), Some(at(60_000)), "no check is left");
}

#[test]
fn many_waiters_have_a_longer_check_interval() {
    let mut core = core(false);
    core.call(at(0), waits(1, 60_000));
    sent(&mut core, 0);
    let third = 3_333;
    for (interval, lease, earliest, latest) in
        [(0, 60, third * 4 / 5, third + 1), (20, 60, 16_000, 20_000), (20, 5, 5_000, 5_002)]
    {
        core.handle(at(0), Event::MinCheckInterval(Duration::from_secs(interval)));
        let holder_lease = Some(Duration::from_secs(lease));
        core.handle(at(0), Event::Queued { nonce: nonce(1), holder_lease });
        assert!((at(earliest)..=at(latest)).contains(&core.next_wake().unwrap()));
    }
}

/// Within a quarter of the interval.
#[test]
fn check_that_is_due_later_waits() {
    let mut core = core(false);
    for (id, queued_at) in [(1, 0), (2, 250), (3, 251)] {
        core.call(at(queued_at), waits(id, 60_000));
        sent(&mut core, queued_at);
        let event = Event::Queued { nonce: nonce(id.into()), holder_lease: Some(CHECKED_BEHIND) };
        core.handle(at(queued_at), event);
    }
    assert_eq!(sent(&mut core, 1_000).len(), 2);
    assert!((at(1_250)..=at(1_251)).contains(&core.next_wake().unwrap()));
}

#[test]
fn failed_check_is_repeated() {
    let mut core = core(false);
    core.call(at(0), waits(1, 60_000));
    sent(&mut core, 0);
    core.handle(at(0), Event::Queued { nonce: nonce(1), holder_lease: Some(CHECKED_BEHIND) });
    assert_eq!(sent(&mut core, 1_000).len(), 1);
    core.handle(at(1_001), failed(RequestId::WaiterCheck(nonce(1)), Fate::NoReply));
    assert!(matches!(sent(&mut core, 1_010)[..], [Command::Check { token: None, .. }]));
    let mut now = at(1_010);
    for _ in 0..10 {
        core.handle(now, failed(RequestId::WaiterCheck(nonce(1)), Fate::Refused));
        let again = core.next_wake().unwrap();
        assert!(again > now, "it backs off");
        now = again;
        core.send_due(now, |_| Copies::One);
    }
    core.handle(now, failed(RequestId::WaiterCheck(nonce(1)), Fate::Refused));
    assert!(core.next_wake().unwrap() >= now.after(Duration::from_millis(125)));
}

#[test]
fn refused_check_of_a_hold_is_repeated() {
    let mut core = core(false);
    take(&mut core, 0);
    core.handle(at(1), Event::Down { cause: None });
    core.handle(at(2), Event::Up { state: ServerState::MissedEvents });
    assert_eq!(checked(&sent(&mut core, 2)), [(1, 41)]);
    core.handle(at(3), held_check_failed(UnavailableKind::Refused));
    assert!(sent(&mut core, 4).is_empty(), "it backs off");
    let again = core.next_wake().unwrap();
    assert!(again > at(3) && again <= at(3).after(Duration::from_millis(250)), "{again:?}");
    let mut repeated = Vec::new();
    core.send_due(again, |command| {
        repeated.push(command);
        Copies::One
    });
    assert_eq!(checked(&repeated), [(1, 41)]);
    // The reply to this one is lost with the connection.
    core.handle(again, held_check_failed(UnavailableKind::Unreachable));
    core.handle(again, Event::Down { cause: None });
    assert!(sent(&mut core, 1_000).is_empty(), "there is no connection");
    core.handle(at(1_001), Event::Up { state: ServerState::MissedEvents });
    assert_eq!(checked(&sent(&mut core, 1_001)), [(1, 41)]);
    assert!(sent(&mut core, 2_000).is_empty());
}

/// Contract, Outcomes: a retry does not help.
#[test]
fn permanently_refused_check_ends_its_waiter() {
    let mut core = core(false);
    core.call(at(0), waits(1, 60_000));
    sent(&mut core, 0);
    core.handle(at(0), Event::Queued { nonce: nonce(1), holder_lease: Some(CHECKED_BEHIND) });
    assert_eq!(sent(&mut core, 1_000).len(), 1);
    let cause = Cause::new(UnavailableKind::Misconfigured, "no rights");
    let (of, fate) = (RequestId::WaiterCheck(nonce(1)), Fate::Refused);
    core.handle(at(1_001), Event::Failed { request: of, fate, cause });
    let outputs: Vec<Output> = core.outputs().collect();
    assert!(matches!(outputs[..], [Output::Reply { reply: Reply::Failed(_), .. }]), "{outputs:?}");
    assert!(matches!(sent(&mut core, 1_001)[..], [Command::Unlock { .. }]), "it is withdrawn");

    let mut core = self::core(false);
    take(&mut core, 2_000);
    core.handle(at(2_001), Event::Up { state: ServerState::MissedEvents });
    sent(&mut core, 2_001);
    core.handle(at(2_002), held_check_failed(UnavailableKind::Misconfigured));
    assert!(sent(&mut core, 3_000).is_empty(), "the check of a hold is not repeated");
}

#[test]
fn refused_checks_do_not_multiply_on_reconnects() {
    let mut core = core(false);
    take(&mut core, 0);
    for connection in 1..9 {
        core.handle(at(connection), Event::Up { state: ServerState::MissedEvents });
        assert_eq!(checked(&sent(&mut core, connection)), [(1, 41)]);
        core.handle(at(connection), held_check_failed(UnavailableKind::Refused));
    }
}

#[test]
fn late_watch_is_lost_unless_it_is_held() {
    let mut core = core(false);
    let lock = take(&mut core, 0);
    let later = Lock::new("k", nonce(1), 42, None);
    core.call(at(1), Call::Check { lock });
    core.call(at(1), Call::Check { lock: later.clone() });
    assert!(sent(&mut core, 1).is_empty());
    let outputs: Vec<Output> = core.outputs().collect();
    assert!(matches!(&outputs[..], [Output::Lost { lock, forced: None }] if *lock == later));
}
