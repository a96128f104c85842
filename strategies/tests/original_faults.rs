//! Goal: what the original got wrong stays right here. Method: each fault that was measured in
//! gaggle 1.2.6 is one test on every strategy that runs in virtual time; the figures of the
//! original stand beside. Elections are in `original_election`, Redis in `original_redis`.

mod support {
    pub(crate) mod cluster;
    pub(crate) mod connect;
    pub(crate) mod gate;
}

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{
    Error, Gaggle, KeyedMutex, Local, Lock, LockOptions, Nonce, Raft, TokioClock,
};
use tokio::time::{Instant, sleep};

use crate::support::{
    cluster::{Cluster, Member},
    connect,
};

const KEY: &str = "orders/42";
/// A retry's jitter, and the stamp of the next entry.
const SOON: Duration = Duration::from_millis(30);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Two handles on one backend.
type Pair = [Arc<dyn KeyedMutex>; 2];

async fn local() -> Pair {
    let mutex = Arc::new(Local::with_clock(Arc::new(TokioClock::new())));
    [mutex.clone(), mutex]
}

async fn followers<S: Member>() -> Pair {
    let cluster = Cluster::<S>::in_virtual_time(3, connect::memory()).started().await;
    let others = cluster.others(cluster.leader().await);
    let pair = [cluster.member(others[0]), cluster.member(others[1])];
    // The leader goes on when its handle is dropped with the cluster only if somebody keeps it.
    std::mem::forget(cluster);
    pair.map(|member| member as Arc<dyn KeyedMutex>)
}

async fn take(mutex: &Arc<dyn KeyedMutex>, duration: Duration) -> Lock {
    let options = LockOptions::default().duration(duration);
    mutex.lock(KEY, options).await.expect("a free key is granted")
}

/// Measured there: `maxWait` 5000, rejected after 4 ms.
async fn a_contended_lock_waits([one, two]: Pair) {
    let held = take(&one, ms(60_000)).await;
    let began = Instant::now();
    let wait = LockOptions::default().max_wait(ms(5_000));
    let result = two.lock(KEY, wait.clone()).await;
    assert!(matches!(result, Err(Error::TimedOut)), "{result:?}");
    let waited = began.elapsed();
    assert!(waited >= ms(5_000) && waited < ms(5_000) + SOON, "{waited:?}");

    let waiter = tokio::spawn({
        let two = two.clone();
        async move { two.lock(KEY, wait).await }
    });
    sleep(ms(1_000)).await;
    one.unlock(&held).await.expect("the holder unlocks");
    let began = Instant::now();
    waiter.await.expect("no panic").expect("granted at the unlock");
    assert!(began.elapsed() <= SOON, "{:?}", began.elapsed());
}

/// Measured there: `duration` 500, the next grant after 5,529 ms.
async fn a_500_ms_lease_is_granted_again_soon_after_500_ms([one, two]: Pair) {
    let began = Instant::now();
    let forgotten = take(&one, ms(500)).await;
    let next = two.lock(KEY, LockOptions::default()).await.expect("granted at the lease's end");
    let after = began.elapsed();
    assert!(after >= ms(494) && after <= ms(500) + SOON, "{after:?}");
    assert!(next.fencing_token() > forgotten.fencing_token());
}

/// Measured there: ignored, and the caller waited out its timeout of 1,500 ms.
async fn a_wrong_nonce_is_refused_at_once([one, two]: Pair) {
    let held = take(&one, ms(10_000)).await;
    let forged = Lock::new(KEY, Nonce::random(), held.fencing_token(), held.deadline());
    let began = Instant::now();
    let result = two.unlock(&forged).await;
    assert!(matches!(result, Err(Error::NotHolder)), "{result:?}");
    assert!(began.elapsed() <= SOON, "{:?}", began.elapsed());
    one.unlock(&held).await.expect("the holder still holds");
}

/// Measured there on Redis: fails without an attempt.
async fn a_max_wait_of_zero_on_a_free_key_succeeds([one, _]: Pair) {
    let options = LockOptions::default().max_wait(Duration::ZERO);
    let lock = one.lock(KEY, options).await.expect("a free key is granted");
    one.unlock(&lock).await.expect("the holder unlocks");
}

