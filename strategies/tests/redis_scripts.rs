//! Goal: the rules of the scripts that decide what a crash, a slow network or a clock behind leaves
//! behind (contract, rules 5, 6, 7 and 11), one by one.
//! Method: each script as it ships, sent to a `redis-server` of the test's own with arguments that
//! only such a fault would bring together, and what is then in Redis.
// A test that meets an error has failed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use futures_util::StreamExt;
use redis::{Value, aio::MultiplexedConnection};
use redis_support::{Server, ms};

const SETTLE: &str = include_str!("../src/redis/settle.lua");
const LOCK: &str = include_str!("../src/redis/lock.lua");
const UNLOCK: &str = include_str!("../src/redis/unlock.lua");
const EXTEND: &str = include_str!("../src/redis/extend.lua");
const POLL: &str = include_str!("../src/redis/poll.lua");
const MANY: &str = include_str!("../src/redis/many.lua");

const NAMES: [&str; 6] =
    ["ns:{b0}:t", "ns:{b0}:x", "ns:{b0}:l:k", "ns:{b0}:f:k", "ns:{b0}:a:k", "ns:{b0}:g:k"];
const TOKENS: &str = NAMES[0];
const MEMORY: &str = NAMES[1];
const HOLDER: &str = NAMES[2];
const QUEUE: &str = NAMES[3];
const WAITERS: &str = NAMES[4];
const NONCE_MEMORY: i64 = 10_000;
/// No LOCK is too old.
const NEVER: &str = "9000000000000000";

struct Scripts {
    server: Server,
    connection: MultiplexedConnection,
}

impl Scripts {
    async fn start() -> Self {
        let server = Server::start().await;
        let connection = server.connection().await;
        Self { server, connection }
    }

    /// Runs a script as process `p`, and returns its words.
    async fn run(&mut self, script: &str, process: u8, arguments: &[&str]) -> Vec<String> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script.replace("-- include settle.lua\n", SETTLE)).arg(NAMES.len()).arg(&NAMES);
        cmd.arg(format!("{process:032x}")).arg(format!("{NONCE_MEMORY} 0 3000 100 100 ns:p:"));
        let reply: Value = cmd.arg(arguments).query_async(&mut self.connection).await.unwrap();
        let mut words = Vec::new();
        flatten(&reply, &mut words);
        words
    }

    /// A LOCK that waits for `wait` ms; `copies` of it may be under way.
    async fn lock(&mut self, nonce: u8, duration: u64, wait: i64, copies: bool) -> Vec<String> {
        let (nonce, duration, wait) = (hex(nonce), duration.to_string(), wait.to_string());
        let arguments = [NEVER, &nonce, &duration, &wait, flag(copies), "1 host -"];
        self.run(LOCK, 1, &arguments).await
    }

    async fn unlock(&mut self, nonce: u8, copies: bool) -> Vec<String> {
        self.run(UNLOCK, 1, &[&hex(nonce), flag(copies), "0"]).await
    }

    /// The LOCK of many, for one.
    async fn lock_many(&mut self, nonce: u8, too_late: &str) -> Vec<String> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(MANY).arg(5).arg(&[TOKENS, MEMORY, QUEUE, NAMES[5], HOLDER]);
        cmd.arg(&["0", "1", too_late, &hex(nonce), "60000", "1 host -"]);
        let reply: Value = cmd.query_async(&mut self.connection).await.unwrap();
        let mut words = Vec::new();
        flatten(&reply, &mut words);
        words
    }

    async fn number(&self, words: &[&str]) -> i64 {
        self.server.command::<Option<i64>>(words).await.unwrap_or(-1)
    }

    async fn holder(&self) -> Option<String> {
        let value: Option<String> = self.server.command(&["GET", HOLDER]).await;
        value.map(|value| value[..32].to_owned())
    }

    /// The token in the holder's value, and the counter.
    async fn tokens(&self) -> (i64, i64) {
        let value: String = self.server.command(&["GET", HOLDER]).await;
        let token = value.split(' ').nth(2).unwrap().parse().unwrap();
        (token, self.number(&["GET", TOKENS]).await)
    }

    /// For how many milliseconds more anything is remembered.
    async fn remembered_for(&self) -> i64 {
        self.number(&["PTTL", MEMORY]).await
    }
}

