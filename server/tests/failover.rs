//! Goal: a handle of the HTTP strategy keeps its locks and the positions of its waiters when its
//! server ends. Method: the servers of a group and of a Redis, which end one by one.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use std::time::Duration;

use gaggle::{LockOptions, Locker};
use support::server::Service;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

async fn open(service: &Service) -> Locker {
    gaggle::open(&format!("http://{}", service.addresses().join(","))).await.unwrap()
}

/// Options of a long lease and a long wait.
fn patient() -> LockOptions {
    LockOptions::default().duration(Duration::from_secs(60)).max_wait(Duration::from_secs(60))
}

/// The first node of the handle ends; the others serve.
async fn assert_nothing_is_lost(service: Service) {
    let (first, second) = (open(&service).await, open(&service).await);
    let held = first.lock_with("k", patient()).await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..3 {
        let second = second.clone();
        waiters.spawn(async move { second.lock_with("k", patient()).await });
    }
    while first.inspect("k").await.unwrap().unwrap().waiters < 3 {
        sleep(Duration::from_millis(10)).await;
    }
    service.end(0).await;
    let began = Instant::now();
    held.extend(Duration::from_secs(60)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    // The waiters come back within the time for which their positions are kept.
    sleep(Duration::from_secs(4)).await;
    assert_eq!(first.inspect("k").await.unwrap().unwrap().waiters, 3);
    let mut token = held.fencing_token();
    held.unlock().await.unwrap();
    while let Some(granted) = waiters.join_next().await {
        let lock = granted.unwrap().unwrap();
        assert!(lock.fencing_token() > token);
        token = lock.fencing_token();
        lock.unlock().await.unwrap();
    }
    assert!(first.inspect("k").await.unwrap().is_none());
    first.close().await;
    second.close().await;
    service.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_keeps_locks_and_waiters_of_an_ended_server() {
    assert_nothing_is_lost(Service::group().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_locks_and_waiters_of_an_ended_server() {
    assert_nothing_is_lost(Service::redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_server_without_memory_is_lost() {
    let service = Service::local().await;
    let locker = open(&service).await;
    let held = locker.lock_with("k", patient()).await.unwrap();
    service.down().await;
    service.up().await;
    tokio::time::timeout(Duration::from_secs(5), held.lost()).await.unwrap();
    locker.lock("k").await.unwrap().unlock().await.unwrap();
}
