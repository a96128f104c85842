//! Goal: each request of a list has its own outcome, independent of its neighbours (contract, rules 7
//! and 9). Method: lists on a server of the test's own; the replies and the content are compared.

use futures_util::StreamExt;
use redis::Value;

use super::{redis_support::ms, scripts::*};

/// The first words of the results of a list without grants to waiters of its process; that of an
/// error begins with a dash.
fn results(reply: &str) -> Vec<&str> {
    let words = reply.lines().map(|line| line.split(' ').next().unwrap());
    let mut words: Vec<&str> = words.collect();
    words.pop().unwrap().parse::<u64>().unwrap();
    words
}

/// LOCKs that wait for `wait` ms, of the nonces from 1 on, each for one of the keys.
async fn lock(scripts: &mut Scripts, keys: &[&str], wait: &str, copies: &str) -> Vec<String> {
    let nonces: Vec<String> = (1..=keys.len()).map(|number| hex(number as u8)).collect();
    let arguments: Vec<[&str; 6]> =
        nonces.iter().map(|nonce| [NEVER, nonce, "60000", wait, copies, "1 host -"]).collect();
    let list: Vec<(&str, &[&str])> =
        keys.iter().zip(&arguments).map(|(key, arguments)| (*key, &arguments[..])).collect();
    let reply = scripts.run_list(LOCK, 1, &list).await.unwrap();
    results(&reply).into_iter().map(str::to_owned).collect()
}

/// Unlocks the nonces from 1 on, each of one of the keys.
async fn unlock(scripts: &mut Scripts, keys: &[&str]) -> String {
    let nonces: Vec<String> = (1..=keys.len()).map(|number| hex(number as u8)).collect();
    let arguments: Vec<[&str; 4]> = nonces.iter().map(|nonce| [nonce, "0", "-", ""]).collect();
    let list: Vec<(&str, &[&str])> =
        keys.iter().zip(&arguments).map(|(key, arguments)| (*key, &arguments[..])).collect();
    scripts.run_list(UNLOCK, 1, &list).await.unwrap()
}

