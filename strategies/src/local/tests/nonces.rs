//! Goal: a nonce names one acquisition, whoever asks with it and however often (rule 6).
use super::*;

const NONCE: Nonce = Nonce::from_u128(7);

fn named(duration: u64, max_wait: u64) -> LockOptions {
    options(duration, max_wait).nonce(NONCE)
}

#[tokio::test(start_paused = true)]
async fn a_repeated_nonce_finds_the_same_grant() {
    // contract rule 6
    let local = local();
    let first = local.lock("k", named(1000, 0)).await.unwrap();
    let second = local.lock("k", named(1000, 0)).await.unwrap();
    assert_eq!(second.fencing_token(), first.fencing_token());
    local.unlock(&second).await.unwrap();
    assert_error!(local.unlock(&first).await, Error::NotHolder);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_found_does_not_outlive_its_lease() {
    // contract rule 2: this call was sent long after the one that took the place
    let local = local();
    local.lock("k", named(1000, 0)).await.unwrap();
    tokio::time::advance(ms(300)).await;
    let found = local.lock("k", named(1000, 0)).await.unwrap();
    let lease = local.inspect("k").await.unwrap().unwrap().remaining;
    assert_eq!(lease, ms(700));
    assert!(found.deadline().unwrap().since(local.clock().now()) < lease);
}

#[tokio::test(start_paused = true)]
async fn a_nonce_given_is_spent_after_its_unlock_for_as_long_as_it_is_remembered() {
    // contract rule 6
    let local = local();
    let lock = local.lock("k", named(1000, 0)).await.unwrap();
    local.unlock(&lock).await.unwrap();
    assert_error!(local.lock("k", named(1000, 0)).await, Error::Spent);
    tokio::time::advance(ms(30_000)).await;
    assert_error!(local.lock("k", named(1000, 0)).await, Error::Spent);
    tokio::time::advance(ms(1)).await;
    local.lock("k", named(1000, 0)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_nonce_given_is_spent_after_it_expired_timed_out_or_was_released() {
    let local = local();
    local.lock("a", options(100, 0).nonce(Nonce::from_u128(1))).await.unwrap();
    tokio::time::advance(ms(100)).await;
    let again = local.lock("a", options(100, 0).nonce(Nonce::from_u128(1))).await;
    assert_error!(again, Error::Spent);

    let holder = local.lock("b", options(1000, 0)).await.unwrap();
    assert_error!(local.lock("b", named(100, 50)).await, Error::TimedOut);
    assert_error!(local.lock("b", named(100, 50)).await, Error::Spent);
    local.unlock(&holder).await.unwrap();

    let lock = local.lock("c", options(100, 0).nonce(Nonce::from_u128(2))).await.unwrap();
    local.release(&lock);
    let again = local.lock("c", options(100, 0).nonce(Nonce::from_u128(2))).await;
    assert_error!(again, Error::Spent);
}

#[tokio::test(start_paused = true)]
async fn a_nonce_given_is_spent_also_when_the_table_dropped_it_before_its_call_looked() {
    let local = local();
    local.lock("k", options(1000, 0)).await.unwrap();
    let late = waiting(&local, "k", named(100, 50)).await;
    tokio::time::advance(ms(60)).await;
    local.inspect("k").await.unwrap();
    assert_eq!(sizes(&local).waiters, 0, "dropped");
    assert_error!(late.await, Error::TimedOut);
    assert_error!(local.lock("k", named(100, 50)).await, Error::Spent);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_no_outcome_of_a_nonce() {
    let local = local();
    let holder = local.lock("k", options(1000, 0)).await.unwrap();
    assert_error!(local.lock("k", named(100, 0)).await, Error::Held);
    local.unlock(&holder).await.unwrap();
    local.lock("k", named(100, 0)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_calls_with_one_nonce_get_the_same_grant() {
    let local = local();
    let holder = local.lock("k", options(1000, 0)).await.unwrap();
    let (first, second) =
        (waiting(&local, "k", named(500, 5000)), waiting(&local, "k", named(500, 5000)));
    let (first, second) = (first.await, second.await);
    assert_eq!(sizes(&local).waiters, 1);
    local.unlock(&holder).await.unwrap();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.fencing_token(), second.fencing_token());
    assert_eq!(sizes(&local).keys, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_one_of_two_calls_with_one_nonce_does_not_withdraw_the_other() {
    for dropped_after_grant in [false, true] {
        let local = local();
        let holder = local.lock("k", options(1000, 0)).await.unwrap();
        let one = waiting(&local, "k", named(500, 5000)).await;
        let other = waiting(&local, "k", named(500, 5000)).await;
        let mut one = Some(one);
        if !dropped_after_grant {
            one = None;
        }
        local.unlock(&holder).await.unwrap();
        let lock = other.now_or_never().unwrap().unwrap();
        drop(one);
        assert_eq!(sizes(&local).keys, 1, "still held");
        local.unlock(&lock).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_the_grant_of_a_call_still_waiting_keeps_it_from_being_withdrawn() {
    let local = local();
    let holder = local.lock("k", options(1000, 0)).await.unwrap();
    let unpolled = waiting(&local, "k", named(500, 5000)).await;
    local.unlock(&holder).await.unwrap();
    let lock = local.lock("k", named(500, 0)).await.unwrap();
    drop(unpolled);
    local.unlock(&lock).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_both_calls_with_one_nonce_are_dropped_it_is_withdrawn() {
    let local = local();
    let holder = local.lock("k", options(1000, 0)).await.unwrap();
    let one = waiting(&local, "k", named(500, 5000)).await;
    let other = waiting(&local, "k", named(500, 5000)).await;
    drop((one, other));
    assert_eq!(sizes(&local).waiters, 0);
    local.unlock(&holder).await.unwrap();
    assert_error!(local.lock("k", named(500, 0)).await, Error::Spent);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_wait_is_refused_where_its_nonce_waits_already() {
    let local = local();
    let holder = local.lock("k", options(1000, 0)).await.unwrap();
    let waiter = waiting(&local, "k", named(500, 5000)).await;
    assert_error!(local.lock("k", named(500, 0)).await, Error::Held);
    local.unlock(&holder).await.unwrap();
    waiter.now_or_never().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_whose_nonce_another_call_took_and_unlocked_is_spent() {
    let local = local();
    let holder = local.lock("k", options(1000, 0)).await.unwrap();
    let slow = waiting(&local, "k", named(500, 5000)).await;
    let quick = waiting(&local, "k", named(500, 5000)).await;
    local.unlock(&holder).await.unwrap();
    let lock = quick.now_or_never().unwrap().unwrap();
    local.unlock(&lock).await.unwrap();
    assert_error!(slow.now_or_never().unwrap(), Error::Spent);
    assert_eq!(sizes(&local).keys, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_slept_through_its_end_knows_nothing_of_the_same_nonce_on_another_key() {
    let local = local();
    let holder = local.lock("a", options(1000, 0)).await.unwrap();
    let asleep = waiting(&local, "a", named(100, 20)).await;
    tokio::time::advance(ms(30)).await;
    let elsewhere = local.lock("b", named(1000, 0)).await.unwrap();
    assert_error!(asleep.now_or_never().unwrap(), Error::TimedOut);
    local.unlock(&elsewhere).await.unwrap();
    local.unlock(&holder).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_slept_through_its_end_does_not_withdraw_the_same_nonce_queued_anew() {
    let local = local();
    let holder = local.lock("a", options(1000, 0)).await.unwrap();
    let asleep = waiting(&local, "a", named(100, 20)).await;
    tokio::time::advance(ms(30)).await;
    let anew = waiting(&local, "a", named(500, 5000)).await;
    assert_error!(asleep.now_or_never().unwrap(), Error::TimedOut);
    local.unlock(&holder).await.unwrap();
    anew.now_or_never().unwrap().unwrap();
}

/// Whoever sees a lock sees its nonce, also one that was drawn, and may ask with it.
#[tokio::test(start_paused = true)]
async fn a_drawn_nonce_that_is_asked_for_while_it_holds_is_one_acquisition() {
    // contract rules 1, 6 and 7
    for (polled, unlocked) in [(false, false), (false, true), (true, false), (true, true)] {
        let local = local();
        let holder = local.lock("k", options(1000, 0)).await.unwrap();
        let mut first = Some(waiting(&local, "k", forever(1000)).await);
        local.unlock(&holder).await.unwrap();
        let nonce = local.inspect("k").await.unwrap().unwrap().nonce;
        if polled {
            assert_eq!(first.take().unwrap().await.unwrap().nonce(), nonce);
        }
        let second = local.lock("k", options(1000, 0).nonce(nonce)).await.unwrap();
        if !unlocked {
            drop(first);
            assert_error!(local.try_lock("k", ms(1000)).await, Error::Held);
            local.unlock(&second).await.unwrap();
        } else {
            local.unlock(&second).await.unwrap();
            let next = local.try_lock("k", ms(1000)).await.unwrap();
            if let Some(first) = first {
                assert_error!(first.await, Error::Spent);
            }
            local.unlock(&next).await.unwrap();
        }
        let sizes = sizes(&local);
        assert_eq!((sizes.keys, sizes.waiters), (0, 0));
        let parts = local.shards.all();
        parts.for_each(|part| assert!(part.lock().unwrap().calls.is_empty()));
    }
}
