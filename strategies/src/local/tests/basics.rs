//! Goal: taking, waiting, refusing and inspecting, with no fault in sight.
use super::*;

#[tokio::test(start_paused = true)]
async fn tokens_begin_at_the_wall_clock() {
    // contract rule 5
    let before = BootClock.wall_nanos();
    let lock = local().lock("k", options(100, 0)).await.unwrap();
    assert!((before..=BootClock.wall_nanos()).contains(&lock.fencing_token()));
    assert!((1 << 53..1 << 63).contains(&lock.fencing_token()));
}

#[tokio::test(start_paused = true)]
async fn limits_are_named() {
    let local = limited(TableConfig { waiters_per_key_max: 1, ..TableConfig::default() });
    local.lock("k", options(100, 0)).await.unwrap();
    let _waiter = waiting(&local, "k", forever(100)).await;
    let refused = local.lock("k", forever(100)).await;
    assert_error!(refused, Error::Limit { what: "waiters per key", limit: 1 });
}

/// Calls that never wait yield all the same, on a runtime of one thread. One that does not blocks
/// its thread, so that only another one notices.
#[test]
fn every_call_yields_in_a_loop() {
    let (sender, ended) = std::sync::mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || {
        runtime.block_on(call_in_loops());
        sender.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(20)).expect("the loops yield");
}

async fn call_in_loops() {
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
                        1 => _ = mutex.lock("held", options(1000, 0)).await.unwrap_err(),
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
