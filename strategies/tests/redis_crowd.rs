//! Goal: the checks of waiters leave the server free, however many keys they wait for, and no
//! process is counted as silent.
//! Method: four handles wait for the keys of a fifth, on a `redis-server` of the test's own, whose
//! processor time is read. `GAGGLE_KEYS` is how many keys, 3,000 by default.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{sync::Arc, time::Instant};

use gaggle_strategies::{KeyedMutex, LockOptions, Redis};
use redis_support::{Server, secs, take};
use tokio::task::JoinSet;

const PROCESSES: usize = 4;

/// How many wait, and the last position of each queue: it tells of waiters that queued again.
const QUEUES: &str = "
    local count, last = 0, 0
    for _, name in ipairs(redis.call('KEYS', '*:f:*')) do
        count = count + redis.call('ZCARD', name)
        local asked = string.gsub(name, ':f:', ':a:')
        last = math.max(last, redis.call('HGET', asked, '#'))
    end
    return {count, last}
";

async fn queues(server: &Server) -> (usize, usize) {
    server.command(&["EVAL", QUEUES, "0"]).await
}

/// Two of the processes wait for each key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_many_keys_leave_the_server_free() {
    let keys: usize = std::env::var("GAGGLE_KEYS").map_or(3_000, |n| n.parse().unwrap());
    // Long enough for checks at intervals.
    let waiter_ttl = secs(3 + keys as u64 / 900);
    let server = Server::start().await;
    let options = server.options().waiter_ttl(waiter_ttl);
    let holder = Arc::new(server.open().await);
    let mut locks = JoinSet::new();
    for key in 0..keys {
        let holder = holder.clone();
        locks.spawn(async move { take(&holder, &format!("k{key}"), secs(3_600)).await });
    }
    let locks = locks.join_all().await;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Arc::new(Redis::open(options.clone()).await.unwrap()));
    }
    let mut waiters = JoinSet::new();
    for waiter in 0..2 * keys {
        let process = processes[(waiter + waiter / keys) % PROCESSES].clone();
        let key = format!("k{}", waiter % keys);
        waiters.spawn(async move {
            let options = LockOptions::default().max_wait(secs(900));
            let lock = process.lock(&key, options).await.unwrap();
            process.unlock(&lock).await.unwrap();
        });
    }
    while queues(&server).await.0 < 2 * keys {
        tokio::time::sleep(secs(1)).await;
    }
    tokio::time::sleep(waiter_ttl + secs(1)).await;
    let (before, started) = (server.cpu_secs().await, Instant::now());
    tokio::time::sleep(secs(2 + keys as u64 / 2_000)).await;
    let used = server.cpu_secs().await - before;
    let share = used / started.elapsed().as_secs_f64();
    println!("{} waiters for {keys} keys: {:.1} % of a core", 2 * keys, 100.0 * share);
    assert_eq!(queues(&server).await, (2 * keys, 2), "no waiter was dropped");
    assert!(share < 0.2, "{share}");
    for lock in locks {
        holder.unlock(&lock).await.unwrap();
    }
    waiters.join_all().await;
}
