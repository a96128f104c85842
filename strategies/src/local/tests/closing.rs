//! Goal: closing ends everything and leaves nothing behind (rule 11).
use super::*;

#[tokio::test(start_paused = true)]
async fn closing_ends_waits_loses_guards_and_refuses_later_calls() {
    // contract rule 11
    let local = local();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    let watch = local.watch(&lock);
    let handle = local.clone();
    let waiter = tokio::spawn(async move { handle.lock("k", forever(1000)).await });
    tokio::task::yield_now().await;
    assert_eq!(sizes(&local).waiters, 1);
    local.close().await;
    local.close().await;
    assert!(watch.is_lost());
    assert_error!(waiter.await.unwrap(), Error::Closed);
    assert_error!(local.lock("k", forever(1000)).await, Error::Closed);
    assert_error!(local.try_lock("k", ms(10)).await, Error::Closed);
    assert_error!(local.unlock(&lock).await, Error::Closed);
    assert_error!(local.extend(&lock, ms(10)).await, Error::Closed);
    assert_error!(local.inspect("k").await, Error::Closed);
    assert_error!(local.ready().await, Error::Closed);
    local.release(&lock);
    assert!(local.watch(&lock).is_lost());
    drop(watch);
    assert_empty(&local);
}

#[tokio::test(start_paused = true)]
async fn granted_call_polled_after_the_close_gets_closed() {
    let local = local();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    let granted = waiting(&local, "k", forever(1000)).await;
    local.unlock(&lock).await.unwrap();
    local.close().await;
    assert_error!(granted.now_or_never().unwrap(), Error::Closed);
    assert_empty(&local);
}
