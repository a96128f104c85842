//! Goal: waiters of this process count as alive, however late the replies are (contract, rule 7),
//! and leave nothing behind.
//! Method: as of its parent.

use super::*;

const TTL: Duration = Duration::from_millis(800);
/// A key gets a sign of life at least as often.
const SIGN: Duration = Duration::from_millis(300);

/// A lab whose backend is up, and whose connection may be silent for long.
fn lab() -> Lab {
    let options = Lab::options().waiter_ttl(TTL).request_timeout(Duration::from_secs(60));
    let mut lab = Lab::with(Way::Open, options);
    assert!(matches!(lab.connect()[..], [Event::Up { .. }]));
    lab
}

/// The polls that were sent: the key, and how many nonces are checked.
fn polls(lab: &mut Lab) -> Vec<(String, usize)> {
    let mut polls = Vec::new();
    for words in lab.commands() {
        if words[..2] != ["EVALSHA", Verb::Poll.hash()] {
            continue;
        }
        let (names, rest) = words[3..].split_at(words[2].parse().unwrap());
        // The options come first.
        for (names, nonces) in names.chunks(6).zip(&rest[1..]) {
            let key = names[2].rsplit(':').next().unwrap().to_owned();
            polls.push((key, nonces.split_whitespace().count()));
        }
    }
    polls
}

#[test]
fn sign_of_life_waits_for_no_reply() {
    let mut lab = lab();
    lab.submit(lock_of("k", 1));
    lab.turn();
    assert!(polls(&mut lab).is_empty());
    // The LOCK has no reply.
    for _ in 0..3 {
        assert_eq!(lab.backend.next_wake(), Some(lab.now.after(SIGN)));
        assert!(lab.after(SIGN - Duration::from_millis(1)).is_empty());
        assert!(polls(&mut lab).is_empty());
        assert!(lab.after(Duration::from_millis(1)).is_empty());
        assert_eq!(polls(&mut lab), [("k".to_owned(), 0)]);
    }
    // The check has no reply either.
    lab.say(&(listed("5", &["queued 9000"]) + &listed("5", &["9000"]).repeat(3)));
    assert!(matches!(lab.turn()[..], [Event::Queued { .. }]));
    lab.after(Duration::from_millis(200));
    lab.submit(Command::Check { nonce: nonce(1), key: "k".into(), token: None });
    lab.turn();
    assert_eq!(polls(&mut lab), [("k".to_owned(), 1)]);
    for _ in 0..2 {
        lab.after(SIGN);
        assert_eq!(polls(&mut lab), [("k".to_owned(), 0)]);
    }
}

/// Contract, rule 7. Both wait for one key, and one of them is due.
#[test]
fn check_of_a_waiter_checks_its_neighbours() {
    let mut lab = lab();
    (1..=2).for_each(|number| lab.submit(lock_of("k", number)));
    lab.turn();
    lab.say(&listed("5", &["queued 9000", "queued 9000"]));
    lab.turn();
    lab.submit(Command::Check { nonce: nonce(2), key: "k".into(), token: None });
    lab.turn();
    assert_eq!(polls(&mut lab), [("k".to_owned(), 2)]);
    lab.say(&listed("5", &["9000"]));
    let events = lab.turn();
    assert!(matches!(events[..], [Event::Queued { .. }, Event::Queued { .. }]), "{events:?}");
}

/// The grant that a sign of life finds is that of its waiter.
#[test]
fn sign_of_life_finds_a_grant() {
    let mut lab = lab();
    lab.submit(lock_of("k", 1));
    lab.turn();
    lab.after(SIGN);
    assert_eq!(polls(&mut lab).len(), 1);
    let grant = format!("5\n{} 9 100 400 3000", nonce(1));
    lab.say(&(listed("5", &["queued 9000"]) + &listed(&grant, &["9000"])));
    let events = lab.turn();
    assert!(matches!(events[..], [Event::Queued { .. }, Event::Granted { token: 9, .. }]));
    lab.after(SIGN);
    assert!(polls(&mut lab).is_empty(), "nothing waits");
    assert_eq!(lab.backend.waiters.next_sign(), None);
}

#[test]
fn signs_of_life_are_of_each_key_by_its_latest_request() {
    let mut lab = lab();
    lab.submit(lock_of("a", 1));
    lab.submit(lock_of("b", 2));
    lab.turn();
    lab.after(Duration::from_millis(100));
    lab.submit(lock_of("b", 3));
    lab.turn();
    lab.commands();
    lab.after(Duration::from_millis(200));
    assert_eq!(polls(&mut lab), [("a".to_owned(), 0)]);
    lab.after(Duration::from_millis(100));
    assert_eq!(polls(&mut lab), [("b".to_owned(), 0)]);
    assert_eq!(lab.backend.next_wake(), Some(lab.now.after(Duration::from_millis(200))));
}

/// A server that replies to nothing must not make the requests pile up.
#[test]
fn signs_of_life_are_bounded() {
    let mut lab = lab();
    // More than 256 lists.
    for number in 0..4_200 {
        lab.submit(lock_of(&format!("k{}", number % 10), number));
    }
    lab.turn();
    lab.commands();
    for _ in 0..10 {
        lab.after(SIGN);
    }
    assert!(polls(&mut lab).is_empty());
    assert!(lab.backend.next_wake().unwrap() > lab.now.after(SIGN));
}

#[test]
fn many_keys_are_checked_less_often() {
    let options = Lab::options().waiter_ttl(Duration::from_secs(60));
    let mut lab = Lab::with(Way::Open, options);
    lab.connect();
    for number in 0..2_000 {
        lab.submit(lock_of(&format!("k{number}"), number));
    }
    let [Event::MinCheckInterval(interval)] = lab.turn()[..] else { panic!("its interval") };
    assert!(interval >= Duration::from_millis(1_500));
}

#[test]
fn lost_connection_needs_no_sign_of_life() {
    let mut lab = lab();
    lab.submit(lock_of("k", 1));
    lab.turn();
    lab.say(&listed("5", &["queued 9000"]));
    lab.turn();
    lab.way(Way::Silent);
    lab.server = None;
    assert!(matches!(lab.turn()[..], [Event::Reconnecting { .. }]));
    let pause = lab.backend.next_wake().unwrap().since(lab.now);
    lab.after(pause);
    assert_eq!(lab.backend.next_wake(), Some(lab.now.after(CONNECT_TIMEOUT / 5)));
    lab.after(Duration::from_millis(1));
}

/// Contract, rule 11.
#[test]
fn refused_lock_leaves_no_waiter() {
    let replies = ["held", "spent", "stale", "waiters 9", "nonces 9", "granted 7"];
    let errors = ["OOM command not allowed", "NOPERM no permissions", "WRONGTYPE Operation"];
    let replies = replies.map(|reply| listed("5", &[reply]));
    for reply in replies.into_iter().chain(errors.map(|error| format!("-{error}\r\n"))) {
        let mut lab = lab();
        lab.submit(lock_of("k", 1));
        lab.turn();
        assert!(!lab.backend.waiters.is_empty());
        lab.say(&reply);
        assert_eq!(lab.turn().len(), 1, "{reply}");
        assert!(lab.backend.waiters.is_empty(), "{reply}");
    }
    let mut lab = lab();
    lab.submit(lock_of("k", 1));
    lab.submit(Command::Unlock {
        nonce: nonce(1),
        key: "k".into(),
        token: 0,
        copies: false,
        forced: None,
    });
    assert!(lab.backend.waiters.is_empty(), "withdrawn");
}
