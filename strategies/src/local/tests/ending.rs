//! Goal: unlock, extend, release and watch touch their own acquisition and no other.
use super::*;

#[tokio::test(start_paused = true)]
async fn forged_lock_frees_no_key() {
    let local = local();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    let waiter = waiting(&local, "k", options(1000, 5000)).await;
    let made_up = |key, nonce| Lock::new(key, nonce, 1, None);
    for wrong in [made_up("k", Nonce::from_u128(9)), made_up("x", lock.nonce())] {
        assert_error!(local.unlock(&wrong).await, Error::NotHolder);
        assert_error!(local.extend(&wrong, ms(100)).await, Error::NotHolder);
        local.release(&wrong);
    }
    assert_eq!(sizes(&local).waiters, 1);
    local.unlock(&lock).await.unwrap();
    waiter.now_or_never().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn received_lock_holds_after_an_extend() {
    let local = local();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    let received = Lock::new("k", lock.nonce(), lock.fencing_token(), None);
    let held = local.extend(&received, ms(500)).await.unwrap();
    assert_eq!(held.deadline().unwrap().since(local.clock().now()), ms(500 - 5 - 1));
}

#[tokio::test(start_paused = true)]
async fn former_lock_value_extends_nothing() {
    let local = local();
    local.unlock(&local.lock("k", options(1000, 0)).await.unwrap()).await.unwrap();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    let former = Lock::new("k", lock.nonce(), lock.fencing_token() - 1, None);
    assert_error!(local.extend(&former, ms(9000)).await, Error::NotHolder);
    tokio::time::advance(ms(1000)).await;
    local.lock("k", options(100, 0)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn expired_lock_can_only_be_unlocked() {
    let local = local();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    tokio::time::advance(ms(995)).await;
    assert_error!(local.extend(&lock, ms(1000)).await, Error::Expired);
    local.unlock(&lock).await.unwrap();
    assert_empty(&local);
}

#[tokio::test(start_paused = true)]
async fn watch_fires_at_lease_end_and_later() {
    let local = local();
    let lock = local.lock("k", options(100, 0)).await.unwrap();
    let watch = local.watch(&lock);
    assert!(!watch.is_lost());
    tokio::time::advance(ms(100)).await;
    local.inspect("k").await.unwrap();
    watch.lost().await;
    drop(watch);
    assert_eq!(local.watch(&lock).cause(), Some(LossCause::Deadline), "watched too late");
    assert!(local.shards.losses.is_empty());
}

#[tokio::test(start_paused = true)]
async fn unlocked_unread_grant_is_not_returned() {
    let local = local();
    let first = local.lock("k", options(1000, 0)).await.unwrap();
    let granted = waiting(&local, "k", forever(1000)).await;
    local.unlock(&first).await.unwrap();
    let Inspection { nonce, fencing_token, .. } = local.inspect("k").await.unwrap().unwrap();
    local.unlock(&Lock::new("k", nonce, fencing_token, None)).await.unwrap();
    let lock = granted.now_or_never().unwrap().unwrap();
    assert_ne!(lock.nonce(), nonce);
    local.unlock(&lock).await.unwrap();
    assert_empty(&local);
}

/// Also before another request finds that its lease has ended.
#[tokio::test(start_paused = true)]
async fn expired_lock_is_neither_forced_nor_listed() {
    let local = local();
    // More keys than shards.
    for key in 0..40 {
        local.lock(&key.to_string(), options(100, 0)).await.unwrap();
    }
    tokio::time::advance(ms(100)).await;
    let operator = local.operator().unwrap();
    let forced = operator.force_unlock("0", None, "").await.unwrap();
    assert_eq!(forced, crate::operator::ForcedUnlock::NotHeld);
    let page = operator.list(crate::operator::ListOptions::default()).await.unwrap();
    assert_eq!((page.entries, page.next), (vec![], None));
}

/// The expired grant is found by the force-unlock of a key in its shard.
#[tokio::test(start_paused = true)]
async fn force_unlock_explains_no_other_loss() {
    let local = local();
    let mut expired = Vec::new();
    for key in 0..40 {
        expired.push(local.watch(&local.lock(&key.to_string(), options(100, 0)).await.unwrap()));
    }
    let held = local.watch(&local.lock("held", options(1_000, 0)).await.unwrap());
    tokio::time::advance(ms(100)).await;
    let operator = local.operator().unwrap();
    operator.force_unlock("held", None, "ticket 7").await.unwrap();
    assert!(held.is_lost() && held.note().is_some());
    assert!(expired.iter().any(crate::losses::LossWatch::is_lost), "one is in the same shard");
    assert!(expired.iter().all(|watch| watch.note().is_none()));
}
