//! Goal: the rules of the scripts that decide what a crash, a slow network or a clock behind leaves
//! behind (contract, rules 5, 6, 7 and 11), one by one.
//! Method: each script as it ships, sent to a `redis-server` of the test's own with arguments that
//! only such a fault would bring together, and what is then in Redis.
// A test that meets an error has failed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "redis_scripts/hand_over.rs"]
mod hand_over;
mod redis_support;
#[path = "redis_scripts/scripts.rs"]
mod scripts;

use redis::Value;
use redis_support::ms;
use scripts::*;

/// Contract, rule 5: the wall clock may be behind the last token.
#[tokio::test]
async fn tokens_rise_although_the_servers_clock_is_behind_the_last() {
    let mut scripts = Scripts::start().await;
    // Some 130 years from now.
    let ahead = 6_000_000_000_000_000_i64;
    let _: Value = scripts.server.command(&["SET", TOKENS, &ahead.to_string()]).await;
    scripts.lock(1, 60_000, 0, false).await;
    assert_eq!(scripts.tokens().await, (ahead + 1, ahead + 1), "a free key, the shortest way");
    scripts.lock(2, 60_000, -1, false).await;
    scripts.unlock(1, false).await;
    assert_eq!(scripts.holder().await, Some(hex(2)));
    assert_eq!(scripts.tokens().await, (ahead + 2, ahead + 2), "handed over");
    scripts.lock(3, 60_000, -1, false).await;
    scripts.unlock(2, false).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
    assert_eq!(scripts.tokens().await, (ahead + 3, ahead + 3), "handed over the short way");
    scripts.unlock(3, false).await;
    scripts.lock(4, 60_000, 0, true).await;
    assert_eq!(scripts.tokens().await, (ahead + 4, ahead + 4), "a free key, and copies under way");
}

/// Full memory refuses new locks alone: who waits gets the key, by an unlock, and by a poll after the lease
/// before it.
#[tokio::test]
async fn a_full_server_hands_keys_on() {
    for polls in [false, true] {
        let mut scripts = Scripts::start().await;
        scripts.lock(1, 60_000, 0, false).await;
        scripts.lock(2, 60_000, -1, false).await;
        if polls {
            let silent = format!("@{:032x}", 1);
            let _: Value = scripts.server.command(&["HDEL", WAITERS, &silent]).await;
            let _: Value = scripts.server.command(&["DEL", HOLDER]).await;
        }
        let _: Value = scripts.server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let answer = match polls {
            false => scripts.unlock(1, false).await,
            true => scripts.run(POLL, 1, &["1", &hex(2)]).await,
        };
        assert_eq!(scripts.holder().await, Some(hex(2)), "polls: {polls}: {answer:?}");
    }
}

/// Contract, rule 6: what was withdrawn may be forgotten by then.
#[tokio::test]
async fn a_lock_that_has_seen_nothing_newer_than_the_memory_is_refused() {
    let mut scripts = Scripts::start().await;
    let now: Vec<u64> = scripts.server.command(&["TIME"]).await;
    let now = now[0] * 1_000_000 + now[1];
    for (too_late, granted) in [(now - 1, false), (now + 60_000_000, true)] {
        let arguments = [&too_late.to_string(), &hex(1), "60000", "-1", "-", "1 host -"];
        let words = scripts.run(LOCK, 1, &arguments).await;
        assert_eq!(words.last().unwrap() != "stale", granted, "{words:?}");
        assert_eq!(scripts.holder().await.is_some(), granted);
    }
}

/// Contract, rules 6 and 11: a LOCK was repeated, so a copy of it may come after the unlock, for as
/// long as the memory and no longer.
#[tokio::test]
async fn the_end_of_a_lock_that_was_repeated_is_remembered_from_its_unlock_on() {
    for grants_first in [false, true] {
        let mut scripts = Scripts::start().await;
        // Either it was repeated from the first, or the key was granted before it was repeated.
        if grants_first {
            scripts.lock(1, 60_000, 0, false).await;
        }
        scripts.lock(1, 60_000, 0, true).await;
        assert!(scripts.remembered_for().await > 60_000, "while it holds, beyond its end");
        scripts.unlock(1, false).await;
        let left = scripts.remembered_for().await;
        assert!((NONCE_MEMORY - 1_000..=NONCE_MEMORY + 1).contains(&left), "{left} ms");
        let copy = scripts.lock(1, 60_000, 0, true).await;
        assert_eq!(copy.last().unwrap(), "spent");
    }
}

/// Contract, rule 6: nobody may take the key with a copy after its end.
#[tokio::test]
async fn the_memory_of_a_repeated_lock_is_extended_with_its_lease() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 1_000, 0, true).await;
    scripts.run(EXTEND, 1, &[&hex(1), "60000"]).await;
    let left = scripts.remembered_for().await;
    assert!(left > 60_000 + NONCE_MEMORY - 1_000, "{left} ms");
    // One that nobody repeated leaves nothing to remember.
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 1_000, 0, false).await;
    scripts.run(EXTEND, 1, &[&hex(1), "60000"]).await;
    assert_eq!(scripts.remembered_for().await, -2);
}

/// Contract, rule 7: its process lives and did not come to withdraw it.
#[tokio::test]
async fn a_waiter_past_its_deadline_is_passed_over_although_its_process_lives() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    scripts.lock(2, 60_000, 20, false).await;
    scripts.lock(3, 60_000, 5_000, false).await;
    tokio::time::sleep(ms(40)).await;
    scripts.unlock(1, false).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
    assert_eq!(scripts.number(&["ZCARD", QUEUE]).await, 0);
}

/// Contract, rule 7: its deadline is far, and nobody of its process was heard.
#[tokio::test]
async fn a_waiter_of_a_silent_process_is_passed_over_although_its_deadline_is_far() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    scripts.lock(2, 60_000, 60_000, false).await;
    let silent = format!("@{:032x}", 1);
    let _: Value = scripts.server.command(&["HSET", WAITERS, &silent, "1"]).await;
    let arguments = [NEVER, &hex(3), "60000", "60000", "-", "1 host -"];
    scripts.run(LOCK, 2, &arguments).await;
    scripts.run(UNLOCK, 2, &[&hex(1), "-"]).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
}

/// A repeated LOCK may lengthen the wait: each of its callers counts on its own.
#[tokio::test]
async fn a_repeated_lock_does_not_shorten_the_wait() {
    for (first, again, waits) in [(5_000, 20, true), (20, 5_000, true), (20, 21, false)] {
        let mut scripts = Scripts::start().await;
        scripts.lock(1, 60_000, 0, false).await;
        scripts.lock(2, 60_000, first, false).await;
        scripts.lock(2, 60_000, again, false).await;
        tokio::time::sleep(ms(50)).await;
        scripts.unlock(1, false).await;
        let found = scripts.run(POLL, 1, &["1", &hex(2)]).await;
        let granted = found.contains(&"granted".to_owned());
        assert_eq!(granted, waits, "{first} ms, then {again} ms: {found:?}");
    }
}
