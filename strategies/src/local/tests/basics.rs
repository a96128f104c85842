//! Goal: taking, waiting, refusing and inspecting, with no fault in sight.
use super::*;

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
    let local = limited(TableConfig { waiters_per_key_max: 1, ..TableConfig::default() });
    local.try_lock("k", ms(100)).await.unwrap();
    let _waiter = waiting(&local, "k", forever(100)).await;
    let refused = local.lock("k", forever(100)).await;
    assert_error!(refused, Error::Limit { what: "waiters per key", limit: 1 });
}

/// Calls that never wait yield all the same, on a runtime of one thread.
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
