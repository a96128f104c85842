//! Goal: commands of one turn share entries.
//! Method: three groups, without nodes and without a network; the test carries every message.

use super::{
    ends_of_log,
    trio::{ALL, Trio, lock},
};
use crate::lock_table::{Command, LockRequest};

/// How many entries the first member's log grows by when it appends these LOCKs in a turn.
fn entries_of(trio: &mut Trio, nonces: std::ops::Range<u128>) -> u64 {
    let before = ends_of_log(trio.group(1)).0;
    let now = trio.now;
    nonces.for_each(|nonce| trio.group(1).submit(Command::Lock(lock(nonce))));
    assert!(trio.group(1).flush(now));
    ends_of_log(trio.group(1)).0 - before
}

#[test]
fn commands_of_a_turn_share_entries_in_order() {
    let mut trio = Trio::led_by_the_first();
    assert_eq!(entries_of(&mut trio, 1..17), 1);
    assert_eq!(entries_of(&mut trio, 17..34), 2, "sixteen and one");
    trio.deliver(&ALL);
    trio.settle(1, &ALL);
    for id in 1..=3 {
        assert!(trio.was_granted(id, 1), "the first has the key, at {id}");
        assert_eq!(trio.group(id).table().sizes().waiters, 32);
        let head = trio.group(id).table().next_waiter(&"k".into());
        assert_eq!(head.map(|(nonce, _)| nonce), Some(lock(2).nonce));
    }
}

#[test]
fn log_of_long_entries_is_compacted_early() {
    let mut trio = Trio::led_by_the_first();
    let key: std::sync::Arc<str> = "k".repeat(500).into();
    for turn in 0..1_500 {
        let now = trio.now;
        for nonce in 0..2 {
            let request = LockRequest { key: key.clone(), ..lock(turn * 2 + nonce) };
            trio.group(1).submit(Command::Lock(request));
        }
        assert!(trio.group(1).flush(now));
        trio.deliver(&ALL);
        trio.group(1).compact();
        trio.group(2).compact();
    }
    assert!((1_000..1_010).contains(&trio.group(1).log_len()), "{}", trio.group(1).log_len());
    assert!((1_000..1_010).contains(&trio.group(2).log_len()), "{}", trio.group(2).log_len());
    assert!(trio.group(3).log_len() >= 1_500, "it was not asked to");
}
