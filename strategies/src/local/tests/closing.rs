//! Goal: closing ends everything and leaves nothing behind (rule 11).
use super::*;

#[tokio::test(start_paused = true)]
async fn watch_after_the_close_is_lost() {
    let local = local();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    local.close().await;
    assert_error!(local.ready().await, Error::Closed);
    assert!(local.watch(&lock).is_lost());
    assert_empty(&local);
}

#[tokio::test(start_paused = true)]
async fn grant_polled_after_close_is_closed() {
    let local = local();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    let granted = waiting(&local, "k", forever(1000)).await;
    local.unlock(&lock).await.unwrap();
    local.close().await;
    assert_error!(granted.now_or_never().unwrap(), Error::Closed);
    assert_empty(&local);
}
