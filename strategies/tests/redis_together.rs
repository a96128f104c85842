//! Goal: a lock promises the same when many requests leave in one run of a script (contract, rules 1,
//! 5, 7 and 11), whatever the server thinks of such runs.
//! Method: more tasks than keys on one handle, and a second handle beside it, against a `redis-server`
//! of the test's own; each key has a holder and a last token, and the server counts its scripts.
// A test that meets an error has failed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gaggle_strategies::{KeyedMutex, LockOptions, Redis, RedisOptions};
use redis_support::{Server, ms, patient, secs};
use tokio::{task::JoinSet, time::timeout};

const TASKS: usize = 64;
const PAIRS: u64 = 60;

#[derive(Default)]
struct Key {
    held: AtomicU64,
    last: AtomicU64,
}

fn options(duration: Duration) -> LockOptions {
    LockOptions { duration, ..patient() }
}

/// Locks and unlocks from all tasks over so many keys, at handles in turn. Now and then a call is
/// dropped while it is under way.
async fn work(handles: &[Arc<Redis>], keys: usize, drops: bool) {
    let state: Arc<Vec<Key>> = Arc::new((0..keys).map(|_| Key::default()).collect());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (redis, state) = (handles[task % handles.len()].clone(), state.clone());
        tasks.spawn(async move {
            for pair in 0..PAIRS {
                let number = task % state.len();
                let (key, name) = (&state[number], format!("key {number}"));
                if drops && (pair as usize + task).is_multiple_of(7) {
                    // It may have been granted just then.
                    let calling = redis.lock(&name, options(ms(400)));
                    if let Ok(lock) = timeout(Duration::from_micros(200), calling).await {
                        redis.unlock(&lock.unwrap()).await.unwrap();
                    }
                    continue;
                }
                let lock = redis.lock(&name, options(secs(20))).await.unwrap();
                let token = lock.fencing_token();
                assert_eq!(key.held.swap(token, Ordering::SeqCst), 0, "{name}: two hold it");
                let last = key.last.swap(token, Ordering::SeqCst);
                assert!(last < token, "{name}: {last}, then {token}");
                if number == 0 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(key.held.swap(0, Ordering::SeqCst), token);
                redis.unlock(&lock).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn scripts_run(server: &Server) -> u64 {
    let info: String = server.command(&["INFO", "commandstats"]).await;
    let count = |kind: &str| -> u64 {
        let line = info.lines().find(|line| line.starts_with(kind));
        line.map_or(0, |line| line.split(['=', ',']).nth(1).unwrap().parse().unwrap())
    };
    count("cmdstat_evalsha:") + count("cmdstat_eval:")
}

async fn open(options: RedisOptions) -> Arc<Redis> {
    Arc::new(Redis::open(options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_take_fewer_scripts_than_requests() {
    let server = Server::start().await;
    let handles = [open(server.options()).await];
    let before = scripts_run(&server).await;
    work(&handles, TASKS, false).await;
    let ran = scripts_run(&server).await - before;
    let requests = 2 * PAIRS * TASKS as u64;
    assert!(ran * 4 < requests * 3, "{ran} scripts for {requests} requests");
    assert_eq!(server.residue().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_keys_than_tasks_at_two_handles_have_one_holder_each() {
    for keys in [1, 5, 12, 40] {
        let server = Server::start().await;
        let handles = [open(server.options()).await, open(server.options()).await];
        let before = scripts_run(&server).await;
        work(&handles, keys, false).await;
        let ran = scripts_run(&server).await - before;
        let requests = 2 * PAIRS * TASKS as u64;
        // Where waiting is likely they leave alone, and are asked for once.
        assert!(ran * 20 < requests * 21, "{ran} scripts for {requests} requests on {keys} keys");
        assert_eq!(server.residue().await, Vec::<String>::new(), "{keys} keys");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_its_scripts_learns_them_again() {
    let server = Server::start().await;
    let handles = [open(server.options()).await];
    let forget = async {
        for _ in 0..20 {
            let _: redis::Value = server.command(&["SCRIPT", "FLUSH"]).await;
            tokio::time::sleep(ms(2)).await;
        }
    };
    tokio::join!(work(&handles, TASKS, false), forget);
    let before = scripts_run(&server).await;
    work(&handles, TASKS, false).await;
    let ran = scripts_run(&server).await - before;
    assert!(ran < 2 * PAIRS * TASKS as u64, "{ran} scripts: the one for many is known again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_one_node_and_a_user_who_may_not_are_asked_one_by_one() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]).await;
    let _: redis::Value = server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    let limit = std::time::Instant::now() + secs(10);
    while !server.command::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok") {
        assert!(std::time::Instant::now() < limit, "the cluster has not come up");
        tokio::time::sleep(ms(10)).await;
    }
    work(&[open(server.options()).await], TASKS, false).await;
    for denied in ["-mget", "-mset"] {
        let server = Server::start().await;
        let rules = ["on", ">secret", "~gaggle:*", "&gaggle:*", "+@all", denied];
        let _: redis::Value =
            server.command(&[&["ACL", "SETUSER", "u"][..], &rules].concat()).await;
        let url = format!("redis://u:secret@127.0.0.1:{}", server.port());
        // Each connection learns it anew.
        for _ in 0..5 {
            work(&[open(RedisOptions::new(url.clone())).await], TASKS, false).await;
        }
        assert_eq!(server.residue().await, Vec::<String>::new());
    }
}

/// Contract, rule 7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_among_many_leave_no_holder() {
    let server = Server::start().await;
    let redis = open(server.options()).await;
    work(std::slice::from_ref(&redis), TASKS, true).await;
    let limit = std::time::Instant::now() + secs(10);
    for number in 0..TASKS {
        while let Some(holder) = redis.inspect(&format!("key {number}")).await.unwrap() {
            assert!(std::time::Instant::now() < limit, "a ghost holds key {number}: {holder:?}");
            tokio::time::sleep(ms(5)).await;
        }
    }
}
