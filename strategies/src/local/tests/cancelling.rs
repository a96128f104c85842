//! Goal: a call that is dropped leaves nothing behind (rule 7).
use super::*;

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_leaves_nothing_behind() {
    // contract rule 7
    let local = local();
    let first = local.lock("k", options(1000, 0)).await.unwrap();
    let dropped = waiting(&local, "k", forever(1000)).await;
    let next = waiting(&local, "k", forever(1000)).await;
    drop(dropped);
    assert_eq!(sizes(&local).waiters, 1);
    local.unlock(&first).await.unwrap();
    let lock = next.now_or_never().unwrap().unwrap();
    local.unlock(&lock).await.unwrap();
    assert_empty(&local);
}

#[tokio::test(start_paused = true)]
async fn a_lock_granted_to_a_call_that_is_dropped_is_passed_on() {
    // contract rule 7
    let local = local();
    let first = local.lock("k", options(1000, 0)).await.unwrap();
    let granted = waiting(&local, "k", forever(1000)).await;
    let next = waiting(&local, "k", forever(1000)).await;
    local.unlock(&first).await.unwrap();
    drop(granted);
    let lock = next.now_or_never().unwrap().unwrap();
    assert_eq!(lock.fencing_token(), first.fencing_token() + 2);
    local.unlock(&lock).await.unwrap();
    assert_empty(&local);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_polled_takes_nothing() {
    let local = local();
    drop(local.lock("k", forever(1000)));
    assert_empty(&local);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiters_half_of_them_dropped_are_each_served_once() {
    let local = local();
    let first = local.lock("k", forever(1000)).await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..1000 {
        calls.push(waiting(&local, "k", forever(1000)).await);
    }
    let mut keep = false;
    calls.retain(|_| {
        keep = !keep;
        keep
    });
    let serve = calls.into_iter().map(|call| async {
        let lock = call.await.unwrap();
        local.unlock(&lock).await.unwrap();
        lock.fencing_token()
    });
    let all = join_all(serve);
    let (tokens, ()) = tokio::join!(all, async { local.unlock(&first).await.unwrap() });
    let base = first.fencing_token();
    assert_eq!(tokens, (base + 1..=base + 500).collect::<Vec<_>>());
    assert_empty(&local);
}
