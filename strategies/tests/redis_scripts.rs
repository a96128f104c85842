//! Goal: the rules of the scripts for crashes, slow networks and clocks behind (contract, rules 5,
//! 6, 7 and 11).
//! Method: single scripts on the test's own `redis-server` with the arguments of such a fault; the
//! content of Redis is compared.
// A test that meets an error has failed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "redis_scripts/full.rs"]
mod full;
#[path = "redis_scripts/hand_off.rs"]
mod hand_off;
#[path = "redis_scripts/lists.rs"]
mod lists;
mod redis_support;
#[path = "redis_scripts/scripts.rs"]
mod scripts;
#[path = "redis_scripts/silence.rs"]
mod silence;

use redis::Value;
use scripts::*;

/// Contract, rule 5: the wall clock may be behind the last token.
#[tokio::test]
async fn tokens_rise_with_a_clock_behind() {
    let mut scripts = Scripts::start().await;
    // Some 130 years from now.
    let ahead = 6_000_000_000_000_000_i64;
    let _: Value = scripts.server.command(&["SET", TOKENS, &ahead.to_string()]).await;
    scripts.lock(1, 60_000, 0, false).await;
    assert_eq!(scripts.tokens().await, (ahead + 1, ahead + 1), "a free key, the shortest way");
    scripts.lock(2, 60_000, -1, false).await;
    scripts.unlock(1, false).await;
    assert_eq!(scripts.holder().await, Some(hex(2)));
    assert_eq!(scripts.tokens().await, (ahead + 2, ahead + 2), "granted to a waiter");
    scripts.lock(3, 60_000, -1, false).await;
    scripts.unlock(2, false).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
    assert_eq!(scripts.tokens().await, (ahead + 3, ahead + 3), "granted to the last waiter");
    scripts.unlock(3, false).await;
    scripts.lock(4, 60_000, 0, true).await;
    assert_eq!(scripts.tokens().await, (ahead + 4, ahead + 4), "a free key, and copies in flight");
}

/// A server that has lost its memory can grant a nonce again, to a copy of its LOCK.
#[tokio::test]
async fn force_unlock_leaves_a_later_grant_of_its_nonce() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    let (former, _) = scripts.tokens().await;
    let _: Value = scripts.server.command(&["FLUSHALL"]).await;
    scripts.lock(1, 60_000, 0, true).await;
    let (present, _) = scripts.tokens().await;
    for (token, ends, holder) in
        [(former, false, Some(hex(1))), (present, true, None), (present, false, None)]
    {
        let arguments = [&hex(1), &token.to_string(), "c", "notice"];
        let words = scripts.run(UNLOCK, 2, &arguments).await;
        assert_eq!(words.last().is_some_and(|word| word == "held"), ends, "{words:?}");
        assert_eq!(scripts.holder().await, holder);
    }
}

/// Contract, Outcomes: the holder keeps its lock.
#[tokio::test]
async fn refused_force_unlock_sends_no_notice() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    let token = scripts.tokens().await.0.to_string();
    let _: Value = scripts.server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let arguments = [&hex(1), &token, "c", "notice"];
    let refused = scripts.try_run(UNLOCK, 2, &arguments).await.unwrap_err();
    assert_eq!(refused.code(), Some("NOREPLICAS"));
    assert_eq!(scripts.server.calls("publish").await, 0);
    assert_eq!(scripts.holder().await, Some(hex(1)));
}

/// Contract, rule 6: its withdrawal may be forgotten by then.
#[tokio::test]
async fn lock_older_than_nonce_memory_is_refused() {
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

/// Contract, rule 6: each copy counts its wait to the same end.
#[tokio::test]
async fn copy_of_a_waiting_lock_is_a_sign_of_life() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    scripts.lock_as(2, 2, 60_000, 50_000, false).await;
    scripts.lock_as(3, 3, 60_000, -1, false).await;
    let record = ["HGET", WAITERS, &hex(2)];
    let before: String = scripts.server.command(&record).await;
    let silent = format!("@{:032x}", 2);
    let _: Value = scripts.server.command(&["HSET", WAITERS, &silent, "1"]).await;
    assert_eq!(scripts.lock_as(2, 2, 60_000, 40_000, true).await[1], "queued");
    assert_eq!(scripts.server.command::<String>(&record).await, before);
    scripts.unlock(1, false).await;
    assert_eq!(scripts.holder().await, Some(hex(2)));
}

