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

/// The text of a reply with a grant of this process.
fn line(result: &str) -> Value {
    text(&format!("5 {result}\n{}", words(7)))
}

#[test]
fn every_reply_to_lock_is_read() {
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
    let replies = [
        ("granted 3", granted(3, lease)),
        ("again 3 700", granted(3, ms(700))),
        ("queued 700", Event::Queued { nonce: of, holder_lease: Some(ms(700)) }),
        ("held", Event::Held { nonce: of }),
        ("spent", Event::Ended { nonce: of }),
        ("stale", Event::Stale { nonce: of }),
        ("waiters 8", limit("waiters per key", 8)),
        ("nonces 8", limit("nonces remembered", 8)),
    ];
    for (words, result) in replies {
        for (value, grants) in
            [(line(words), vec![grant(7)]), (text(&format!("5 {words}")), Vec::new())]
        {
            let reply = locked(value).unwrap();
            assert_eq!((reply.now, reply.grants), (5, grants));
            assert_eq!(format!("{:?}", reply.result), format!("{result:?}"));
        }
    }
    for wrong in ["other", "", "again", "again 3", "granted x", "granted -3"] {
        locked(line(wrong)).unwrap_err();
    }
    for wrong in [text(""), text("granted 3"), text("5 held\nx"), Value::Int(5), Value::Nil] {
        locked(wrong).unwrap_err();
    }
}

#[test]
fn every_reply_to_unlock_is_read() {
    for (word, result) in [("held", true), ("gone", false)] {
        let expected = Reply { now: 5, grants: vec![grant(7)], result };
        assert_eq!(held(line(word)).unwrap(), expected);
    }
    let without_time = Reply { now: 0, grants: Vec::new(), result: true };
    assert_eq!(held(text("0 held")).unwrap(), without_time);
    for wrong in ["", "held", "held x", "x held", "6", "6 other", "6 held\n7"] {
        held(text(wrong)).unwrap_err();
    }
    held(Value::Int(1)).unwrap_err();
}

#[test]
fn poll_replies_follow_their_nonces() {
    let poll = |entries: &[&str]| {
        let entries = entries.iter().map(|entry| text(entry));
        Value::Array([line("700")].into_iter().chain(entries).collect())
    };
    let granted = format!("4 granted {}", words(4));
    let reply = found(poll(&["3 unknown", "1 spent", &granted]), 4).unwrap();
    let waiting = WaiterState::Waiting { remaining: Duration::from_millis(700) };
    assert_eq!(
        reply.result,
        [WaiterState::Ended, waiting, WaiterState::Unknown, WaiterState::Holds(grant(4))]
    );
    assert_eq!((reply.now, reply.grants), (5, vec![grant(7)]));
    // Positions that were not asked after, an unknown word, and no lease.
    for wrong in ["0 spent", "5 spent", "1 other", "1 granted", "spent"] {
        found(poll(&[wrong]), 4).unwrap_err();
    }
    found(array(&[line("")]), 4).unwrap_err();
}

#[test]
fn grant_counts_from_its_stamps() {
    // In the second pair the clock was stepped back between the two stamps.
    for (stamps, waited) in [("100 400", 300), ("100 50", 0)] {
        let grant = published(format!("1 {} 9 {stamps} 5000", nonce(7)).as_bytes());
        assert_eq!(grant.unwrap().waited, Duration::from_micros(waited));
    }
}

#[test]
fn publication_of_another_version_is_not_read() {
    assert_eq!(published(format!("1 {}", words(7)).as_bytes()), Some(grant(7)));
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
    let head = text(&format!("5 held {} 5 1 700 2\n{}", nonce(1), words(7)));
    let shown = inspected(array(&[head.clone(), text("42 host + a\nb c")])).unwrap();
    assert_eq!(shown.grants.len(), 1);
    let shown = shown.result.unwrap();
    assert_eq!(shown.owner.label.as_deref(), Some(" a\nb c"));
    assert_eq!((shown.owner.pid, shown.waiters, shown.fencing_token), (42, 2, 5));
    assert_eq!(inspected(text("5 free")).unwrap().result, None);
    let foreign = [text("5 foreign"), array(&[head, text("junk")])];
    for value in foreign {
        assert_eq!(inspected(value).unwrap_err(), "the stored value is not a lock");
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
    ["granted", "again", "queued", "spent", "held", "x", "1 2 3 4", "5 held\n6 7 8 9"];

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
        let _ = found(value.clone(), 3);
        let _ = inspected(value.clone());
        let _ = time(&value);
    }
}
