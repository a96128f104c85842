//! Goal: taking, waiting, refusing and inspecting, with no fault in sight.
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

/// Nothing here waits for anything, and a runtime of one thread has nobody else.
#[tokio::test]
async fn a_task_that_does_nothing_else_lets_others_run() {
    for what in 0..4 {
        let mutex = std::sync::Arc::new(Local::new());
        let held = mutex.lock("held", LockOptions::default()).await.unwrap();
        let busy = {
            let mutex = mutex.clone();
            tokio::spawn(async move {
                loop {
                    match what {
                        0 => {
                            let lock = mutex.lock("k", LockOptions::default()).await.unwrap();
                            mutex.unlock(&lock).await.unwrap();
                        }
                        1 => _ = mutex.try_lock("held", Duration::from_secs(1)).await.unwrap_err(),
                        2 => _ = mutex.extend(&held, Duration::from_secs(1)).await.unwrap(),
                        _ => _ = mutex.inspect("held").await.unwrap(),
                    }
                }
            })
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
        busy.abort();
    }
}