/// Measured there on Redis: 182 ms.
async fn a_wait_of_100_ms_is_not_overrun([one, two]: Pair) {
    let held = take(&one, ms(10_000)).await;
    let began = Instant::now();
    let result = two.lock(KEY, LockOptions::default().max_wait(ms(100))).await;
    assert!(matches!(result, Err(Error::TimedOut)), "{result:?}");
    let waited = began.elapsed();
    assert!(waited >= ms(100) && waited <= ms(102), "{waited:?}");
    one.unlock(&held).await.expect("the holder unlocks");
}

/// There on Redis: success, as was a second unlock.
async fn unlock_of_an_expired_lock_held_by_another_is_not_success([one, two]: Pair) {
    let expired = take(&one, ms(500)).await;
    let next = two.lock(KEY, LockOptions::default()).await.expect("granted at the lease's end");
    let result = one.unlock(&expired).await;
    assert!(matches!(result, Err(Error::Expired)), "{result:?}");
    two.unlock(&next).await.expect("the new holder still holds");
    let again = two.unlock(&next).await;
    assert!(matches!(again, Err(Error::NotHolder)), "{again:?}");
}

/// There: rejected by none, the key waited out `maxWait`.
async fn a_bad_duration_is_refused_at_once([one, _]: Pair) {
    let began = Instant::now();
    let result = one.lock(KEY, LockOptions::default().duration(Duration::ZERO)).await;
    let named = matches!(result, Err(Error::InvalidOptions { field: "duration", .. }));
    assert!(named, "{result:?}");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

macro_rules! on_each {
    ($($test:ident),+ $(,)?) => {
        mod local {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test(super::local().await).await;
            })+
        }

        mod raft {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test(super::followers::<super::Raft>().await).await;
            })+
        }

        mod gaggle {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test(super::followers::<super::Gaggle>().await).await;
            })+
        }
    };
}

on_each!(
    a_contended_lock_waits,
    a_500_ms_lease_is_granted_again_soon_after_500_ms,
    a_wrong_nonce_is_refused_at_once,
    a_max_wait_of_zero_on_a_free_key_succeeds,
    a_wait_of_100_ms_is_not_overrun,
    unlock_of_an_expired_lock_held_by_another_is_not_success,
    a_bad_duration_is_refused_at_once,
);

/// Measured there: 20 pairs on distinct keys leave 40 entries and 20 keys for ever.
async fn the_log_and_the_table_shrink<S: Member>() {
    let cluster = Cluster::<S>::in_virtual_time(3, connect::memory());
    let cluster = cluster.with(|options| options.compaction(50, 10)).started().await;
    let member = cluster.member(0);
    for number in 0..500 {
        let key = format!("orders/{number}");
        let lock = member.lock(&key, LockOptions::default()).await.expect("a free key is granted");
        member.unlock(&lock).await.expect("the holder unlocks");
    }
    sleep(ms(1_000)).await;
    for member in cluster.running() {
        let sizes = member.sizes().await.expect("it runs");
        assert_eq!((sizes.table.keys, sizes.table.waiters, sizes.pending), (0, 0, 0));
        assert!(sizes.log <= 61, "{} entries are kept", sizes.log);
    }
    // What is remembered of nonces goes as well, by time.
    sleep(ms(45_000)).await;
    let lock = member.lock(KEY, LockOptions::default()).await.expect("a free key is granted");
    member.unlock(&lock).await.expect("the holder unlocks");
    let sizes = member.sizes().await.expect("it runs");
    assert!(sizes.table.nonces_remembered <= 1, "{} nonces", sizes.table.nonces_remembered);
}

#[tokio::test(start_paused = true)]
async fn the_log_and_the_table_of_raft_shrink() {
    the_log_and_the_table_shrink::<Raft>().await;
}

#[tokio::test(start_paused = true)]
async fn the_log_and_the_table_of_gaggle_shrink() {
    the_log_and_the_table_shrink::<Gaggle>().await;
}
