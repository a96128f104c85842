//! Goal: a wait ends in time, with a lease that is worth having or with an error.
use super::*;

#[tokio::test(start_paused = true)]
async fn submillisecond_wait_times_out() {
    let local = local();
    local.lock("k", options(1000, 0)).await.unwrap();
    let brief = LockOptions::default().max_wait(Duration::from_micros(300));
    assert_error!(local.lock("k", brief).await, Error::TimedOut(_));
}

#[tokio::test(start_paused = true)]
async fn late_poll_grants_no_ended_wait() {
    // Contract, rule 8: the lease ended before the wait, but the first check came after both.
    let local = local();
    local.lock("k", options(100, 0)).await.unwrap();
    let late = LockOptions::default().max_wait(Duration::from_micros(100_400));
    let late = waiting(&local, "k", late).await;
    tokio::time::advance(Duration::from_micros(100_600)).await;
    assert_error!(late.now_or_never().unwrap(), Error::TimedOut(_));
    assert_eq!(sizes(&local).waiters, 0);
}

#[tokio::test(start_paused = true)]
async fn head_watches_the_present_lease() {
    // The key passes to a holder with a shorter lease than the one the waiter saw first.
    let local = local();
    let first = local.lock("k", options(60_000, 0)).await.unwrap();
    let second = waiting(&local, "k", forever(50)).await;
    let third = waiting(&local, "k", forever(100)).await;
    local.unlock(&first).await.unwrap();
    let begun = local.clock().now();
    let lock = second.await.unwrap();
    let mut third = third;
    assert!(once(&mut third).await.is_pending());
    third.await.unwrap();
    let waited = local.clock().now().since(begun);
    assert!((ms(50)..ms(53)).contains(&waited), "{waited:?}");
    assert!(lock.deadline().unwrap() < local.clock().now());
}

#[tokio::test(start_paused = true)]
async fn unpolled_head_blocks_no_waiter() {
    // contract rule 9
    let local = local();
    local.lock("k", options(100, 0)).await.unwrap();
    let unpolled = waiting(&local, "k", forever(200)).await;
    let begun = local.clock().now();
    local.lock("k", forever(100)).await.unwrap();
    let waited = local.clock().now().since(begun);
    assert!(waited <= ms(2200), "two leases and a backstop each: {waited:?}");
    drop(unpolled);
}

#[tokio::test(start_paused = true)]
async fn expired_unread_grant_is_retried() {
    let local = local();
    let first = local.lock("k", options(1000, 0)).await.unwrap();
    let starved = waiting(&local, "k", options(100, 5000)).await;
    local.unlock(&first).await.unwrap();
    tokio::time::advance(ms(200)).await;
    let lock = starved.await.unwrap();
    assert_eq!(lock.fencing_token(), first.fencing_token() + 2);
    assert!(lock.deadline().unwrap() > local.clock().now());
}

#[tokio::test(start_paused = true)]
async fn grant_expired_after_wait_times_out() {
    let local = local();
    let first = local.lock("k", options(1000, 0)).await.unwrap();
    let starved = waiting(&local, "k", options(100, 150)).await;
    local.unlock(&first).await.unwrap();
    tokio::time::advance(ms(200)).await;
    assert_error!(starved.await, Error::TimedOut(_));
}

#[tokio::test(start_paused = true)]
async fn lease_below_half_is_extended_first() {
    // contract rule 2
    let local = local();
    let first = local.lock("k", options(1000, 0)).await.unwrap();
    let late = waiting(&local, "k", options(1000, 5000)).await;
    local.unlock(&first).await.unwrap();
    tokio::time::advance(ms(700)).await;
    let lock = late.await.unwrap();
    let now = local.clock().now();
    assert_eq!(lock.deadline().unwrap().since(now), ms(1000 - 10 - 1));
    assert_eq!(lock.fencing_token(), first.fencing_token() + 1, "the same grant");
    let table_end = local.inspect("k").await.unwrap().unwrap().remaining;
    assert_eq!(table_end, ms(1000));
}

#[tokio::test(start_paused = true)]
async fn less_than_half_after_wait_is_withdrawn() {
    // contract rule 2
    let local = local();
    let first = local.lock("k", options(1000, 0)).await.unwrap();
    let late = waiting(&local, "k", options(1000, 600)).await;
    local.unlock(&first).await.unwrap();
    tokio::time::advance(ms(700)).await;
    assert_error!(late.await, Error::TimedOut(_));
    assert_empty(&local);
}

