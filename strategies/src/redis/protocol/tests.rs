//! Goal: every reply and publication is read, and malformed bytes give an error.
//! Method: examples of each, and arbitrary values.

use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

fn array(parts: &[Value]) -> Value {
    Value::Array(parts.to_vec())
}

fn nonce(number: u128) -> Nonce {
    Nonce::from_u128(number)
}

/// A grant with a lease of five seconds, which waited for 300 µs.
fn grant(number: u128) -> Grant {
    Grant::example(nonce(number), 9)
}

fn words(number: u128) -> String {
    format!("{} 9 100 400 5000", nonce(number))
}

fn long(result: &[Value]) -> Value {
    let grants = array(&[text(&words(7))]);
    array(&[&[Value::Int(5), grants], result].concat())
}

#[test]
fn every_reply_to_lock_is_read() {
    let ms = Duration::from_millis;
    let replies = [
        (array(&[text("granted"), Value::Int(3)]), Locked::Now { token: 3 }),
        (
            array(&[text("again"), Value::Int(3), Value::Int(700)]),
            Locked::Again { token: 3, remaining: ms(700) },
        ),
        (array(&[text("queued"), Value::Int(700)]), Locked::Queued { remaining: ms(700) }),
        (array(&[text("held"), Value::Int(700)]), Locked::Held),
        (array(&[text("spent")]), Locked::Ended),
        (array(&[text("stale")]), Locked::Stale),
        (
            array(&[text("waiters"), Value::Int(8)]),
            Locked::Limit { what: "waiters per key", limit: 8 },
        ),
        (
            array(&[text("nonces"), Value::Int(8)]),
            Locked::Limit { what: "nonces remembered", limit: 8 },
        ),
    ];
    for (value, expected) in replies {
        let reply = locked(long(&[value])).unwrap();
        assert_eq!(reply, Reply { now: Some(5), grants: vec![grant(7)], result: expected });
    }
    for wrong in [array(&[text("other")]), array(&[]), array(&[text("again")]), Value::Nil] {
        locked(long(&[wrong])).unwrap_err();
    }
}

#[test]
fn fast_reply_to_lock_is_read() {
    let granted = locked(Value::Int(5)).unwrap();
    let expected = Reply { now: Some(5), grants: Vec::new(), result: Locked::Now { token: 5 } };
    assert_eq!(granted, expected);
    for wrong in [Value::Int(-1), text("5")] {
        locked(wrong).unwrap_err();
    }
}

#[test]
fn every_reply_to_unlock_is_read() {
    let (none, one) = (Vec::new, || vec![grant(7)]);
    let replies = [
        (Value::Int(1), None, none(), true),
        (text("held 6"), Some(6), none(), true),
        (text(&format!("held 6 {}", words(7))), Some(6), one(), true),
        (long(&[text("held")]), Some(5), one(), true),
        (long(&[text("waited")]), Some(5), one(), true),
        (long(&[text("gone")]), Some(5), one(), false),
    ];
    for (value, now, grants, result) in replies {
        assert_eq!(unlocked(value).unwrap(), Reply { now, grants, result });
    }
    for wrong in ["", "held", "held x", "held 6 7", "gone 6"] {
        unlocked(text(wrong)).unwrap_err();
    }
    for wrong in [Value::Int(0), long(&[text("other")]), long(&[])] {
        unlocked(wrong).unwrap_err();
    }
}

#[test]
fn every_reply_to_extend_is_read() {
    assert!(extended(long(&[text("held")])).unwrap().result);
    assert!(!extended(long(&[text("gone")])).unwrap().result);
    extended(long(&[text("waited")])).unwrap_err();
    extended(Value::Int(1)).unwrap_err();
}

#[test]
fn poll_replies_follow_their_nonces() {
    let groups = [vec![nonce(1), nonce(2), nonce(3)], vec![nonce(4), nonce(5)]];
    let numbers = |word: &str, numbers: &[i64]| {
        let place = [Value::Int(numbers[0]), text(word)];
        let rest = numbers[1..].iter().map(|number| Value::Int(*number));
        Value::Array(place.into_iter().chain(rest).collect())
    };
    let reply = long(&[
        array(&[Value::Int(700), numbers("unknown", &[3]), numbers("spent", &[1])]),
        array(&[Value::Int(0), numbers("granted", &[2, 9, 100, 400, 5000])]),
    ]);
    let waiting = |ms| Found::Waiting { remaining: Duration::from_millis(ms) };
    assert_eq!(
        found(reply, &groups).unwrap().result,
        [Found::Ended, waiting(700), Found::Unknown, waiting(0), Found::Holds(grant(5))]
    );
    // A place that was not asked after, an unknown word, and a group too few.
    for wrong in [numbers("spent", &[0]), numbers("spent", &[4]), numbers("other", &[1])] {
        let reply = long(&[array(&[Value::Int(700), wrong]), array(&[Value::Int(0)])]);
        found(reply, &groups).unwrap_err();
    }
    found(long(&[array(&[Value::Int(700)])]), &groups).unwrap_err();
}

