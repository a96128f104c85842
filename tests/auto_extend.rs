//! Goal: auto-extend keeps a lease alive through failures, and ends when it must.
//! Method: a stub strategy with scripted replies, in virtual time.

mod common;

use common::{Call, Stub, lease, ms};
use gaggle::{Error, Locker, LossCause, SectionError};
use tokio::time::{Instant, timeout};

#[tokio::test(start_paused = true)]
async fn lease_is_extended_at_each_third() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    tokio::time::sleep(ms(1000)).await;
    assert!(guard.is_valid());
    assert_eq!(stub.extend_times_ms(), [300, 600, 900]);
    drop(guard);
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(stub.extend_times_ms().len(), 3, "it ends with the guard");
    assert_eq!(stub.calls().last(), Some(&Call::Release));
    assert!(stub.losses.is_empty());
}

#[tokio::test(start_paused = true)]
async fn lease_that_a_long_wait_shortened_is_extended_at_once() {
    let stub = Stub::new();
    stub.shorten_leases(ms(400));
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    tokio::time::sleep(ms(350)).await;
    assert!(guard.is_valid());
    assert_eq!(stub.extend_times_ms(), [0, 300]);
}

#[tokio::test(start_paused = true)]
async fn lock_without_auto_extend_is_not_extended() {
    let stub = Stub::new();
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(900))).await.unwrap();
    guard.lost().await;
    assert!(stub.extend_times_ms().is_empty());
}

#[tokio::test(start_paused = true)]
async fn lease_ends_at_max_hold() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(2000)).await.unwrap();
    let before = Instant::now();
    timeout(ms(60_000), guard.lost()).await.expect("it ends");
    assert_eq!(before.elapsed(), ms(2000));
    let longest = stub.calls().into_iter().filter_map(|call| match call {
        Call::Extend(duration) => Some(duration),
        _ => None,
    });
    assert_eq!(longest.max(), Some(ms(900)), "never more than the lease itself");
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_until_one_succeeds() {
    let stub = Stub::new();
    stub.reply_to_extends(&[
        || Err(Error::no_quorum()),
        || Err(Error::Unknown),
        || Err(Error::Limit { what: "requests", limit: 1 }),
    ]);
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    tokio::time::sleep(ms(1100)).await;
    assert!(guard.is_valid(), "extended after the failures: {:?}", stub.extend_times_ms());
    assert!(stub.extend_times_ms()[3] < 900, "by the fourth attempt: {:?}", stub.extend_times_ms());
}

#[tokio::test(start_paused = true)]
async fn failing_extend_retries_to_the_deadline() {
    let stub = Stub::new();
    stub.reply_to_every_extend(|| Err(Error::no_quorum()));
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    let before = Instant::now();
    guard.lost().await;
    assert_eq!(before.elapsed(), ms(900));
    tokio::time::sleep(ms(10_000)).await;
    let times = stub.extend_times_ms();
    assert!((4..40).contains(&times.len()), "{times:?}");
    assert!(times.iter().all(|at| *at < 900), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn forgotten_holder_is_lost_at_once() {
    let stub = Stub::new();
    stub.reply_to_extends(&[|| Err(Error::NotHolder)]);
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    let before = Instant::now();
    guard.lost().await;
    assert_eq!(before.elapsed(), ms(300));
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(stub.extend_times_ms().len(), 1);
    assert_eq!(guard.loss(), Some(LossCause::Ended), "the lease had not ended");
    assert!(matches!(guard.extend(ms(900)).await, Err(Error::Expired)), "its deadline has passed");
}

/// By a strategy that reports no loss: only the extension learns of it.
#[tokio::test(start_paused = true)]
async fn section_of_a_forgotten_holder_is_not_called_expired() {
    let stub = Stub::new();
    stub.reply_to_extends(&[|| Err(Error::NotHolder)]);
    let acquire = Locker::new(stub).lock_with("k", lease(ms(900))).auto_extend(ms(60_000));
    let lost = acquire.run(|_| std::future::pending::<()>()).await.unwrap_err();
    assert!(matches!(lost, SectionError::Lost(LossCause::Ended)), "{lost:?}");
    assert!(matches!(Error::from(lost), Error::NotHolder));
}

#[tokio::test(start_paused = true)]
async fn closed_handle_is_not_extended_again() {
    let stub = Stub::new();
    stub.reply_to_every_extend(|| Err(Error::Closed));
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    tokio::time::sleep(ms(899)).await;
    assert_eq!(stub.extend_times_ms(), [300]);
    assert!(guard.is_valid(), "the lease itself still runs");
    timeout(ms(1), guard.lost()).await.expect("until its deadline");
}

#[tokio::test(start_paused = true)]
async fn max_hold_below_the_lease_is_refused() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let refused = locker.lock_with("k", lease(ms(900))).auto_extend(ms(899)).await;
    assert!(matches!(refused, Err(Error::InvalidOptions { field: "max_hold", .. })));
    assert!(stub.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn longer_extend_delays_auto_extend() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    guard.extend(ms(5000)).await.unwrap();
    tokio::time::sleep(ms(20_000)).await;
    assert!(guard.is_valid());
    let times = stub.extend_times_ms();
    assert!(times[1] > 5000 - 900, "nothing is sent while it would gain nothing: {times:?}");
    assert!(times[1] <= 5000 - 600, "two thirds of a lease remain for retries: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_lock_is_not_extended() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 1);
    stub.losses.report(&guard.lock(), LossCause::Ended, None);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(tasks(), 0, "also while the lost guard lives");
    tokio::time::sleep(ms(5000)).await;
    assert!(stub.extend_times_ms().is_empty());
    assert!(!guard.is_valid());
}