#[tokio::test(start_paused = true)]
async fn timed_out_head_yields_to_the_next() {
    // contract rule 3: the next waiter planned its look when another head was before it
    let local = local();
    let begun = local.clock().now();
    local.lock("k", options(300, 0)).await.unwrap();
    let head = waiting(&local, "k", options(100, 200)).await;
    let next = waiting(&local, "k", options(1000, 5000)).await;
    let next = async { (next.await.unwrap(), local.clock().now()) };
    let (head, (_, granted)) = futures_util::future::join(head, next).await;
    assert_error!(head, Error::TimedOut(_));
    let waited = granted.since(begun);
    assert!((ms(300)..ms(303)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn grant_polled_after_close_is_closed() {
    // contract rule 11
    let local = local();
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    let granted = waiting(&local, "k", forever(1000)).await;
    local.unlock(&lock).await.unwrap();
    local.close().await;
    assert_error!(local.ready().await, Error::Closed);
    assert_error!(granted.now_or_never().unwrap(), Error::Closed);
    assert_empty(&local);
}

/// The repeated call takes over, and a dropped one withdraws nothing.
#[tokio::test(start_paused = true)]
async fn repeated_given_nonce_keeps_its_position() {
    let local = local();
    let first = local.lock("k", options(60_000, 0)).await.unwrap();
    let given = options(1_000, 30_000).nonce(Nonce::given(7));
    let former = waiting(&local, "k", given.clone()).await;
    let second = waiting(&local, "k", options(1_000, 30_000)).await;
    let dropped = waiting(&local, "k", given.clone()).await;
    assert_error!(former.await, Error::TimedOut(_));
    drop(dropped);
    let repeated = waiting(&local, "k", given.clone()).await;
    local.unlock(&first).await.unwrap();
    let lock = repeated.await.unwrap();
    assert_eq!((lock.nonce(), lock.fencing_token()), (Nonce::given(7), first.fencing_token() + 1));

    tokio::time::advance(ms(400)).await;
    let again = local.lock("k", given.clone()).await.unwrap();
    assert_eq!(again.fencing_token(), lock.fencing_token());
    let rest = again.deadline().unwrap().since(local.clock().now());
    assert!(rest < ms(600), "the rest of the granted lease counts: {rest:?}");
    local.unlock(&again).await.unwrap();
    assert_eq!(second.await.unwrap().fencing_token(), lock.fencing_token() + 1);
}

#[tokio::test(start_paused = true)]
async fn unlock_withdraws_a_given_nonce() {
    let local = local();
    let first = local.lock("k", options(60_000, 0)).await.unwrap();
    let given = options(1_000, 30_000).nonce(Nonce::given(7));
    drop(waiting(&local, "k", given).await);
    let withdrawn = Lock::new("k", Nonce::given(7), 0, None);
    assert_error!(local.unlock(&withdrawn).await, Error::NotHolder);
    local.unlock(&first).await.unwrap();
    assert_empty(&local);
}

/// Nobody repeats the call: the wait ends with its `max_wait`.
#[tokio::test(start_paused = true)]
async fn abandoned_given_nonce_is_dropped_in_time() {
    let local = local();
    let _first = local.lock("k", options(60_000, 0)).await.unwrap();
    drop(waiting(&local, "k", options(1_000, 3_000).nonce(Nonce::given(7))).await);
    tokio::time::advance(ms(3_001)).await;
    assert_eq!(local.inspect("k").await.unwrap().unwrap().waiters, 0);
}

/// A grant that its call has not read is freed after the waits, and another waiter stays.
#[tokio::test(start_paused = true)]
async fn unlock_all_grants_no_key_to_an_ended_wait() {
    let local = local();
    let [unread, held, other] = ["a/1", "a/2", "b"].map(|key| (key, options(60_000, 0)));
    let first = local.lock(unread.0, unread.1).await.unwrap();
    let granted = waiting(&local, "a/1", forever(1_000)).await;
    let behind = waiting(&local, "a/1", forever(1_000)).await;
    local.unlock(&first).await.unwrap();
    let held = local.lock(held.0, held.1).await.unwrap();
    let watch = local.watch(&held);
    let waits = waiting(&local, "a/2", forever(1_000)).await;
    let _other = local.lock(other.0, other.1).await.unwrap();
    let mut stays = waiting(&local, "b", forever(1_000)).await;

    local.unlock_all("a/").await.unwrap();

    assert!(watch.is_lost());
    for ended in [granted, behind, waits] {
        assert_error!(ended.now_or_never().unwrap(), Error::Withdrawn);
    }
    assert!(once(&mut stays).await.is_pending());
    let sizes = sizes(&local);
    assert_eq!((sizes.keys, sizes.waiters), (1, 1));
    let next = local.lock("a/1", options(1_000, 0)).await.unwrap();
    assert_eq!(next.fencing_token(), first.fencing_token() + 2, "one grant was unread");
}

/// Another process may rely on a given nonce: its LOCK stays in the queue.
#[tokio::test(start_paused = true)]
async fn unlock_all_keeps_a_given_nonce_in_the_queue() {
    let local = local();
    let first = local.lock("k", options(60_000, 0)).await.unwrap();
    let given = options(1_000, 30_000).nonce(Nonce::given(7));
    let ended = waiting(&local, "k", given.clone()).await;
    local.unlock_all("").await.unwrap();
    assert_error!(ended.now_or_never().unwrap(), Error::Withdrawn);
    let again = waiting(&local, "k", given).await;
    local.unlock(&first).await.unwrap();
    assert_eq!(again.await.unwrap().fencing_token(), first.fencing_token() + 1);
}
