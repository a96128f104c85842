//! Goal: each reply and push becomes its event, and the commands of a turn are sent together.
//! Method: as of its parent.

use gaggle_channels::internal::reply_limit::REPLY_BYTES_MAX;
use gaggle_fixtures::Events;

use super::*;

#[test]
fn grant_by_the_reply_counts_its_whole_lease() {
    let mut lab = Lab::up();
    lab.submit(lock(1, Until::Now));
    assert!(lab.turn().is_empty());
    let commands = lab.commands();
    assert!(matches!(&commands[..], [command] if command[0] == "EVALSHA"), "{commands:?}");
    lab.say(&listed("7", &["granted 7"]));
    let events = lab.turn();
    let [Event::Granted { nonce: of, token: 7, waited, lease, .. }] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((of, waited, lease), (nonce(1), Duration::ZERO, Duration::from_secs(5)));
}

#[test]
fn publication_grants_a_waiter_once() {
    let mut lab = Lab::up();
    lab.submit(lock(1, Until::Forever));
    lab.turn();
    lab.say(&listed("5", &["queued 9"]));
    let events = lab.turn();
    let [Event::Queued { holder_lease: Some(_), .. }] = events[..] else { panic!("{events:?}") };
    let grant = format!("1 {} 9 100 400 3000", nonce(1));
    let push = format!(">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n{}", bulk(&grant));
    lab.say(&push.repeat(2));
    let events = lab.turn();
    let [Event::Granted { token: 9, waited, lease, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!((waited, lease), (Duration::from_micros(300), Duration::from_secs(3)));
}

/// Both in one turn: the grant or the extension must not outlive its loss.
#[test]
fn forced_loss_follows_the_replies_before_it() {
    let extend = Command::Extend {
        id: 2,
        nonce: nonce(1),
        key: "k".into(),
        token: 9,
        lease: Duration::from_secs(5),
    };
    for (command, reply) in [(lock(1, Until::Now), "granted 9"), (extend, "held")] {
        let mut lab = Lab::up();
        lab.submit(command);
        lab.turn();
        let payload = protocol::forced_payload(nonce(1), 9, "k", "operator: it hangs");
        let push = format!(">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n{}", bulk(&payload));
        lab.say(&(listed("5", &[reply]) + &push));
        let events = lab.turn();
        let [
            Event::Lost { .. },
            Event::Granted { token: 9, .. } | Event::Extended { token: Some(9), .. },
            Event::Lost { token: 9, forced: Some(_), .. },
        ] = &events[..]
        else {
            panic!("{events:?}")
        };
    }
}

/// A key that another program wrote, and a memory that is full from the third request on.
#[test]
fn each_request_of_a_list_has_its_own_outcome() {
    let mut lab = Lab::up();
    for number in 1..=4 {
        lab.submit(lock(number, Until::Now));
    }
    lab.turn();
    assert_eq!(lab.commands().len(), 1);
    lab.say(&listed("7", &["granted 7", "-WRONGTYPE Operation", "-OOM command", "held"]));
    let events = lab.turn();
    assert!(matches!(events[0], Event::Granted { nonce: of, .. } if of == nonce(1)), "{events:?}");
    assert!(matches!(events[3], Event::Held { nonce: of } if of == nonce(4)), "{events:?}");
    let refused = |number, permanent| (RequestId::Lock(nonce(number)), Fate::Refused, permanent);
    assert_eq!(failures(&events), [refused(2, true), refused(3, false)]);
    assert_eq!(events.len(), 4);
}

#[test]
fn list_that_fails_as_a_whole_fails_each_request() {
    for (error, fate, drops) in [
        ("-OOM command not allowed", Fate::Refused, false),
        ("-BUSY Redis is busy running a script", Fate::Refused, false),
        ("-READONLY You can't write", Fate::Refused, true),
        ("-NOSCRIPT No matching script.", Fate::NoReply, true),
    ] {
        let mut lab = Lab::up();
        (1..=3).for_each(|number| lab.submit(lock(number, Until::Now)));
        lab.turn();
        lab.say(&format!("{error}\r\n"));
        let expected = [1, 2, 3].map(|number| (RequestId::Lock(nonce(number)), fate, false));
        assert_eq!(failures(&lab.turn()), expected, "{error}");
        assert_eq!(lab.backend.status(0), !drops, "{error}");
    }
}

#[test]
fn reply_of_another_length_is_of_unknown_fate() {
    for results in [&["granted 7"][..], &["granted 7"; 3], &[]] {
        let mut lab = Lab::up();
        (1..=2).for_each(|number| lab.submit(lock(number, Until::Now)));
        lab.turn();
        lab.say(&listed("7", results));
        let expected = [1, 2].map(|number| (RequestId::Lock(nonce(number)), Fate::NoReply, true));
        assert_eq!(failures(&lab.turn()), expected, "{results:?}");
    }
}

/// The script dropped the dead waiters before it in a second step.
#[test]
fn grant_follows_the_queueing_by_the_same_script() {
    let mut lab = Lab::up();
    (1..=2).for_each(|number| lab.submit(lock(number, Until::Forever)));
    lab.turn();
    let grant = format!("5\n{} 9 100 400 3000", nonce(1));
    lab.say(&listed(&grant, &["queued 0", "queued 3000"]));
    let events = lab.turn();
    let [Event::Queued { .. }, Event::Queued { .. }, Event::Granted { nonce: of, .. }] = events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(of, nonce(1));
}

#[test]
fn one_publication_grants_several_keys() {
    let mut lab = Lab::up();
    (1..=2).for_each(|number| lab.submit(lock(number, Until::Forever)));
    lab.turn();
    lab.say(&listed("5", &["queued 9", "queued 9"]));
    lab.turn();
    let grants = format!("1 {} 9 100 400 3000\n{} 9 100 400 3000", nonce(2), nonce(1));
    lab.say(&format!(">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n{}", bulk(&grants)));
    let events = lab.turn();
    let granted = |event: &Event| match event {
        Event::Granted { nonce, .. } => *nonce,
        other => panic!("{other:?}"),
    };
    assert_eq!(events.iter().map(granted).collect::<Vec<_>>(), [nonce(2), nonce(1)]);
}

/// The second reply has no end.
#[test]
fn endless_reply_ends_the_connection() {
    let mut lab = Lab::up();
    lab.submit(lock(1, Until::Now));
    lab.turn();
    let part = format!("${}\r\n", 1 << 30) + &"x".repeat(1 << 19);
    let mut read = 0;
    loop {
        lab.say(if read == 0 { &part } else { &part[16..] });
        read += part.len();
        let events = (0..8).flat_map(|_| lab.turn()).collect::<Vec<_>>();
        if let [.., Event::Reconnecting { cause }] = &events[..] {
            assert!(cause.text().contains("expected at most 8 MiB"), "{cause:?}");
            break;
        }
        assert!(read < 10 << 20, "{read} bytes");
    }
    assert!(read >= REPLY_BYTES_MAX, "{read} bytes");
}

/// Many whole replies have more bytes than one may have.
#[test]
fn whole_replies_have_no_common_limit() {
    let mut lab = Lab::up();
    for _ in 0..20 {
        lab.submit(Command::Inspect { id: 9, key: "k".into() });
        lab.turn();
        lab.say(&format!("${}\r\n{}\r\n", 1 << 19, "x".repeat(1 << 19)));
        let events = (0..8).flat_map(|_| lab.turn()).collect::<Vec<_>>();
        assert!(matches!(events[..], [Event::Inspected { found: Err(_), .. }]), "{events:?}");
    }
}

/// A server that publishes before it has replied to the handshake.
#[test]
fn publications_before_the_handshake_are_limited() {
    let mut lab = Lab::new(Way::Open);
    lab.turn();
    lab.server = lab.ends.lock().unwrap().1.pop_front();
    let push = format!(">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n{}", bulk(&"?".repeat(100)));
    let pushes = push.repeat((1 << 19) / push.len());
    for _ in 0..4 {
        lab.say(&pushes);
        let events = (0..8).flat_map(|_| lab.turn()).collect::<Vec<_>>();
        if let Some(event) = events.first() {
            let Event::Down { cause: Some(cause) } = event else { panic!("{event:?}") };
            assert!(cause.text().contains("1 MiB for the handshake"), "{cause:?}");
            return;
        }
    }
    panic!("the connection is still open");
}

/// A stranger may publish without end.
#[test]
fn malformed_publications_are_warned_of_once() {
    let (log, _recording) = Events::of_thread();
    let mut lab = Lab::up();
    let push = format!(">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n{}", bulk("?"));
    for _ in 0..2 {
        lab.say(&push.repeat(2));
        assert!(lab.turn().is_empty());
    }
    assert_eq!(log.with("malformed publication from redis").len(), 1, "{log:?}");
}

/// A stranger may publish faster than this process reads.
#[test]
fn flood_of_publications_does_not_extend_a_turn() {
    let mut lab = Lab::up();
    let push = format!(">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n{}", bulk(&"?".repeat(100)));
    let count = (1 << 20) / push.len();
    lab.say(&push.repeat(count));
    let unwoken = &mut Context::from_waker(Waker::noop());
    let mut read = Vec::new();
    while lab.backend.connection.poll(unwoken) {
        let (published, _) = lab.backend.connection.received(lab.now);
        read.push(published.len());
    }
    assert!(read[0] <= count / 4, "{read:?}");
    assert_eq!(read.iter().sum::<usize>(), count);
}

#[test]
fn value_without_an_expiry_is_logged() {
    let (log, _recording) = Events::of_thread();
    let mut lab = Lab::up();
    let mut queue = |remaining: u64| {
        lab.submit(lock(1, Until::Forever));
        lab.turn();
        lab.say(&listed("5", &[&format!("queued {remaining}")]));
        assert!(matches!(lab.turn()[..], [Event::Queued { .. }]));
        log.with("lock in redis has no expiry")
    };
    assert_eq!(queue(86_400_000), [""; 0]);
    let [event] = &queue(86_400_001)[..] else { panic!("{log:?}") };
    assert!(event.contains("remove it by DEL \"gaggle:{b"), "{event}");
}

/// There is one event, not one for each POLL.
#[test]
fn waiters_that_redis_lost_are_logged_together() {
    let (log, _recording) = Events::of_thread();
    let mut lab = Lab::up();
    for (number, key) in [(1, "a"), (2, "b")] {
        lab.submit(lock_of(key, number));
        lab.turn();
        lab.say(&listed("5", &["queued 9"]));
        assert!(matches!(lab.turn()[..], [Event::Queued { .. }]));
    }
    for (number, key) in [(1, "a"), (2, "b")] {
        lab.submit(Command::Check { nonce: nonce(number), key: key.into(), token: None });
        lab.turn();
    }
    for number in [1, 2] {
        lab.say(&listed("5", &[&format!("9,{} unknown", nonce(number))]));
    }
    let events = lab.turn();
    assert!(matches!(events[..], [Event::Forgotten { .. }, Event::Forgotten { .. }]), "{events:?}");
    let logged = log.with("redis lost our queue entries");
    assert!(logged.len() == 1 && logged[0].contains("waiters=2"), "{logged:?}");
}

#[test]
fn malformed_reply_is_of_unknown_fate() {
    let mut lab = Lab::up();
    lab.submit(lock(1, Until::Now));
    lab.turn();
    lab.say("+what\r\n");
    let failed = (RequestId::Lock(nonce(1)), Fate::NoReply, true);
    assert_eq!(failures(&lab.turn()), [failed]);
}

#[test]
fn failed_check_of_a_hold_is_reported() {
    let mut lab = Lab::up();
    lab.submit(Command::Check { nonce: nonce(1), key: "k".into(), token: None });
    lab.submit(Command::Check { nonce: nonce(2), key: "k".into(), token: Some(7) });
    lab.turn();
    lab.say("-OOM command not allowed\r\n");
    let events = lab.turn();
    let failed = [RequestId::WaiterCheck(nonce(1)), RequestId::HeldCheck(nonce(2))];
    assert_eq!(failures(&events), failed.map(|request| (request, Fate::Refused, false)));
}

#[test]
fn checks_of_one_turn_leave_together() {
    let mut lab = Lab::up();
    for number in 1..=40 {
        let key = format!("k{}", number % 20);
        lab.submit(Command::Check { nonce: nonce(number), key: key.into(), token: None });
    }
    lab.turn();
    // In the turn after which it sleeps, one script for sixteen keys.
    let keys: Vec<String> = lab.commands().iter().map(|command| command[2].clone()).collect();
    assert_eq!(keys, [16 * 6, 4 * 6].map(|keys| keys.to_string()));
}
