//! Goal: a driver delivers in order, sleeps and polls no longer than it must, and ends with its
//! handles.
//! Method: a driver turned by hand or run in virtual time, and a scripted granting side.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Mutex,
    task::{Context, Poll},
};

use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};

use super::{
    scripted::{Scripted, assemble, obliging, open, silent},
    *,
};
use crate::{
    client::{Client, SHORTEST_SLEEP},
    lock::LossCause,
    options::LockOptions,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn options(max_wait: u64) -> LockOptions {
    LockOptions::default().duration(LEASE).max_wait(ms(max_wait))
}

/// The next holder runs before the former.
#[tokio::test(start_paused = true)]
async fn grant_is_delivered_before_other_replies() {
    let (client, script) = open(profile(false), silent);
    let (client, order) = (Arc::new(client), Arc::new(Mutex::new(Vec::new())));
    let foreign = Lock::new("k", nonce(1), 40, None);
    let unlocking = tokio::spawn({
        let (client, order) = (client.clone(), order.clone());
        async move {
            client.unlock(&foreign).await.unwrap();
            order.lock().unwrap().push("unlocked");
        }
    });
    let locking = tokio::spawn({
        let (client, order) = (client.clone(), order.clone());
        async move {
            client.lock("k", &options(5_000)).await.unwrap();
            order.lock().unwrap().push("granted");
        }
    });
    sleep(ms(1)).await;
    let sent = script.sent();
    for command in &sent {
        obliging(command).into_iter().for_each(|event| script.report(event));
    }
    unlocking.await.unwrap();
    locking.await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["granted", "unlocked"], "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn call_after_the_last_turn_ends_before_the_backend() {
    let (client, driver, script) = assemble(profile(false), silent);
    script.set_close_takes(ms(10_000));
    let (mut call, mut end) = (pin!(client.inspect("k")), pin!(driver.end()));
    poll_fn(|context| {
        assert!(call.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    tokio::select! {
        biased;
        outcome = call => assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}"),
        () = &mut end => panic!("the backend has closed"),
    }
}

#[tokio::test(start_paused = true)]
async fn loss_after_the_deadline_is_an_expiry() {
    let (client, script) = open(profile(false), obliging);
    for (after, cause) in [
        (0, LossCause::Ended),
        (9_000, LossCause::Ended),
        (10_000, LossCause::Deadline),
        (30_000, LossCause::Deadline),
    ] {
        let lock = client.lock("k", &options(5_000)).await.unwrap();
        let watch = client.watch(&lock);
        sleep(ms(after)).await;
        let nonce = lock.nonce();
        script.report(Event::Lost { nonce, key: "k".into(), token: 41, forced: None });
        sleep(ms(1)).await;
        assert_eq!(watch.cause(), Some(cause), "after {after} ms");
    }
}

/// Work that is scheduled and cannot be done yet must not spin.
#[tokio::test(start_paused = true)]
async fn overdue_turn_comes_after_the_shortest_sleep() {
    let (_client, mut driver, script) = assemble(profile(false), silent);
    assert_eq!(driver.next_wake(), at(3_600_000));
    sleep(ms(10)).await;
    let _ = driver.step();
    for (scheduled, wakes) in [(5, 11), (10, 11), (11, 11), (12, 12), (500, 500)] {
        script.wake_at(at(scheduled));
        assert_eq!(driver.next_wake(), at(wakes));
    }
    // Counted from when it falls asleep.
    script.wake_at(at(11));
    sleep(ms(7)).await;
    assert_eq!(driver.next_wake(), at(17).after(SHORTEST_SLEEP));
}

/// How often a driver is polled that busy-polls while the clock stands still.
async fn polls(
    reply: impl FnMut(&Command) -> Vec<Event> + Send + 'static,
    call: impl AsyncFnOnce(&Client<Scripted>),
) -> usize {
    let busy_poll = Duration::from_micros(100);
    let (client, driver, _) = assemble(Profile { busy_poll, ..profile(false) }, reply);
    let (mut polls, mut running) = (0, pin!(client.run(driver)));
    let counted = poll_fn(|context| {
        polls += 1;
        running.as_mut().poll(context)
    });
    let both = async { tokio::join!(call(&client), counted) };
    assert!(tokio::time::timeout(ms(900), both).await.is_err(), "the driver runs on");
    polls
}

/// Polling without a waiting caller costs a core for nothing.
#[tokio::test(start_paused = true)]
async fn driver_polls_only_for_a_caller_that_waits() {
    let foreign = || Lock::new("k", nonce(1), 41, Some(at(60_000)));
    let waiting = polls(silent, async |client| _ = client.inspect("k").await).await;
    assert!(waiting > 10_000, "{waiting}");
    let released = polls(silent, async |client| client.release(&foreign())).await;
    assert!(released < 100, "{released}");
    let replied = polls(obliging, async |client| _ = client.inspect("k").await).await;
    assert!(replied < 100, "{replied}");
    let second = polls(silent, async |client| {
        client.release(&foreign());
        sleep(ms(10)).await;
        _ = client.inspect("k").await;
    });
    let second = second.await;
    assert!(second < 100, "the first request is in flight: {second}");
}

/// The unlocks of the handle are still sent.
#[tokio::test(start_paused = true)]
async fn driver_ends_with_its_last_handle() {
    let (client, script) = open(profile(false), obliging);
    let lock = client.lock("k", &options(0)).await.unwrap();
    client.release(&lock);
    drop(client);
    sleep(ms(1)).await;
    assert!(script.is_closed());
    assert!(matches!(script.sent()[..], [Command::Lock { .. }, Command::Unlock { .. }]));
}

/// A driver may be dropped with its runtime, before it has run.
#[tokio::test(start_paused = true)]
async fn dropped_driver_closes_its_handle() {
    let (client, driver, _) = assemble(profile(false), obliging);
    let watch = client.watch(&Lock::new("k", nonce(1), 41, Some(at(60_000))));
    assert!(!watch.is_lost());
    drop(driver);
    assert!(watch.is_lost());
    assert!(matches!(client.lock("k", &options(0)).await, Err(Error::Closed)));
}

/// A status that does not change wakes no task.
#[tokio::test(start_paused = true)]
async fn status_is_sent_only_when_it_changes() {
    let (client, script) = open(profile(false), obliging);
    let mut status = client.status();
    client.lock("k", &options(0)).await.unwrap();
    assert!(!status.has_changed().unwrap());
    script.set_status(3);
    status.changed().await.unwrap();
    assert_eq!(*status.borrow(), 3);
}

/// The driver's task may never run again: the program ends.
#[tokio::test(start_paused = true)]
async fn release_is_sent_before_it_returns() {
    let (client, script) = open(profile(false), obliging);
    let lock = client.lock("k", &options(0)).await.unwrap();
    script.sent();
    client.release(&lock);
    assert!(matches!(script.sent()[..], [Command::Unlock { .. }]));
    // On a thread without a runtime, too.
    let lock = client.lock("k", &options(0)).await.unwrap();
    script.sent();
    std::thread::scope(|scope| _ = scope.spawn(|| client.release(&lock)));
    assert!(matches!(script.sent()[..], [Command::Unlock { .. }]));
}

#[tokio::test(start_paused = true)]
async fn dropped_lock_is_withdrawn_before_it_returns() {
    let (client, script) = open(profile(false), silent);
    let asking = options(1_000);
    let mut locking = Box::pin(client.lock("k", &asking));
    assert!(timeout(ms(1), &mut locking).await.is_err());
    assert!(matches!(script.sent()[..], [Command::Lock { .. }]));
    drop(locking);
    assert!(matches!(script.sent()[..], [Command::Unlock { .. }]));
}

/// Wakers are foreign code, and run in a turn.
#[tokio::test(start_paused = true)]
async fn release_by_a_waker_is_sent_after_the_turn() {
    struct Releases(Client<Scripted>);
    impl std::task::Wake for Releases {
        fn wake(self: Arc<Self>) {
            self.0.release(&Lock::new("k", nonce(1), 41, Some(at(60_000))));
        }
    }
    let (client, script) = open(profile(false), obliging);
    yield_now().await;
    let mut status = client.status();
    let waker = Arc::new(Releases(client)).into();
    let mut changed = pin!(status.changed());
    assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    script.set_status(3);
    sleep(ms(1)).await;
    assert!(matches!(script.sent()[..], [Command::Unlock { .. }]));
}

/// A server may send without end.
#[tokio::test]
async fn driver_that_is_never_idle_lets_other_tasks_run() {
    let (_client, script) = open(profile(false), obliging);
    yield_now().await;
    script.set_busy_turns(100_000);
    yield_now().await;
    let left = script.busy_turns();
    assert!((1..100_000).contains(&left), "{left}");
}