/// Everything in Redis, with the names of all keys.
async fn content(scripts: &Scripts) -> (Vec<String>, full::Dump) {
    (scripts.server.keys().await, full::dump(scripts).await)
}

/// Contract, rule 11: every reason for a refusal.
#[tokio::test]
async fn refused_lock_leaves_no_memory() {
    for refusal in ["held", "waiters", "nonces", "spent", "stale"] {
        let mut scripts = Scripts::start().await;
        let (mut too_late, mut wait) = (NEVER, "-1");
        match refusal {
            "held" | "waiters" => {
                scripts.lock(1, 60_000, 0, false).await;
                scripts.lock(2, 60_000, -1, false).await;
                scripts.lock(3, 60_000, -1, false).await;
                (scripts.waiters_max, wait) = if refusal == "held" { (9, "0") } else { (2, "-1") };
            }
            "nonces" => {
                for nonce in 100..100 + NONCES_MAX {
                    scripts.unlock(u8::try_from(nonce).unwrap(), true).await;
                }
            }
            "spent" => drop(scripts.unlock(9, true).await),
            _ => too_late = "1",
        }
        let before = content(&scripts).await;
        let arguments = [too_late, &hex(9), "60000", wait, "c", "1 host -"];
        let words = scripts.run(LOCK, 3, &arguments).await;
        assert_eq!(words[1], refusal, "{words:?}");
        assert_eq!(content(&scripts).await, before, "{refusal}");
    }
}

/// A queue may be evicted alone.
#[tokio::test]
async fn waiter_without_its_queue_is_queued_again() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    for _ in 0..2 {
        scripts.lock(2, 60_000, -1, false).await;
        assert_eq!(scripts.number(&["ZCARD", QUEUE]).await, 1);
        let _: Value = scripts.server.command(&["DEL", QUEUE]).await;
    }
}

/// Contract, rule 11: of processes that have waited once, while the queue is never empty.
#[tokio::test]
async fn expired_signs_of_life_are_dropped_in_parts() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    scripts.lock(2, 60_000, -1, false).await;
    let mut cmd = redis::cmd("HSET");
    cmd.arg(WAITERS);
    // One of four is alive.
    for process in 10..4_000 {
        let until = if process % 4 == 0 { NEVER } else { "1" };
        cmd.arg(format!("@{process:032x}")).arg(until);
    }
    let _: Value = cmd.query_async(&mut scripts.connection).await.unwrap();
    for _ in 0..640 {
        scripts.lock(3, 60_000, -1, false).await;
        scripts.unlock(3, false).await;
    }
    let left = scripts.number(&["HLEN", WAITERS]).await;
    assert!((997..1_300).contains(&left), "{left} fields");
    assert_eq!(scripts.server.calls("hscan").await, 20, "one for 32 waiters");
}

/// A script drops a thousand dead waiters: a try is sent again, until the key is granted.
#[tokio::test]
async fn dead_waiters_refuse_no_try() {
    let mut scripts = Scripts::start().await;
    scripts.waiters_max = 3_000;
    scripts.lock(1, 60_000, 0, false).await;
    let (mut pairs, mut fields) = (Vec::new(), Vec::new());
    for nonce in 100..2_600_u32 {
        let nonce = format!("{nonce:032x}");
        pairs.extend([nonce.clone()].into_iter().flat_map(|nonce| ["1".to_owned(), nonce]));
        fields.extend([nonce, format!("-1 60000 10000 1 q {:032x} 1 host -", 7)]);
    }
    for (verb, name, words) in [("ZADD", QUEUE, pairs), ("HSET", WAITERS, fields)] {
        let mut cmd = redis::cmd(verb);
        let _: Value = cmd.arg(name).arg(words).query_async(&mut scripts.connection).await.unwrap();
    }
    scripts.expire().await;
    for _ in 0..2 {
        assert_eq!(scripts.lock(2, 60_000, 0, false).await.last().unwrap(), "stale");
    }
    assert_eq!(scripts.lock(2, 60_000, 0, false).await[1], "granted");
    assert_eq!(scripts.holder().await, Some(hex(2)));
}