#[test]
fn grant_counts_from_its_stamps() {
    let (waited, lease) = (Duration::from_micros(300), Duration::from_secs(5));
    assert_eq!(grant(7).waited_and_lease(lease * 2), (waited, lease));
    // A clock that was stepped back between the two.
    let stepped = Grant { granted: 50, ..grant(7) };
    assert_eq!(stepped.waited_and_lease(lease * 2), (Duration::ZERO, lease));
}

#[test]
fn publication_of_another_version_is_not_read() {
    assert_eq!(published(format!("1 3 {}", words(7)).as_bytes()), Some(grant(7)));
    assert_eq!(published(format!("2 3 {}", words(7)).as_bytes()), None);
    assert_eq!(published(format!("1 16 {}", words(7)).as_bytes()), None);
    assert_eq!(published(HELLO.as_bytes()), None);
}

#[test]
fn forced_unlock_is_read_as_it_was_written() {
    for (key, note) in [("k", "h, pid 1: it hangs"), ("a b\u{1f512}", ""), ("12 k", "12 k")] {
        let payload = forced_payload(nonce(7), 41, key, note);
        let read = forced(payload.as_bytes()).unwrap();
        assert_eq!((read.nonce, read.token, &*read.key, &*read.note), (nonce(7), 41, key, note));
        assert!(published(payload.as_bytes()).is_none());
    }
    let nonce = nonce(7);
    for wrong in ["2 7 41 1 k", "3 NONCE 41 1 k", "2 NONCE x 1 k", "2 NONCE 41 9 k", "2 NONCE 41"] {
        let wrong = wrong.replace("NONCE", &nonce.to_string());
        assert_eq!(forced(wrong.as_bytes()), None, "{wrong}");
    }
    // The length ends within a character.
    assert_eq!(forced(format!("2 {nonce} 41 1 \u{1f512}").as_bytes()), None);
}

#[test]
fn scan_ends_at_the_cursor_zero() {
    let names = || array(&[text("a"), text("b")]);
    let (found, next) = scanned(array(&[text("17"), names()])).unwrap();
    assert_eq!((found.len(), next.as_deref()), (2, Some("17")));
    assert_eq!(scanned(array(&[text("0"), names()])).unwrap().1, None);
    assert!(scanned(array(&[text("0")])).is_err() && scanned(Value::Nil).is_err());
}

#[test]
fn label_with_spaces_is_shown_whole() {
    let value = format!("{} - 5 1 1 42 host + a\nb c", nonce(1));
    let shown = inspected(long(&[text(&value), Value::Int(700), Value::Int(2)])).unwrap();
    let shown = shown.result.unwrap();
    assert_eq!(shown.owner.label.as_deref(), Some(" a\nb c"));
    assert_eq!((shown.owner.pid, shown.waiters, shown.fencing_token), (42, 2, 5));
    for free in [Value::Nil, Value::Boolean(false)] {
        assert_eq!(inspected(long(&[free])).unwrap().result, None);
    }
}

/// A host name is shown in errors.
#[test]
fn master_with_control_characters_is_refused() {
    let named = |host| master(array(&[text(host), text("6379")]));
    assert_eq!(named("r1.example"), Some(("r1.example".into(), 6379)));
    assert_eq!((named("r1\u{1b}[2J"), named("r1\u{9b}"), named("r\u{202e}1")), (None, None, None));
}

#[test]
fn server_time_is_read_in_microseconds() {
    assert_eq!(time(&array(&[text("3"), text("000007")])), Some(3_000_007));
    for wrong in [array(&[text("3")]), array(&[text("x"), text("7")]), Value::Nil] {
        assert_eq!(time(&wrong), None);
    }
    assert_eq!(time(&array(&[text(&u64::MAX.to_string()), text("7")])), None);
}

const WORDS: [&str; 8] =
    ["granted", "again", "queued", "spent", "held", "x", "1 2 3 4", "held 5 6 7 8 9"];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::Int),
        proptest::sample::select(&WORDS[..]).prop_map(text),
        proptest::collection::vec(any::<u8>(), 0..60).prop_map(Value::BulkString),
        Just(Value::Nil),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        proptest::collection::vec(inner, 0..6).prop_map(Value::Array)
    })
}

proptest! {
    #[test]
    fn no_reply_panics(
        value in any_value(),
        payload in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let _ = published(&payload);
        let _ = forced(&payload);
        let _ = scanned(value.clone());
        let _ = locked(value.clone());
        let _ = unlocked(value.clone());
        let _ = extended(value.clone());
        let _ = found(value.clone(), &[vec![nonce(1)], vec![nonce(2), nonce(3)]]);
        let _ = inspected(value.clone());
        let _ = time(&value);
        let _ = text_of(value);
    }
}

fn text_of(value: Value) -> String {
    super::text(value)
}