fn flatten(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Array(parts) => parts.iter().for_each(|part| flatten(part, words)),
        Value::Int(number) => words.push(number.to_string()),
        Value::BulkString(bytes) => words.push(String::from_utf8_lossy(bytes).into_owned()),
        other => panic!("{other:?}"),
    }
}

fn hex(nonce: u8) -> String {
    format!("{nonce:032x}")
}

fn flag(copies: bool) -> &'static str {
    if copies { "c" } else { "-" }
}

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
    scripts.unlock(2, false).await;
    scripts.lock(3, 60_000, 0, true).await;
    assert_eq!(scripts.tokens().await, (ahead + 3, ahead + 3), "a free key, and copies under way");
    let mut scripts = Scripts::start().await;
    let _: Value = scripts.server.command(&["SET", TOKENS, &ahead.to_string()]).await;
    let answer = scripts.lock_many(1, NEVER).await;
    assert_eq!(answer.last(), Some(&(ahead + 1).to_string()), "{answer:?}");
    assert_eq!(answer.len(), 2, "its time is not its token");
    assert_eq!(scripts.tokens().await, (ahead + 1, ahead + 1), "a free key, among many");
}

/// An error says that nothing was done: the requests are made again, one by one.
#[tokio::test]
async fn many_that_meet_a_full_server_free_nothing() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    let other = ["ns:{b1}:t", "ns:{b1}:x", "ns:{b1}:f:o", "ns:{b1}:g:o", "ns:{b1}:l:o"];
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(MANY).arg(7).arg(&[HOLDER, other[0], QUEUE, other[1], other[2], other[3], other[4]]);
    cmd.arg(&["1", "1", NEVER, &hex(1), &hex(2), "60000", "1 host -"]);
    let _: Value = scripts.server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let full: Result<Value, _> = cmd.query_async(&mut scripts.connection).await;
    assert_eq!(full.unwrap_err().code(), Some("OOM"));
    assert_eq!(scripts.holder().await, Some(hex(1)));
    let _: Value = scripts.server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let done: Value = cmd.query_async(&mut scripts.connection).await.unwrap();
    assert!(matches!(done, Value::Array(answers) if answers[0] == Value::Int(1)));
    assert_eq!(scripts.holder().await, None);
    assert_eq!(scripts.number(&["EXISTS", other[4]]).await, 1);
}

/// Full memory refuses new locks alone: who waits gets the key, by an unlock of either way, and by a poll
/// after the lease before it.
#[tokio::test]
async fn a_full_server_hands_keys_on() {
    for case in 0..3 {
        let mut scripts = Scripts::start().await;
        scripts.lock(1, 60_000, 0, false).await;
        scripts.lock(2, 60_000, -1, false).await;
        if case == 2 {
            let silent = format!("@{:032x}", 1);
            let _: Value = scripts.server.command(&["HDEL", WAITERS, &silent]).await;
            let _: Value = scripts.server.command(&["DEL", HOLDER]).await;
        }
        let _: Value = scripts.server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let answer = match case {
            0 => scripts.run(UNLOCK, 1, &[&hex(1), "-"]).await,
            1 => scripts.run(UNLOCK, 1, &[&hex(1), "-", "0"]).await,
            _ => scripts.run(POLL, 1, &["1", &hex(2)]).await,
        };
        assert_eq!(scripts.holder().await, Some(hex(2)), "case {case}: {answer:?}");
    }
}

/// Contract, rule 6: a waiter's lease has run out, and its end is remembered by whoever comes next.
#[tokio::test]
async fn many_leave_a_key_alone_whose_last_holder_came_from_the_queue() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    scripts.lock(2, 60_000, -1, false).await;
    scripts.unlock(1, false).await;
    assert_eq!(scripts.holder().await, Some(hex(2)));
    let _: Value = scripts.server.command(&["DEL", HOLDER]).await;
    assert_eq!(scripts.lock_many(3, NEVER).await, ["0"]);
    assert_eq!(scripts.holder().await, None);
    let late = scripts.lock(2, 60_000, 0, true).await;
    assert_eq!(late.last().unwrap(), "spent");
}