/// The server was flushed, and a late copy of the LOCK was granted.
#[tokio::test]
async fn unlock_frees_a_later_grant_of_its_nonce_as_gone() {
    let mut scripts = Scripts::start().await;
    for waits in [false, true] {
        scripts.lock(1, 60_000, 0, false).await;
        let (token, _) = scripts.tokens().await;
        let _: Value = scripts.server.command(&["FLUSHALL"]).await;
        scripts.lock(1, 60_000, 0, true).await;
        if waits {
            scripts.lock(2, 60_000, -1, false).await;
        }
        let reply = scripts.run(UNLOCK, 1, &[&hex(1), &token.to_string(), "-", ""]).await;
        assert_eq!(reply[1], "gone");
        assert_eq!(scripts.holder().await, waits.then(|| hex(2)));
    }
}

#[tokio::test]
async fn unlocks_remember_up_to_nonces_max() {
    let mut scripts = Scripts::start().await;
    let most = u8::try_from(NONCES_MAX).unwrap();
    for nonce in 1..most + 20 {
        scripts.unlock(nonce, true).await;
    }
    assert_eq!(scripts.number(&["ZCARD", MEMORY]).await, NONCES_MAX);
    let latest: Option<f64> = scripts.server.command(&["ZSCORE", MEMORY, &hex(most + 19)]).await;
    assert!(latest.is_some(), "the first to be forgotten gave way");
}

#[tokio::test]
async fn forgotten_nonces_refuse_no_lock() {
    let mut scripts = Scripts::start().await;
    scripts.unlock(1, true).await;
    for nonce in 2..=NONCES_MAX {
        let nonce = format!("{nonce:032x}");
        let _: Value = scripts.server.command(&["ZADD", MEMORY, "1", &nonce]).await;
    }
    assert_eq!(scripts.lock(2, 60_000, 0, false).await[1], "granted");
}

/// Milliseconds that the memory of a nonce may still last, if it began a moment ago.
fn is_nonce_memory(left: i64) -> bool {
    (NONCE_MEMORY - 1_000..=NONCE_MEMORY + 1).contains(&left)
}

/// Contract, rule 6: whichever process runs the script.
#[tokio::test]
async fn requesters_nonce_memory_applies() {
    for unlocks in [false, true] {
        let mut scripts = Scripts::start().await;
        scripts.lock(1, 60_000, 0, false).await;
        scripts.lock_as(2, 2, 50_000, -1, false).await;
        scripts.memory = 1_000;
        scripts.unlock(1, false).await;
        let left = scripts.number(&["PTTL", GRANT]).await - 50_000;
        assert!(is_nonce_memory(left), "granted: {left} ms");
        scripts.extend(1, 2, 80_000).await;
        let left = scripts.number(&["PTTL", GRANT]).await - 80_000;
        assert!(is_nonce_memory(left), "extended: {left} ms");
        if unlocks {
            scripts.unlock(2, true).await;
            let left = scripts.remembered_for().await;
            assert!(is_nonce_memory(left), "unlocked: {left} ms");
        } else {
            scripts.expire().await;
            scripts.run(INSPECT, 1, &[]).await;
            let left = scripts.remembered_for().await - 80_000;
            assert!(is_nonce_memory(left), "expired: {left} ms");
        }
    }
}
