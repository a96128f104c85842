//! Goal: a key is given on as the queue has it (contract, rules 5 and 7): what the
//! short way of an unlock leaves behind.

use futures_util::StreamExt;
use redis::Value;

use super::{redis_support::ms, scripts::*};

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
            // A first in the queue that is dead is what the short way is not for.
            if long {
                let _: Value = scripts.server.command(&["ZADD", QUEUE, "0", &hex(9)]).await;
            }
            let answer = scripts.run(UNLOCK, 1, &[&holder, "-"]).await;
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
