//! Goal: `Local` keeps the contract: deadlines, cancellation, repeated nonces, closing.
//!
//! Method: virtual time. Futures are polled by hand where it matters who has been polled and when.
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};

use crate::{
    BootClock, Clock, Error, Instant, KeyedMutex, Local, LocalOptions, Lock, LockOptions, MaxWait,
    Nonce, TokioClock, lock_table::Sizes,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn local() -> Arc<Local> {
    Arc::new(Local::with_clock(Arc::new(TokioClock::new())))
}

fn options(duration: u64, max_wait: u64) -> LockOptions {
    LockOptions::default().duration(ms(duration)).max_wait(ms(max_wait))
}

fn forever(duration: u64) -> LockOptions {
    LockOptions::default().duration(ms(duration)).max_wait(MaxWait::Forever)
}

type Pending<'a> = Pin<Box<dyn Future<Output = Result<Lock, Error>> + Send + 'a>>;

async fn once(call: &mut Pending<'_>) -> Poll<Result<Lock, Error>> {
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await
}

/// A call that has been polled once and waits.
async fn waiting<'a>(local: &'a Local, key: &'a str, options: LockOptions) -> Pending<'a> {
    let mut call: Pending<'a> = Box::pin(local.lock(key, options));
    assert!(once(&mut call).await.is_pending(), "nobody granted it");
    call
}

fn sizes(local: &Local) -> Sizes {
    let state = local.state.lock().unwrap();
    state.table.check();
    assert_eq!(state.calls.len() as u64, state.table.sizes().waiters, "one entry per waiter");
    state.table.sizes()
}

#[track_caller]
fn assert_empty(local: &Local) {
    assert_eq!(sizes(local), Sizes::default());
    assert!(local.holds.is_empty());
}

macro_rules! assert_error {
    ($result:expr, $error:pat) => {
        let result = $result;
        assert!(matches!(result, Err($error)), "{result:?}");
    };
}

mod basics {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lock_and_unlock_leave_nothing_behind() {
        // contract rule 11
        let local = local();
        let lock = local.lock("k", LockOptions::default()).await.unwrap();
        assert_eq!(&**lock.key(), "k");
        let deadline = lock.deadline().unwrap().since(local.clock().now());
        assert_eq!(deadline, ms(10_000 - 100 - 1));
        local.unlock(&lock).await.unwrap();
        assert_empty(&local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_key_is_held_for_those_who_do_not_wait() {
        let local = local();
        let lock = local.try_lock("k", ms(100)).await.unwrap();
        assert_error!(local.try_lock("k", ms(100)).await, Error::Held);
        assert_error!(local.lock("k", options(100, 0)).await, Error::Held);
        local.unlock(&lock).await.unwrap();
        let next = local.try_lock("k", ms(100)).await.unwrap();
        assert!(next.fencing_token() > lock.fencing_token());
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_granted_in_fifo_order() {
        let local = local();
        let first = local.lock("k", options(1000, 0)).await.unwrap();
        let order = Mutex::new(Vec::new());
        let call = |name| {
            let (local, order) = (&local, &order);
            async move {
                let lock = local.lock("k", forever(1000)).await.unwrap();
                order.lock().unwrap().push(name);
                local.unlock(&lock).await.unwrap();
            }
        };
        let free = async { local.unlock(&first).await.unwrap() };
        tokio::join!(biased; call(1), call(2), call(3), free);
        assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
        assert_empty(&local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_ends_goes_to_the_waiter_with_no_other_call() {
        // contract rule 9
        let local = local();
        let clock = local.clock();
        local.lock("k", options(500, 0)).await.unwrap();
        let begun = clock.now();
        let lock = local.lock("k", options(1000, 5000)).await.unwrap();
        let waited = clock.now().since(begun);
        assert!((ms(499)..ms(505)).contains(&waited), "{waited:?}");
        let remaining = lock.deadline().unwrap().since(clock.now());
        assert!((ms(970)..ms(990)).contains(&remaining), "{remaining:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_is_never_granted_before_the_lease_ends() {
        // contract rule 1: the clock stands a fraction of a millisecond into a whole one
        tokio::time::advance(Duration::from_micros(700)).await;
        let local = local();
        tokio::time::advance(Duration::from_micros(1_300)).await;
        let lock = local.lock("k", options(100, 0)).await.unwrap();
        local.lock("k", options(100, 500)).await.unwrap();
        assert!(local.clock().now() > lock.deadline().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_compared_byte_by_byte() {
        let local = local();
        for key in ["k", "K", "k ", "k\0", "ключ", "🔑"] {
            local.try_lock(key, ms(1000)).await.unwrap();
        }
        assert_eq!(sizes(&local).keys, 6);
    }

    #[tokio::test(start_paused = true)]
    async fn bad_input_is_refused_before_anything_else() {
        let local = local();
        assert_error!(local.lock("", options(100, 0)).await, Error::InvalidKey { .. });
        let long = "k".repeat(1025);
        assert_error!(local.lock(&long, options(100, 0)).await, Error::InvalidKey { .. });
        let invalid = local.lock("k", options(0, 0)).await;
        assert_error!(invalid, Error::InvalidOptions { field: "duration", .. });
        let lock = local.lock("k", options(100, 0)).await.unwrap();
        let invalid = local.extend(&lock, ms(0)).await;
        assert_error!(invalid, Error::InvalidOptions { field: "duration", .. });
        assert_error!(local.inspect("").await, Error::InvalidKey { .. });
    }

    #[tokio::test(start_paused = true)]
    async fn an_inspection_shows_the_owner() {
        let local = local();
        assert_eq!(local.inspect("k").await.unwrap(), None);
        let lock = local.lock("k", options(1000, 0).label("nightly")).await.unwrap();
        let _waiter = waiting(&local, "k", forever(100)).await;
        tokio::time::advance(ms(400)).await;
        let seen = local.inspect("k").await.unwrap().unwrap();
        assert_eq!((seen.nonce, seen.fencing_token), (lock.nonce(), lock.fencing_token()));
        assert_eq!((seen.remaining, seen.waiters), (ms(600), 1));
        assert_eq!(seen.owner.label.as_deref(), Some("nightly"));
        assert_eq!(seen.owner.pid, std::process::id());
        tokio::time::advance(ms(700)).await;
        assert_ne!(local.inspect("k").await.unwrap().unwrap().nonce, lock.nonce());
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_begin_at_the_wall_clock() {
        // contract rule 5
        let before = BootClock.wall_nanos();
        let lock = local().try_lock("k", ms(100)).await.unwrap();
        assert!((before..=BootClock.wall_nanos()).contains(&lock.fencing_token()));
    }

    #[tokio::test(start_paused = true)]
    async fn limits_are_named() {
        let options_ = LocalOptions { keys_max: 1, ..LocalOptions::default() };
        let local = Local::with_options(options_, Arc::new(TokioClock::new()));
        local.try_lock("a", ms(100)).await.unwrap();
        let refused = local.try_lock("b", ms(100)).await;
        assert_error!(refused, Error::Limit { what: "keys held", limit: 1 });
    }
}

mod waiting_ends {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_deadline_and_leaves_nothing_behind() {
        // contract rule 8
        let local = local();
        let lock = local.lock("k", options(10_000, 0)).await.unwrap();
        let begun = local.clock().now();
        assert_error!(local.lock("k", options(100, 250)).await, Error::TimedOut);
        let waited = local.clock().now().since(begun);
        assert!((ms(250)..ms(252)).contains(&waited), "{waited:?}");
        local.unlock(&lock).await.unwrap();
        assert_empty(&local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_shorter_than_a_millisecond_times_out_and_is_not_held() {
        let local = local();
        local.lock("k", options(1000, 0)).await.unwrap();
        let brief = LockOptions::default().max_wait(Duration::from_micros(300));
        assert_error!(local.lock("k", brief).await, Error::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_just_longer_than_the_lease_is_granted_and_one_just_shorter_is_not() {
        for (max_wait, granted) in [(99, false), (100, false), (102, true)] {
            let local = local();
            local.lock("k", options(100, 0)).await.unwrap();
            let outcome = local.lock("k", options(100, max_wait)).await;
            assert_eq!(outcome.is_ok(), granted, "{max_wait} ms: {outcome:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_head_watches_the_lease_that_is_before_it_now() {
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
    async fn a_head_that_is_never_polled_does_not_stop_those_behind_it() {
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
    async fn a_grant_that_ran_out_unseen_is_asked_for_again() {
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
    async fn a_grant_that_ran_out_after_the_deadline_is_a_time_out() {
        let local = local();
        let first = local.lock("k", options(1000, 0)).await.unwrap();
        let starved = waiting(&local, "k", options(100, 150)).await;
        local.unlock(&first).await.unwrap();
        tokio::time::advance(ms(200)).await;
        assert_error!(starved.await, Error::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_which_less_than_half_remains_is_extended_before_it_is_handed_out() {
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
    async fn less_than_half_after_the_deadline_is_withdrawn() {
        // contract rule 2
        let local = local();
        let first = local.lock("k", options(1000, 0)).await.unwrap();
        let late = waiting(&local, "k", options(1000, 600)).await;
        local.unlock(&first).await.unwrap();
        tokio::time::advance(ms(700)).await;
        assert_error!(late.await, Error::TimedOut);
        assert_empty(&local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_too_short_to_hand_out_is_withdrawn() {
        let local = local();
        for duration in [1, 2] {
            assert_error!(local.lock("k", options(duration, 100)).await, Error::TimedOut);
            assert_empty(&local);
        }
        local.lock("k", options(3, 100)).await.unwrap();
    }
}

mod cancelling {
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
}

mod nonces {
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
}

mod ending {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unlock_of_what_is_gone_says_not_holder_before_the_deadline_and_expired_after() {
        let local = local();
        let lock = local.lock("k", options(1000, 0)).await.unwrap();
        local.unlock(&lock).await.unwrap();
        assert_error!(local.unlock(&lock).await, Error::NotHolder);
        assert_error!(local.extend(&lock, ms(100)).await, Error::NotHolder);
        tokio::time::advance(ms(1000)).await;
        let next = local.lock("k", options(1000, 0)).await.unwrap();
        assert_error!(local.unlock(&lock).await, Error::Expired);
        assert_error!(local.extend(&lock, ms(100)).await, Error::Expired);
        local.unlock(&next).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_made_up_lock_frees_nobody() {
        let local = local();
        let lock = local.lock("k", options(1000, 0)).await.unwrap();
        let waiter = waiting(&local, "k", options(1000, 5000).nonce(Nonce::from_u128(5))).await;
        let made_up = |key, nonce| Lock::new(key, nonce, 1, None);
        for wrong in [
            made_up("k", Nonce::from_u128(9)),
            made_up("x", lock.nonce()),
            made_up("k", Nonce::from_u128(5)),
        ] {
            assert_error!(local.unlock(&wrong).await, Error::NotHolder);
            assert_error!(local.extend(&wrong, ms(100)).await, Error::NotHolder);
            local.release(&wrong);
        }
        assert_eq!(sizes(&local).waiters, 1);
        local.unlock(&lock).await.unwrap();
        waiter.now_or_never().unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_extend_never_shortens_and_counts_from_now() {
        // contract rule 4
        let local = local();
        let lock = local.lock("k", options(1000, 0)).await.unwrap();
        tokio::time::advance(ms(500)).await;
        let same = local.extend(&lock, ms(100)).await.unwrap();
        assert_eq!(same.deadline(), lock.deadline());
        let longer = local.extend(&same, ms(2000)).await.unwrap();
        assert_eq!(longer.deadline().unwrap().since(local.clock().now()), ms(2000 - 20 - 1));
        assert_eq!(longer.fencing_token(), lock.fencing_token());
        tokio::time::advance(ms(1999)).await;
        assert_error!(local.try_lock("k", ms(100)).await, Error::Held);
        tokio::time::advance(ms(1)).await;
        local.try_lock("k", ms(100)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_without_a_deadline_holds_after_an_extend() {
        let local = local();
        let lock = local.lock("k", options(1000, 0)).await.unwrap();
        let received = Lock::new("k", lock.nonce(), lock.fencing_token(), None);
        let held = local.extend(&received, ms(500)).await.unwrap();
        assert_eq!(held.deadline().unwrap().since(local.clock().now()), ms(500 - 5 - 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_past_its_local_deadline_can_be_unlocked_but_not_extended() {
        let local = local();
        let lock = local.lock("k", options(1000, 0)).await.unwrap();
        tokio::time::advance(ms(995)).await;
        assert_error!(local.extend(&lock, ms(1000)).await, Error::Expired);
        local.unlock(&lock).await.unwrap();
        assert_empty(&local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_fires_when_the_lease_ends_and_when_it_was_over_already() {
        let local = local();
        let lock = local.lock("k", options(100, 0)).await.unwrap();
        let watch = local.watch(&lock);
        assert!(!watch.is_lost());
        tokio::time::advance(ms(100)).await;
        local.inspect("other").await.unwrap();
        watch.lost().await;
        assert!(local.watch(&lock).is_lost(), "watched too late");
        drop(watch);
        assert!(local.holds.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_fires_when_somebody_else_unlocks() {
        let local = local();
        let lock = local.lock("k", options(1000, 0)).await.unwrap();
        let watch = local.watch(&lock);
        local.unlock(&lock.clone()).await.unwrap();
        assert!(watch.is_lost());
    }

    #[test]
    fn a_release_works_outside_any_runtime() {
        // contract rule 11
        let local = Local::new();
        let lock = local.try_lock("k", ms(1000)).now_or_never().unwrap().unwrap();
        local.release(&lock);
        local.release(&lock);
        assert_empty(&local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_hands_the_key_on() {
        let local = local();
        let lock = local.lock("k", options(1000, 0)).await.unwrap();
        let next = waiting(&local, "k", forever(1000)).await;
        local.release(&lock);
        next.now_or_never().unwrap().unwrap();
    }
}

mod closing {
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
        local.release(&lock);
        assert!(local.watch(&lock).is_lost());
        drop(watch);
        assert_empty(&local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_granted_call_that_was_not_polled_before_the_close_gets_closed() {
        let local = local();
        let lock = local.lock("k", options(1000, 0)).await.unwrap();
        let granted = waiting(&local, "k", forever(1000)).await;
        local.unlock(&lock).await.unwrap();
        local.close().await;
        assert_error!(granted.now_or_never().unwrap(), Error::Closed);
        assert_empty(&local);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost_under_threads() {
    // contract rule 1, on the real clock
    let local = Arc::new(Local::new());
    let counter = Arc::new(Mutex::new((0_u64, 0_u64)));
    let tasks = (0..8).map(|_| {
        let (local, counter) = (local.clone(), counter.clone());
        tokio::spawn(async move {
            for _ in 0..200 {
                let lock = local.lock("k", forever(10_000)).await.unwrap();
                let (read, token) = *counter.lock().unwrap();
                assert!(token < lock.fencing_token());
                tokio::task::yield_now().await;
                *counter.lock().unwrap() = (read + 1, lock.fencing_token());
                local.unlock(&lock).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(counter.lock().unwrap().0, 1600);
    assert_empty(&local);
}

#[test]
fn a_deadline_is_never_later_than_the_end_of_the_lease() {
    // contract rule 2, over every fraction of a millisecond at which a call may begin
    #[derive(Debug, Default)]
    struct Hands(Mutex<Duration>);
    impl Clock for Hands {
        fn now(&self) -> Instant {
            Instant::from_origin(*self.0.lock().unwrap())
        }
    }
    for micros in (0..3000).step_by(37) {
        let clock = Arc::new(Hands::default());
        let no_drift = crate::Drift::from_ppm(0).unwrap();
        let options_ = LocalOptions { drift: no_drift, ..LocalOptions::default() };
        let local = Local::with_options(options_, clock.clone());
        *clock.0.lock().unwrap() = Duration::from_micros(micros);
        let first = local.lock("k", options(10, 0)).now_or_never().unwrap().unwrap();
        let mut waiter: Pending<'_> = Box::pin(local.lock("k", options(20, 500)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { assert!(once(&mut waiter).await.is_pending()) });
        *clock.0.lock().unwrap() = first.deadline().unwrap().since_origin();
        let held = local.inspect("k").now_or_never().unwrap().unwrap().unwrap();
        assert_eq!(held.nonce, first.nonce(), "at the local deadline the lease still lives");
        *clock.0.lock().unwrap() += ms(1) + Duration::from_micros(micros % 400);
        local.release(&first);
        let second = runtime.block_on(waiter).unwrap();
        *clock.0.lock().unwrap() = second.deadline().unwrap().since_origin();
        let held = local.inspect("k").now_or_never().unwrap().unwrap();
        assert_eq!(held.map(|held| held.nonce), Some(second.nonce()), "{micros} µs");
    }
}