#[tokio::test]
async fn script_runs_lists_of_any_length() {
    let mut scripts = Scripts::start().await;
    for verb in [LOCK, UNLOCK, EXTEND, POLL, INSPECT] {
        scripts.run_list(verb, 1, &[]).await.unwrap_err();
    }
    assert_eq!(scripts.server.keys().await, [""; 0]);
    let keys: Vec<String> = (0..17).map(|number| format!("k{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert_eq!(lock(&mut scripts, &keys, "0", "-").await, ["granted"; 17]);
}

#[tokio::test]
async fn requests_of_one_key_run_in_their_order() {
    let mut scripts = Scripts::start().await;
    assert_eq!(lock(&mut scripts, &["k"; 3], "-1", "-").await, ["granted", "queued", "queued"]);
    let order: Vec<String> = scripts.server.command(&["ZRANGE", QUEUE, "0", "-1"]).await;
    assert_eq!(order, [hex(2), hex(3)]);
    unlock(&mut scripts, &["k"; 2]).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
}

/// Each name of a key may have a value of another program.
#[tokio::test]
async fn foreign_key_fails_alone() {
    let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for part in ["l", "f", "a", "g"] {
        let mut scripts = Scripts::start().await;
        // A sorted set where a string or a hash is expected, and a string where a set is.
        let name = format!("ns:{{b0}}:{part}:k7");
        let write: &[&str] = match part {
            "f" => &["SET", &name, "x"],
            _ => &["ZADD", &name, "1", "x"],
        };
        let _: Value = scripts.server.command(write).await;
        let found = lock(&mut scripts, &keys, "-1", "c").await;
        for (at, result) in found.iter().enumerate() {
            let expected = if at == 7 && part != "a" { "-WRONGTYPE" } else { "granted" };
            assert_eq!(result, expected, "{part} {at}");
        }
    }
}

/// A server refuses the first write of a script alone.
#[tokio::test]
async fn full_memory_refuses_locks_before_the_first_write() {
    for (copies, expected) in
        [("-", ["again", "-OOM", "-OOM"]), ("c", ["again", "granted", "granted"])]
    {
        let mut scripts = Scripts::start().await;
        lock(&mut scripts, &["k"], "0", "-").await;
        let _: Value = scripts.server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        assert_eq!(lock(&mut scripts, &["k", "k1", "k2"], "0", copies).await, expected);
        let left = i64::from(copies == "c");
        assert_eq!(scripts.number(&["EXISTS", "ns:{b0}:l:k1"]).await, left);
    }
}

#[tokio::test]
async fn server_without_replicas_refuses_each_write() {
    let mut scripts = Scripts::start().await;
    assert_eq!(lock(&mut scripts, &["k", "k1"], "0", "-").await, ["granted"; 2]);
    let _: Value = scripts.server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let found = lock(&mut scripts, &["k2", "k1", "k3"], "0", "-").await;
    assert_eq!(found, ["-NOREPLICAS", "again", "-NOREPLICAS"]);
    let inspected = [("k", &[][..]), ("k2", &[]), ("k3", &[])];
    let found = scripts.run_list(INSPECT, 1, &inspected).await.unwrap();
    assert_eq!(results(&found), ["held", "free", "free"]);
}

/// Two keys of one process, one of another, and one of the caller.
#[tokio::test]
async fn grants_to_a_process_are_one_message() {
    let mut scripts = Scripts::start().await;
    let client = redis::Client::open(scripts.server.url()).unwrap();
    let mut published = client.get_async_pubsub().await.unwrap();
    published.psubscribe("ns:p:*").await.unwrap();
    let keys = ["k", "k1", "k2", "k3"];
    assert_eq!(lock(&mut scripts, &keys, "0", "-").await, ["granted"; 4]);
    for (key, process, nonce) in [("k", 2, 12), ("k1", 3, 13), ("k2", 2, 14), ("k3", 1, 15)] {
        let arguments = [NEVER, &hex(nonce), "60000", "-1", "-", "1 host -"];
        scripts.run_list(LOCK, process, &[(key, &arguments)]).await.unwrap();
    }
    let reply = unlock(&mut scripts, &keys).await;
    assert_eq!(reply.lines().skip(5).map(|line| &line[..32]).collect::<Vec<_>>(), [hex(15)]);
    let mut stream = published.on_message();
    for (process, nonces) in [(2, vec![hex(12), hex(14)]), (3, vec![hex(13)])] {
        let message = tokio::time::timeout(ms(5_000), stream.next()).await.unwrap().unwrap();
        assert_eq!(message.get_channel_name(), format!("ns:p:{process:032x}"));
        let payload: String = message.get_payload().unwrap();
        let lines = payload.strip_prefix("1 ").unwrap().lines();
        assert_eq!(lines.map(|line| line[..32].to_owned()).collect::<Vec<_>>(), nonces);
    }
    assert_eq!(scripts.server.calls("publish").await, 2);
}

/// Labels may have them, and so may a value that another program wrote.
#[tokio::test]
async fn line_breaks_cut_no_reply() {
    let mut scripts = Scripts::start().await;
    let owned = [NEVER, &hex(1), "60000", "0", "-", "1 host +a\nb%"];
    scripts.run_list(LOCK, 1, &[("k", &owned)]).await.unwrap();
    for (name, value) in [("ns:{b0}:l:k1", "x\ny"), ("ns:{b0}:l:k2", "ab q 1 2 3 own\ner")] {
        let _: Value = scripts.server.command(&["SET", name, value, "PX", "60000"]).await;
    }
    let list = ["k", "k1", "k2", "k3"].map(|key| (key, &[][..]));
    let reply = scripts.run_list(INSPECT, 1, &list).await.unwrap();
    let lines: Vec<&str> = reply.lines().collect();
    assert_eq!((lines.len(), lines[1], lines[3]), (5, "foreign", "free"));
    assert!(lines[0].ends_with(" 1 host +a%0Ab%25"), "{reply}");
    assert!(lines[2].starts_with("held ab 1 3 ") && lines[2].ends_with(" own%0Aer"), "{reply}");
}

/// Each request of a list drops its share of dead waiters.
#[tokio::test]
async fn dead_waiters_of_a_key_delay_no_other_key() {
    let mut scripts = Scripts::start().await;
    assert_eq!(lock(&mut scripts, &["k", "k1"], "0", "-").await, ["granted"; 2]);
    let waiter = [NEVER, &hex(9), "60000", "-1", "-", "1 host -"];
    scripts.run_list(LOCK, 2, &[("k1", &waiter)]).await.unwrap();
    for (queue, dead) in [(QUEUE, 1_200), ("ns:{b0}:f:k1", 400)] {
        let mut cmd = redis::cmd("ZADD");
        cmd.arg(queue);
        for nonce in 0..dead {
            cmd.arg(0).arg(format!("{:032x}", 100 + nonce));
        }
        let _: Value = cmd.query_async(&mut scripts.connection).await.unwrap();
    }
    unlock(&mut scripts, &["k", "k1"]).await;
    assert_eq!(scripts.number(&["ZCARD", QUEUE]).await, 700);
    let holder: Option<String> = scripts.server.command(&["GET", "ns:{b0}:l:k1"]).await;
    assert_eq!(holder.map(|value| value[..32].to_owned()), Some(hex(9)));
}
