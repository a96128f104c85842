//! Goal: an extension that comes late because the runtime was blocked is reported, and no other.
//! Method: the thread of the runtime sleeps; all events of the thread are recorded.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod common;

use std::{thread, time::Duration};

use common::{Stub, lease, ms};
use gaggle::{Error, Locker};
use gaggle_fixtures::Events;
use tokio::sync::Mutex;

/// Which events are of interest is state of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

const EVENT: &str = "the runtime was blocked for ";

fn blocked(events: &Events) -> usize {
    events.with(EVENT).len()
}

#[tokio::test]
async fn blocked_runtime_is_reported_where_an_extension_was_due() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (events, _recording) = Events::of_thread();
    let locker = gaggle::open("local:").await.unwrap();
    let request = || locker.lock_with("k", lease(ms(90))).auto_extend(Duration::from_secs(60));

    // The section ends before the keep-alive runs again.
    let guard = request().await.unwrap();
    thread::sleep(ms(120));
    assert!(matches!(guard.unlock().await, Err(Error::Expired)));
    assert_eq!(blocked(&events), 1, "{:?}", events.with(""));

    // The keep-alive runs again, late, and the lease lives.
    let guard = request().await.unwrap();
    thread::sleep(ms(60));
    tokio::time::sleep(ms(5)).await;
    assert!(guard.is_valid());
    assert_eq!(blocked(&events), 2, "{:?}", events.with(""));
    guard.unlock().await.unwrap();
    assert_eq!(blocked(&events), 2, "{:?}", events.with(""));

    // No extension was due.
    let guard = request().await.unwrap();
    thread::sleep(ms(10));
    drop(guard);
    let guard = locker.lock_with("k", lease(ms(50))).await.unwrap();
    thread::sleep(ms(60));
    drop(guard);
    assert_eq!(blocked(&events), 2, "{:?}", events.with(""));
}

/// A request without a reply does not block the runtime.
#[tokio::test(start_paused = true)]
async fn failing_extension_is_not_reported_as_blocked() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (events, _recording) = Events::of_thread();
    let stub = Stub::new();
    stub.reply_to_every_extend(|| Err(Error::no_quorum()));
    let locker = Locker::new(stub);
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000)).await.unwrap();
    guard.lost().await;
    tokio::time::sleep(ms(5_000)).await;
    drop(guard);
    assert_eq!(blocked(&events), 0, "{:?}", events.with(""));
}
