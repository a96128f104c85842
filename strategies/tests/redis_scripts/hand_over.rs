//! Goal: a key is given on as the queue has it (contract, rules 5 and 7): what an unlock tells of heirs, and what
//! its short way leaves behind.

use futures_util::StreamExt;
use redis::Value;

use super::{redis_support::ms, scripts::*};

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
