//! Goal: a handle of the HTTP strategy leaves a node that stands still in time for its calls, and
//! says who has revoked a lock. Method: servers that answer by a script, in virtual time.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod http_support;

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{KeyedMutex, LockOptions, clock::TokioClock, lock::LossCause};
use http_support::{Scripted, open};
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn unlock_reaches_the_next_node_within_its_time() {
    let first = Scripted::new(&[("POST", "201")]);
    let second = Scripted::new(&[("released", "204")]);
    let client = open(vec![first.clone(), second.clone()], Arc::new(TokioClock::new()));
    let lock = client.lock("k", LockOptions::default().duration(LEASE)).await.unwrap();
    first.stop();
    let began = Instant::now();
    client.unlock(&lock).await.unwrap();
    let took = began.elapsed();
    // Half of `request_timeout` is for the node that does not reply.
    let expected = Duration::from_millis(500)..Duration::from_millis(600);
    assert!(expected.contains(&took), "{took:?}");
    assert_eq!(second.summary(), "released");
}

#[tokio::test(start_paused = true)]
async fn waiter_leaves_a_node_that_stands_still() {
    let first = Scripted::new(&[("POST", "202 hang")]);
    let second = Scripted::new(&[("POST", "201")]);
    let client = open(vec![first.clone(), second.clone()], Arc::new(TokioClock::new()));
    let options = LockOptions::default().duration(LEASE).max_wait(Duration::from_secs(60));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(10_200)).await;
        first.stop();
        Instant::now()
    };
    let (lock, stopped_at) = tokio::join!(client.lock("k", options), stop);
    lock.unwrap();
    assert!(stopped_at.elapsed() < Duration::from_millis(600), "{:?}", stopped_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn extend_of_a_revoked_lock_says_who_and_why() {
    let server = Scripted::new(&[("POST", "201"), ("ttl", "revoked")]);
    let client = open(vec![server], Arc::new(TokioClock::new()));
    let lock = client.lock("k", LockOptions::default().duration(LEASE)).await.unwrap();
    let watch = client.watch(&lock);
    client.extend(&lock, LEASE).await.unwrap_err();
    assert_eq!(watch.cause(), Some(LossCause::Forced));
    assert_eq!(watch.note().as_deref(), Some("ops: ticket 7"));
}
