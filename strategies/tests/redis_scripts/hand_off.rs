//! Goal: an UNLOCK grants the key to the next waiter (contract, rules 5 and 7), and its process
//! receives all that the deadline needs (rule 2).
//! Method: the content of Redis and the publications after an UNLOCK.

use futures_util::StreamExt;
use redis::Value;

use super::{redis_support::ms, scripts::*};

/// The holder's value, and the grant as it is published.
async fn holder_and_grant(scripts: &Scripts) -> (Vec<String>, String) {
    let value: String = scripts.server.command(&["GET", HOLDER]).await;
    let words: Vec<_> = value.splitn(6, ' ').map(str::to_owned).collect();
    let grant = format!("{} {} {} {}", words[0], words[2], words[3], words[4]);
    (words, grant)
}

/// A holder, from the queue or not, and a waiter of its process or of another, behind which there
/// is one more or none, and before which there is a dead one or none.
#[tokio::test]
async fn unlock_grants_and_publishes_the_lease() {
    for case in 0..16 {
        let [queued, ours, more, dead] = [1, 2, 4, 8].map(|bit| case & bit != 0);
        let mut scripts = Scripts::start().await;
        let client = redis::Client::open(scripts.server.url()).unwrap();
        let mut published = client.get_async_pubsub().await.unwrap();
        published.psubscribe("ns:p:*").await.unwrap();
        let mut holder = 1;
        scripts.lock(1, 60_000, 0, false).await;
        if queued {
            scripts.lock(2, 60_000, -1, false).await;
            scripts.unlock(1, false).await;
            holder = 2;
        }
        let process = if ours { 1 } else { 2 };
        let three = [NEVER, &hex(3), "30000", "60000", "-", "1 host +a label"];
        scripts.run(LOCK, process, &three).await;
        if more {
            scripts.lock_as(3, 4, 60_000, -1, false).await;
        }
        if dead {
            let _: Value = scripts.server.command(&["ZADD", QUEUE, "0", &hex(9)]).await;
        }
        let reply = scripts.unlock(holder, false).await;
        let (words, grant) = holder_and_grant(&scripts).await;
        assert_eq!((&*words[0], &*words[1], &*words[5]), (&*hex(3), "q", "1 host +a label"));
        assert!(words[3] < words[4], "it waited");
        assert_eq!(words[2], scripts.server.command::<String>(&["GET", TOKENS]).await);
        assert_eq!(scripts.server.command::<String>(&["GET", GRANT]).await, hex(3));
        let grant = format!("{grant} 30000");
        let own = if ours { format!(" {grant}") } else { String::new() };
        assert_eq!(reply.join(" "), format!("{} held{own}", words[4]));
        assert_eq!(scripts.server.calls("publish").await, u64::from(!ours));
        if !ours {
            let message = tokio::time::timeout(ms(5_000), published.on_message().next()).await;
            let message = message.unwrap().unwrap();
            assert_eq!(message.get_channel_name(), format!("ns:p:{process:032x}"));
            assert_eq!(message.get_payload::<String>().unwrap(), format!("1 {grant}"));
        }
        let left: Vec<String> = scripts.server.command(&["ZRANGE", QUEUE, "0", "-1"]).await;
        assert_eq!(left, if more { vec![hex(4)] } else { vec![] });
        let asked: bool = scripts.server.command(&["HEXISTS", WAITERS, &hex(3)]).await;
        assert!(!asked);
        assert_eq!(scripts.number(&["EXISTS", WAITERS]).await, i64::from(more));
        let lasts = scripts.number(&["PTTL", HOLDER]).await;
        assert!((29_000..=30_000).contains(&lasts), "{lasts} ms");
    }
}

/// The process may ask for another by now.
#[tokio::test]
async fn poll_returns_the_granted_lease() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    scripts.lock_as(2, 2, 20_000, -1, false).await;
    scripts.unlock(1, false).await;
    let (words, _) = holder_and_grant(&scripts).await;
    let lease = |found: Vec<String>| {
        assert_eq!(found[2..6], [&*hex(2), &*words[2], &*words[3], &*words[4]]);
        found[6].parse::<i64>().unwrap()
    };
    let granted = lease(scripts.run(POLL, 2, &[&hex(2)]).await);
    // The server reads its clock twice, and may be suspended between.
    assert!((20_000..21_000).contains(&granted), "{granted}");
    scripts.extend(2, 2, 50_000).await;
    let longer = lease(scripts.run(POLL, 2, &[&hex(2)]).await);
    assert!((50_000..51_000).contains(&longer), "to its present end: {longer}");
}

/// The grant took effect all the same, and its holder finds it.
#[tokio::test]
async fn unlock_needs_no_right_to_publish() {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    scripts.lock_as(2, 2, 60_000, -1, false).await;
    let _: Value = scripts.server.command(&["ACL", "SETUSER", "default", "-publish"]).await;
    let reply = scripts.unlock(1, false).await;
    assert_eq!(reply[1..], ["held"]);
    let found = scripts.run(POLL, 2, &[&hex(2)]).await;
    assert_eq!(found[2], hex(2));
}
