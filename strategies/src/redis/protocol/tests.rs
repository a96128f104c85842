//! Goal: every reply and publication is read, and malformed bytes give an error.
//! Method: examples of each, and arbitrary values.

use proptest::prelude::*;

use super::*;

impl Grant {
    pub(in crate::redis) fn example(nonce: Nonce, token: u64) -> Self {
        Self { nonce, token, waited: Duration::from_micros(300), lease: Duration::from_secs(5) }
    }
}

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

#[test]
fn reply_has_a_result_for_each_request() {
    let tail = format!("5\n{}\n{}", words(7), words(8));
    let read = replies(text(&format!("held\n-WRONGTYPE an error\n{tail}")), 2).unwrap();
    assert_eq!((read.now, &read.grants[..]), (5, &[grant(7), grant(8)][..]));
    let [held, Value::ServerError(error)] = &read.results[..] else { panic!("{read:?}") };
    assert_eq!((held, error.code()), (&text("held"), "WRONGTYPE"));
    assert_eq!(error.details(), Some("an error"));
    for (wrong, count) in [
        (text(&format!("held\n{tail}")), 2),
        (text(&format!("held\nheld\n{tail}")), 1),
        (text("held"), 1),
        (text("held\nx"), 1),
        (text("held\n5\nx"), 1),
        (text("-\r\n:5\n5"), 1),
        (text(""), 1),
        (array(&[text("held"), text("5")]), 1),
        (Value::Int(5), 1),
        (Value::Nil, 1),
    ] {
        replies(wrong, count).unwrap_err();
    }
}

#[test]
fn every_result_of_lock_is_read() {
    let (ms, of, key) = (Duration::from_millis, nonce(1), Arc::<str>::from("k"));
    let lease = ms(5000);
    let locked = |value| locked(value, of, &key, lease);
    let granted = |token, lease| Event::Granted {
        nonce: of,
        key: key.clone(),
        token,
        waited: Duration::ZERO,
        lease,
    };
    let limit = |what, limit| Event::Limit { nonce: of, what, limit };
    let results = [
        ("granted 3", granted(3, lease)),
        ("again 3 700", granted(3, ms(700))),
        ("queued 700", Event::Queued { nonce: of, holder_lease: Some(ms(700)) }),
        ("held", Event::Held { nonce: of }),
        ("spent", Event::Ended { nonce: of }),
        ("stale", Event::Stale { nonce: of }),
        ("waiters 8", limit("waiters per key", 8)),
        ("nonces 8", limit("nonces remembered", 8)),
    ];
    for (words, result) in results {
        assert_eq!(format!("{:?}", locked(text(words)).unwrap()), format!("{result:?}"));
    }
    for wrong in ["other", "", "again", "again 3", "granted x", "granted -3"] {
        locked(text(wrong)).unwrap_err();
    }
    for wrong in [Value::Int(5), Value::Nil, array(&[text("held")])] {
        locked(wrong).unwrap_err();
    }
}

#[test]
fn every_result_of_unlock_is_read() {
    assert_eq!((held(text("held")), held(text("gone"))), (Ok(true), Ok(false)));
    for wrong in ["", "held x", "6 held", "other"] {
        held(text(wrong)).unwrap_err();
    }
    held(Value::Int(1)).unwrap_err();
}

#[test]
fn results_of_poll_name_their_nonces() {
    let poll = |parts: &[String]| {
        let parts = [&["700".to_owned()], parts].concat().join(",");
        found(text(&parts), (1..=4).map(nonce))
    };
    let parts = [format!("{} unknown", nonce(3)), format!("{} spent", nonce(1)), words(4)];
    let waiting = WaiterState::Waiting { remaining: Duration::from_millis(700) };
    assert_eq!(
        poll(&parts).unwrap(),
        [WaiterState::Ended, waiting, WaiterState::Unknown, WaiterState::Holds(grant(4))]
    );
    assert_eq!(poll(&[]).unwrap(), [waiting; 4]);
    for wrong in ["x spent", "", &format!("{} other", nonce(1)), &nonce(1).to_string()] {
        poll(&[wrong.to_owned()]).unwrap_err();
    }
    found(text(""), [nonce(1)].into_iter()).unwrap_err();
}

#[test]
fn grant_counts_from_its_stamps() {
    // In the second pair the clock was stepped back between the two stamps.
    for (stamps, waited) in [("100 400", 300), ("100 50", 0)] {
        let grant = published(format!("1 {} 9 {stamps} 5000", nonce(7)).as_bytes());
        assert_eq!(grant.unwrap()[0].waited, Duration::from_micros(waited));
    }
}

#[test]
fn publication_of_another_version_is_not_read() {
    assert_eq!(published(format!("1 {}", words(7)).as_bytes()), Some(vec![grant(7)]));
    let two = format!("1 {}\n{}", words(7), words(8));
    assert_eq!(published(two.as_bytes()), Some(vec![grant(7), grant(8)]));
    assert_eq!(published(format!("1 {}\nx", words(7)).as_bytes()), None);
    assert_eq!(published(format!("2 {}", words(7)).as_bytes()), None);
    assert_eq!(published(b"1 x 9 100 400 5000"), None);
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
    let head = format!("held {} 5 1 700 2", nonce(1));
    let shown = inspected(text(&format!("{head} 42 host + a%0Ab%25 c")), 5).unwrap().unwrap();
    assert_eq!(shown.owner.label.as_deref(), Some(" a\nb% c"));
    assert_eq!((shown.owner.pid, shown.waiters, shown.fencing_token), (42, 2, 5));
    assert_eq!(shown.held_for, Duration::from_micros(4));
    assert_eq!(inspected(text("free"), 5).unwrap(), None);
    for foreign in ["foreign".to_owned(), format!("{head} junk"), head] {
        let error = inspected(text(&foreign), 5).unwrap_err();
        assert_eq!(error, "the stored value is not a lock");
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
    ["granted", "again", "queued", "spent", "held", "x", "1 2 3 4", "5\n6 7 8 9"];

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
        let _ = locked(value.clone(), nonce(1), &"k".into(), Duration::ZERO);
        let _ = held(value.clone());
        let _ = found(value.clone(), [nonce(1)].into_iter());
        let _ = inspected(value.clone(), 5);
        let _ = replies(value.clone(), 2);
        let _ = time(&value);
    }
}
