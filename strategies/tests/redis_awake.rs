//! Goal: a call wakes for its own reply or grant, and for nothing else.
//! Method: handles as processes against a `redis-server` of the test's own; wakings are counted.
// A test that meets an error has failed; what starts the server reads the clock.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;
#[path = "support/wakes.rs"]
mod wakes;

use gaggle_strategies::{KeyedMutex, Redis};
use redis_support::{Server, patient};
use wakes::wakes;

/// A task that is woken for nothing costs the runtime a turn, and often the waking of another
/// thread.
#[tokio::test]
async fn reply_or_grant_wakes_a_caller_once() {
    let server = Server::start().await;
    let redis = Redis::open(server.options()).await.unwrap();
    let (held, woken) = wakes(redis.lock("k", patient())).await;
    assert_eq!(woken, 1, "the reply");
    let held = held.unwrap();
    let waiting = wakes(redis.lock("k", patient()));
    let unlocking = async {
        server.queued("k", 1).await;
        wakes(redis.unlock(&held)).await
    };
    let ((lock, woken), (unlocked, _)) = tokio::join!(waiting, unlocking);
    assert_eq!(woken, 1, "the grant: a place in the queue is nothing to act upon");
    unlocked.unwrap();
    let (unlocked, woken) = wakes(redis.unlock(&lock.unwrap())).await;
    assert_eq!((unlocked.is_ok(), woken), (true, 1));
}
