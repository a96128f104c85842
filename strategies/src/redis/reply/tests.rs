use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

#[test]
fn a_place_in_the_queue_is_told_apart_from_every_other_answer_to_a_lock() {
    let array = |parts: &[Value]| Value::Array(parts.to_vec());
    let (now, none) = (Value::Int(5), array(&[]));
    let queued = array(&[text("queued"), Value::Int(700)]);
    let place = Some((5, Duration::from_millis(700)));
    assert_eq!(only_queued(&text("queued 5 700")), place);
    assert_eq!(only_queued(&array(&[now.clone(), none.clone(), queued.clone()])), place);
    // A waiter's grant comes with it, and must be told.
    let own = array(&[text("grant")]);
    assert_eq!(only_queued(&array(&[now.clone(), own, queued.clone()])), None);
    assert_eq!(only_queued(&now), None, "granted");
    for other in ["queued 5", "queued 5 -1", "queued 5 700 1", "queued 5 x", "held 5", "5 700"] {
        assert_eq!(only_queued(&text(other)), None, "{other}");
    }
    for other in ["granted", "held", "waiters"] {
        let other = array(&[text(other), Value::Int(700)]);
        assert_eq!(only_queued(&array(&[now.clone(), none.clone(), other])), None);
    }
    let two = array(&[now, none, queued.clone(), queued]);
    assert_eq!(only_queued(&two), None, "of two requests");
}

#[test]
fn a_grant_of_the_shortest_way_has_its_time_or_is_its_time() {
    let later = vec![Value::Int(5), Value::Array(Vec::new()), Value::Int(7)];
    for (value, now, token) in [(Value::Int(5), 5, 5), (Value::Array(later), 5, 7)] {
        let mut reply = Reply::read(value).unwrap();
        assert_eq!(reply.answer().unwrap(), Answer::Granted { token });
        assert_eq!((reply.now, reply.short), (Some(now), true));
    }
    let other = vec![Value::Int(5), Value::Array(Vec::new()), Value::Array(Vec::new())];
    assert!(!Reply::read(Value::Array(other)).unwrap().short);
}

#[test]
fn a_text_is_a_place_or_says_who_has_the_key_now() {
    let mut queued = Reply::read(text("queued 5 700")).unwrap();
    assert_eq!((queued.now, queued.short, queued.own.len()), (Some(5), false, 0));
    let remaining = Duration::from_millis(700);
    assert_eq!(queued.answer().unwrap(), Answer::Queued { remaining });
    let mut other = Reply::read(text("held 6")).unwrap();
    assert_eq!((other.now, other.short, other.own.len()), (Some(6), false, 0));
    assert!(other.held().unwrap());
    let nonce = Nonce::from_u128(7);
    let mut ours = Reply::read(text(&format!("held 6 {nonce} 9 4 6"))).unwrap();
    let granted = Granted { nonce, token: 9, enqueued: 4, granted: 6 };
    assert_eq!(ours.own, [granted]);
    assert_eq!((ours.now, ours.held().unwrap()), (Some(6), true));
    for wrong in ["", "held", "held x", "held 6 7", "gone 6", "queued 5"] {
        assert!(Reply::read(text(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn a_publication_is_read_and_another_version_is_not() {
    let nonce = Nonce::from_u128(7);
    let (bucket, granted) =
        Granted::published(format!("1 3 {nonce} 9 100 200").as_bytes()).unwrap();
    assert_eq!((bucket, granted.nonce, granted.token), (3, nonce, 9));
    assert_eq!((granted.enqueued, granted.granted), (100, 200));
    assert_eq!(Granted::published(format!("2 3 {nonce} 9 100 200").as_bytes()), None);
    assert_eq!(Granted::published(format!("1 16 {nonce} 9 100 200").as_bytes()), None);
}

#[test]
fn a_label_with_spaces_and_line_ends_is_shown_whole() {
    let value = format!("{} - 5 1 1 42 host + a\nb c", Nonce::from_u128(1));
    let reply = Value::Array(vec![
        Value::Int(1),
        Value::Array(vec![]),
        text(&value),
        Value::Int(700),
        Value::Int(2),
    ]);
    let shown = Reply::read(reply).unwrap().inspection().unwrap().unwrap();
    assert_eq!(shown.owner.label.as_deref(), Some(" a\nb c"));
    assert_eq!((shown.owner.pid, shown.waiters, shown.fencing_token), (42, 2, 5));
}

const WORDS: [&str; 9] =
    ["granted", "again", "queued", "spent", "held", "x", "1 2 3 4", "queued 5 6", "held 5 6 7 8 9"];

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
    fn no_reply_panics(value in any_value(), payload in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = Granted::published(&payload);
        for verb in 0..4 {
            let Ok(mut reply) = Reply::read(value.clone()) else { continue };
            match verb {
                0 => drop(reply.answer()),
                1 => drop(reply.held()),
                2 => drop(reply.found(&[Nonce::from_u128(1)])),
                _ => drop(reply.inspection()),
            }
        }
    }
}