#[tokio::test]
async fn many_grants_of_one_bucket_have_a_token_each() {
    for ahead in [None, Some("6000000000000000")] {
        let scripts = Scripts::start().await;
        if let Some(ahead) = ahead {
            let _: Value = scripts.server.command(&["SET", TOKENS, ahead]).await;
        }
        let own = |part: &str| ["1", "2", "3"].map(|key| format!("ns:{{b0}}:{part}:{key}"));
        let (locks, queues, grants) = (own("l"), own("f"), own("g"));
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(MANY).arg(15).arg(&[TOKENS; 3]);
        for (queue, grant) in queues.iter().zip(&grants) {
            cmd.arg(MEMORY).arg(queue).arg(grant);
        }
        cmd.arg(&locks).arg(&["0", "3", NEVER]);
        for nonce in 1..=3 {
            cmd.arg(&[&hex(nonce), "60000", "1 host -"]);
        }
        let mut connection = scripts.connection.clone();
        let _: Value = cmd.query_async(&mut connection).await.unwrap();
        let mut tokens = Vec::new();
        for lock in &locks {
            let value: String = scripts.server.command(&["GET", lock]).await;
            tokens.push(value.split(' ').nth(2).unwrap().parse::<i64>().unwrap());
        }
        assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
        assert_eq!(scripts.number(&["GET", TOKENS]).await, tokens[2]);
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
        scripts.unlock(1, false).await;
        let words = scripts.lock_many(2, &too_late.to_string()).await;
        assert_eq!(words != ["0"], granted, "{words:?}");
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

/// Four wait behind the holder, the last of them of another process; the first has the key now. Returns
/// what its process was told: whom it was granted to, and the token of each that is next.
async fn line(scripts: &mut Scripts) -> (String, Vec<(String, i64)>) {
    scripts.lock(1, 60_000, 0, false).await;
    for nonce in 2..5 {
        scripts.lock(nonce, 60_000, -1, false).await;
    }
    let other = [NEVER, &hex(5), "60000", "-1", "-", "1 host -"];
    scripts.run(LOCK, 2, &other).await;
    let answer = scripts.unlock(1, false).await;
    // Now, one grant of its own, and what nonce 1 was.
    let [_, grant, was] = &answer[..] else { panic!("{answer:?}") };
    assert_eq!(was, "held");
    let words: Vec<_> = grant.split(' ').collect();
    let [nonce, token, _, _, after, next @ ..] = &words[..] else { panic!("{grant}") };
    assert_eq!(token, after, "they stand right behind");
    let next = next.chunks(2).map(|heir| (heir[0].to_owned(), heir[1].parse().unwrap()));
    (nonce.to_string(), next.collect())
}

#[tokio::test]
async fn an_unlock_tells_who_of_the_process_is_next_and_their_tokens_are_kept() {
    let mut scripts = Scripts::start().await;
    let (granted, next) = line(&mut scripts).await;
    assert_eq!(granted, hex(2));
    let (token, counter) = scripts.tokens().await;
    let expected = [(hex(3), token + 1), (hex(4), token + 2)];
    assert_eq!(next, expected, "not the other process' waiter");
    assert_eq!(counter, token + 2, "theirs are nobody else's");
    // They may have the key already, so that silence does not take it from them.
    let _: Value = scripts.server.command(&["HDEL", WAITERS, &format!("@{:032x}", 1)]).await;
    scripts.unlock(2, false).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
    assert_eq!(scripts.tokens().await, (token + 1, token + 2));
    // Redis hears of it late, and of several at once.
    let several = [&*hex(3), "-", "0", "2", NEVER, &*hex(4)];
    let answer = scripts.run(UNLOCK, 1, &several).await;
    assert_eq!(answer[1..], ["held", "heir"]);
    assert_eq!(scripts.holder().await, Some(hex(5)));
    let (last, _) = scripts.tokens().await;
    assert!(last > token + 2);
}

/// It may hold the key with that token already.
#[tokio::test]
async fn an_heir_gets_its_own_token_also_from_an_unlock_that_asks_for_none() {
    let mut scripts = Scripts::start().await;
    let (_, next) = line(&mut scripts).await;
    scripts.run(UNLOCK, 1, &[&hex(2), "-"]).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
    assert_eq!(scripts.tokens().await.0, next[0].1);
}

#[tokio::test]
async fn after_a_lease_that_ran_out_nobody_is_an_heir() {
    let mut scripts = Scripts::start().await;
    let (_, next) = line(&mut scripts).await;
    let _: Value = scripts.server.command(&["DEL", HOLDER]).await;
    let _: Value = scripts.server.command(&["HDEL", WAITERS, &format!("@{:032x}", 1)]).await;
    scripts.run(POLL, 2, &["1", &hex(5)]).await;
    assert_eq!(scripts.holder().await, Some(hex(5)), "the silent are passed over");
    assert!(scripts.tokens().await.0 > next[1].1);

    let mut scripts = Scripts::start().await;
    let (_, next) = line(&mut scripts).await;
    let _: Value = scripts.server.command(&["DEL", HOLDER]).await;
    scripts.run(POLL, 2, &["1", &hex(5)]).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
    let (token, _) = scripts.tokens().await;
    assert!(token > next[1].1, "a new token");
    scripts.unlock(3, false).await;
    assert_eq!(scripts.holder().await, Some(hex(4)));
    assert!(scripts.tokens().await.0 > token, "not the one that it was told before");
}

/// What keeps a place in the queue for an heir whose process is silent ends with the lease before it.
#[tokio::test]
async fn heirs_of_which_nothing_was_heard_for_a_lease_are_heirs_no_longer() {
    let mut scripts = Scripts::start().await;
    line(&mut scripts).await;
    let _: Value = scripts.server.command(&["HDEL", WAITERS, &format!("@{:032x}", 1)]).await;
    let heirs: String = scripts.server.command(&["HGET", WAITERS, "#h"]).await;
    let [last, add, kept] = *heirs.split(' ').collect::<Vec<_>>() else { panic!("{heirs}") };
    assert!(kept.parse::<u64>().unwrap() > 60_000);
    let over = format!("{last} {add} 1");
    let _: Value = scripts.server.command(&["HSET", WAITERS, "#h", &over]).await;
    scripts.unlock(2, false).await;
    assert_eq!(scripts.holder().await, Some(hex(5)), "the silent are passed over");
}

/// Contract, rule 7: the end of one whose LOCK may come again must be remembered.
#[tokio::test]
async fn a_waiter_with_copies_under_way_is_no_heir_and_none_behind_it_is() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    for (nonce, copies) in [(2, false), (3, false), (4, true), (5, false)] {
        scripts.lock(nonce, 60_000, -1, copies).await;
    }
    let answer = scripts.unlock(1, false).await;
    let words: Vec<_> = answer[1].split(' ').collect();
    assert_eq!(words.len(), 7, "{answer:?}");
    assert_eq!((words[0], words[5]), (&*hex(2), &*hex(3)));
}

/// What is in Redis of the key, without the times that a clock has put there: whose it is, of whom
/// something is kept, and for how many seconds. With it the words of the grant, as its process is told.
async fn left(scripts: &Scripts) -> (Vec<String>, String) {
    let server = &scripts.server;
    let value: String = server.command(&["GET", HOLDER]).await;
    let counter: String = server.command(&["GET", TOKENS]).await;
    let words: Vec<_> = value.splitn(6, ' ').collect();
    assert_eq!(words[2], counter, "the last token");
    assert!(words[3] < words[4], "it waited");
    let mut left: Vec<_> = [words[0], words[1], words[5]].map(str::to_owned).into();
    left.push(server.command(&["GET", NAMES[5]]).await);
    for name in NAMES {
        // To ten seconds, of which a slow machine takes none: all of them are leases and memories.
        let seconds = scripts.number(&["PTTL", name]).await as f64 / 10_000.0;
        left.push(format!("{name} {:.0}", seconds.round()));
    }
    left.extend(server.command::<Vec<String>>(&["ZRANGE", QUEUE, "0", "-1", "WITHSCORES"]).await);
    let mut asked: Vec<String> = server.command(&["HKEYS", WAITERS]).await;
    asked.sort();
    left.extend(asked);
    (left, format!("{} {} {} {}", words[0], words[2], words[3], words[4]))
}

/// A holder, of the queue or not, and a waiter, of its process or of another, behind which there is one more or
/// none: the unlock that is made for nothing else gives the key on as the one for everything does.
#[tokio::test]
async fn the_short_way_of_giving_a_key_on_leaves_what_the_long_way_leaves() {
    for case in 0..8 {
        let (queued, ours, more) = (case & 1 != 0, case & 2 != 0, case & 4 != 0);
        let mut both = Vec::new();
        for long in [false, true] {
            let mut scripts = Scripts::start().await;
            let client = redis::Client::open(scripts.server.url()).unwrap();
            let mut told = client.get_async_pubsub().await.unwrap();
            told.psubscribe("ns:p:*").await.unwrap();
            let mut holder = 1;
            scripts.lock(1, 60_000, 0, false).await;
            if queued {
                scripts.lock(2, 60_000, -1, false).await;
                scripts.run(UNLOCK, 1, &[&hex(1), "-"]).await;
                holder = 2;
            }
            let process = if ours { 1 } else { 2 };
            let three = [NEVER, &hex(3), "30000", "60000", "-", "1 host +a label"];
            scripts.run(LOCK, process, &three).await;
            if more {
                let four = [NEVER, &hex(4), "60000", "-1", "-", "1 host -"];
                scripts.run(LOCK, 3, &four).await;
            }
            let holder = hex(holder);
            let answer = match long {
                true => scripts.run(UNLOCK, 1, &[&holder, "-", "0", "1", NEVER]).await,
                false => scripts.run(UNLOCK, 1, &[&holder, "-"]).await,
            };
            assert_eq!(answer.len() == 1, !long, "{answer:?}: the short way has a short answer");
            assert!(answer.concat().contains("held"), "{answer:?}");
            let (left, grant) = left(&scripts).await;
            assert_eq!(left[0], hex(3));
            assert_eq!(answer.concat().contains(&grant), ours, "{answer:?}");
            if !ours {
                let told = tokio::time::timeout(ms(5_000), told.on_message().next()).await;
                let told = told.unwrap().unwrap();
                let topic = format!("ns:p:{process:032x}");
                assert_eq!(told.get_channel_name(), topic);
                assert_eq!(told.get_payload::<String>().unwrap(), format!("1 0 {grant}"));
            }
            both.push(left);
        }
        assert_eq!(both[0], both[1], "queued {queued}, ours {ours}, more {more}");
    }
}

/// Places for LOCKs that came while unlocks were on their way.
#[tokio::test]
async fn locks_take_their_places_before_the_unlocks_they_came_with() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    let owner = "1 host -";
    let [first, two, three] = [hex(1), hex(2), hex(3)];
    let words =
        [&*first, "-", "0", "1", NEVER, &two, "60000", "-1", owner, &three, "50000", "900", owner];
    let answer = scripts.run(UNLOCK, 1, &words).await;
    let [_, grant, was, queued, remaining] = &answer[..] else { panic!("{answer:?}") };
    assert!(grant.starts_with(&two) && grant.contains(&three), "{grant}");
    assert_eq!((was.as_str(), queued.as_str()), ("held", "2"));
    assert!(remaining.parse::<u64>().unwrap() > 59_000);
    assert_eq!(scripts.number(&["ZCARD", QUEUE]).await, 1);
    assert!(
        scripts.number(&["PTTL", QUEUE]).await > 0 && scripts.number(&["PTTL", WAITERS]).await > 0
    );
    // Where more is to be looked at nothing is done for them: without a holder, or with memory.
    let four = hex(4);
    let alone = ["", "-", "0", "0", NEVER, &*four, "60000", "-1", owner];
    scripts.unlock(2, true).await;
    let answer = scripts.run(UNLOCK, 1, &alone).await;
    assert_eq!(answer[1], "0", "{answer:?}");
    let _: Value = scripts.server.command(&["DEL", MEMORY]).await;
    let late = ["", "-", "0", "0", "1", &*four, "60000", "-1", owner];
    let answer = scripts.run(UNLOCK, 1, &late).await;
    assert_eq!(answer[1], "0", "too late: {answer:?}");
    // Who holds the key, or where there is no room.
    let holds = ["", "-", "0", "0", NEVER, &*three, "60000", "-1", owner];
    let answer = scripts.run(UNLOCK, 1, &holds).await;
    assert_eq!(answer[1], "0", "it holds: {answer:?}");
    let _: Value = scripts.server.command(&["HSET", WAITERS, "#m", "1", "#", "1"]).await;
    let answer = scripts.run(UNLOCK, 1, &alone).await;
    assert_eq!(answer[1], "0", "no room: {answer:?}");
    let _: Value = scripts.server.command(&["DEL", WAITERS]).await;
    let answer = scripts.run(UNLOCK, 1, &alone).await;
    assert_eq!(answer[1], "1", "{answer:?}");
}
