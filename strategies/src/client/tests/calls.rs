//! Goal: unlock, extend, inspect, release, watch and close of a handle follow the contract.
//! Method: a handle and its driver in virtual time, and a scripted granting side.

use std::{any::Any, pin::pin};

use futures_util::FutureExt;
use tokio::time::sleep;

use super::{
    scripted::{Script, Scripted, assemble, obliging, open, silent},
    *,
};
use crate::{
    client::{Client, backend::Failure, check_runtime},
    limits::KEY_BYTES_MAX,
    lock::{Inspection, LossCause},
    options::LockOptions,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A lock of another process, on which this one relies until `deadline`.
fn foreign(deadline: Option<u64>) -> Lock {
    Lock::new("k", nonce(1), 41, deadline.map(at))
}

/// A granting side on which nothing is held.
fn nothing_held(command: &Command) -> Vec<Event> {
    vec![match command {
        Command::Unlock { nonce, .. } => Event::Unlocked { nonce: *nonce, held: false },
        Command::Extend { id, nonce, .. } => {
            Event::Extended { id: *id, nonce: *nonce, token: None }
        }
        _ => return obliging(command),
    }]
}

async fn locked(client: &Client<Scripted>, script: &Script) -> Lock {
    let lock = client.lock("k", &LockOptions::default().duration(LEASE)).await.unwrap();
    script.sent();
    lock
}

#[tokio::test(start_paused = true)]
async fn unlock_notifies_other_guards() {
    let (client, _) = open(profile(false), obliging);
    let lock = foreign(None);
    let watch = client.watch(&lock);
    assert!(!watch.is_lost());
    let mut unlock = pin!(client.unlock(&lock));
    assert!(unlock.as_mut().now_or_never().is_none());
    assert!(watch.is_lost(), "the next holder may be granted before the reply");
    unlock.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unlock_of_a_lost_lock_names_its_error() {
    let (client, _) = open(profile(false), nothing_held);
    sleep(ms(10)).await;
    let unlock = async |deadline| client.unlock(&foreign(deadline)).await;
    assert!(matches!(unlock(Some(11)).await, Err(Error::NotHolder)));
    assert!(matches!(unlock(Some(10)).await, Err(Error::Expired)));
    let (client, _) = open(profile(false), silent);
    assert!(matches!(client.unlock(&foreign(None)).await, Err(Error::Unknown)));
    assert_eq!(client.clock().now(), at(1_000));
}

#[tokio::test(start_paused = true)]
async fn extend_moves_the_deadline() {
    let (client, script) = open(profile(false), obliging);
    let lock = locked(&client, &script).await;
    sleep(ms(1_000)).await;
    let longer = client.extend(&lock, Duration::from_micros(20_000_700)).await.unwrap();
    assert_eq!(longer.deadline(), Some(at(1_000 + 20_000 - 200 - 1)));
    let adopted = client.extend(&foreign(None), LEASE).await.unwrap();
    assert_eq!(adopted.deadline(), Some(at(1_000 + 10_000 - 100 - 1)));
}

#[tokio::test(start_paused = true)]
async fn extend_of_an_expired_lock_sends_nothing() {
    let (client, script) = open(profile(false), obliging);
    sleep(ms(10)).await;
    assert!(matches!(client.extend(&foreign(Some(10)), LEASE).await, Err(Error::Expired)));
    assert!(script.sent().is_empty());
    assert!(client.extend(&foreign(Some(11)), LEASE).await.is_ok());
}

/// No reply comes: the lock is known to be lost at its deadline, and may be held before.
#[tokio::test(start_paused = true)]
async fn extend_without_reply_ends_by_the_deadline() {
    for (deadline, ends) in [(Some(500), 500), (Some(5_000), 1_000), (None, 1_000)] {
        let (client, _) = open(profile(false), silent);
        let outcome = client.extend(&foreign(deadline), LEASE).await;
        assert_eq!(client.clock().now(), at(ends));
        match outcome {
            Err(Error::Expired) => assert_eq!(ends, 500),
            Err(Error::Unknown) => assert_eq!(ends, 1_000),
            other => panic!("{other:?}"),
        }
    }
    // A refusal is no silence, whenever it comes.
    let (client, _) = open(profile(false), nothing_held);
    assert!(matches!(client.extend(&foreign(Some(500)), LEASE).await, Err(Error::NotHolder)));
}

/// The grant of an extension is lost in the turn that brings it.
#[tokio::test(start_paused = true)]
async fn extension_that_was_revoked_is_no_lock() {
    let (client, script) = open(profile(false), |command| match command {
        Command::Extend { nonce, key, token, .. } => {
            let (nonce, key, token) = (*nonce, key.clone(), *token);
            let lost = Event::Lost { nonce, key, token, forced: None };
            obliging(command).into_iter().chain([lost]).collect()
        }
        _ => obliging(command),
    });
    let lock = locked(&client, &script).await;
    for lock in [lock, foreign(None)] {
        assert!(matches!(client.extend(&lock, LEASE).await, Err(Error::NotHolder)));
    }
}

#[tokio::test(start_paused = true)]
async fn each_inspection_gets_its_own_reply() {
    let inspection = Inspection {
        fencing_token: 41,
        nonce: nonce(1),
        owner: Owner::default(),
        held_for: ms(1),
        remaining: ms(2),
        waiters: 3,
    };
    let found = inspection.clone();
    let (client, _) = open(profile(false), move |command| {
        let Command::Inspect { id, key } = command else { return obliging(command) };
        vec![match &**key {
            "held" => Event::Inspected { id: *id, found: Ok(Some(found.clone())) },
            "free" => Event::Inspected { id: *id, found: Ok(None) },
            _ => {
                let cause = Cause::new(UnavailableKind::Misconfigured, "no lock");
                Event::Inspected { id: *id, found: Err(cause) }
            }
        }]
    });
    let (held, free, foreign) =
        tokio::join!(client.inspect("held"), client.inspect("free"), client.inspect("foreign"));
    assert_eq!((held.unwrap(), free.unwrap()), (Some(inspection), None));
    assert!(matches!(foreign, Err(Error::Unavailable { .. })));
    let (client, _) = open(profile(false), silent);
    assert!(matches!(client.inspect("k").await, Err(Error::TimedOut(_) | Error::Unknown)));
    assert_eq!(client.clock().now(), at(1_000));
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_send_nothing() {
    let profile = Profile { lease_max: ms(20_000), ..profile(false) };
    let (client, script) = open(profile, obliging);
    let lock = foreign(None);
    for key in [String::new(), "k".repeat(KEY_BYTES_MAX + 1)] {
        let invalid = Lock::new(&*key, nonce(1), 41, None);
        assert!(matches!(client.unlock(&invalid).await, Err(Error::InvalidKey { .. })));
        assert!(matches!(client.extend(&invalid, LEASE).await, Err(Error::InvalidKey { .. })));
        assert!(matches!(client.inspect(&key).await, Err(Error::InvalidKey { .. })));
        let watch = client.watch(&invalid);
        client.release(&invalid);
        assert!(watch.is_lost());
    }
    for duration in [ms(0), ms(20_001)] {
        let error = client.extend(&lock, duration).await;
        assert!(matches!(error, Err(Error::InvalidOptions { field: "duration", .. })));
    }
    sleep(ms(1)).await;
    assert!(script.sent().is_empty());
    assert!(client.extend(&lock, ms(20_000)).await.is_ok());
}

/// The extension took effect, and its lease may be of use to another process.
#[tokio::test(start_paused = true)]
async fn close_leaves_an_unread_extension_its_lock() {
    let (client, script) = open(profile(false), obliging);
    let lock = locked(&client, &script).await;
    let mut extending = Box::pin(client.extend(&lock, LEASE));
    assert!((&mut extending).now_or_never().is_none());
    sleep(ms(1)).await;
    client.close().await;
    let extended = extending.await;
    assert!(extended.is_ok(), "{extended:?}");
    assert!(matches!(script.sent()[..], [Command::Extend { .. }]), "nothing is unlocked");
}

/// A release after the deadline would free nothing: the lease has ended.
#[tokio::test(start_paused = true)]
async fn release_is_repeated_until_the_deadline() {
    let (client, script) = open(profile(true), silent);
    let lock = foreign(Some(2_000));
    let watch = client.watch(&lock);
    client.release(&lock);
    assert!(watch.is_lost());
    sleep(ms(1_999)).await;
    let before = script.sent().len();
    assert!(before > 3, "after 100, 200, 400 and 800 ms, then each second: {before}");
    sleep(ms(10_000)).await;
    assert!(script.sent().is_empty());
    // A release without a deadline is sent once.
    client.release(&foreign(None));
    sleep(ms(10_000)).await;
    assert_eq!(script.sent().len(), 1);
}

/// An EXTEND without a reply may have moved the end of the lease.
#[tokio::test(start_paused = true)]
async fn release_is_repeated_until_an_extend_without_reply_ends() {
    let (client, script) = open(profile(true), |command| match command {
        Command::Lock { .. } => obliging(command),
        _ => vec![],
    });
    let lock = locked(&client, &script).await;
    let extended = client.extend(&lock, ms(60_000)).await;
    assert!(matches!(extended, Err(Error::Unknown)), "{extended:?}");
    sleep(ms(20_000)).await;
    client.release(&lock);
    for (repeated, after) in [(true, 30_000), (true, 60_000), (false, 70_000)] {
        sleep(at(after).since(client.clock().now())).await;
        script.sent();
        sleep(ms(1_500)).await;
        assert_eq!(!script.sent().is_empty(), repeated, "after {after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn late_watch_of_a_lost_lock_fires_at_once() {
    let (client, script) = open(profile(false), obliging);
    let lock = locked(&client, &script).await;
    let (nonce, key, token) = (lock.nonce(), lock.key().clone(), lock.fencing_token());
    script.report(Event::Lost { nonce, key, token, forced: None });
    sleep(ms(1)).await;
    let later = client.watch(&Lock::new("k", super::nonce(2), token + 1, None));
    let late = client.watch(&lock);
    sleep(ms(1)).await;
    assert_eq!((late.cause(), later.cause()), (Some(LossCause::Ended), None));
    assert!(script.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn close_unlocks_and_refuses_all_that_follows() {
    let (client, script) = open(profile(false), obliging);
    let lock = locked(&client, &script).await;
    let watch = client.watch(&lock);
    client.close().await;
    assert!(watch.is_lost() && script.is_closed());
    assert!(is_unlock(&script.sent()[0], lock.nonce().as_u128()));
    let options = LockOptions::default();
    assert!(matches!(client.lock("k", &options).await, Err(Error::Closed)));
    assert!(matches!(client.unlock(&lock).await, Err(Error::Closed)));
    assert!(matches!(client.extend(&lock, LEASE).await, Err(Error::Closed)));
    assert!(matches!(client.inspect("k").await, Err(Error::Closed)));
    assert!(client.watch(&lock).is_lost());
    client.close().await;
    assert_eq!(client.clock().now(), at(0));
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_unlocks_until_the_timeout() {
    let (client, script) = open(profile(false), silent);
    let _watch = client.watch(&foreign(None));
    client.close().await;
    assert_eq!((client.clock().now(), script.is_closed()), (at(1_000), true));
}

/// A reply that no caller waits for must not be kept.
#[tokio::test(start_paused = true)]
async fn abandoned_query_is_pending_no_longer() {
    let (client, script) = open(profile(false), silent);
    let mut inspecting = Box::pin(client.inspect("k"));
    assert!(tokio::time::timeout(ms(10), &mut inspecting).await.is_err());
    assert_eq!(script.pending(), 1);
    drop(inspecting);
    assert_eq!(script.pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn full_mailbox_refuses_all_but_releases() {
    let (client, mut driver, script) = assemble(profile(false), silent);
    // Another lock was lost.
    let (key, token) = ("other".into(), foreign(None).fencing_token());
    script.report(Event::Lost { nonce: nonce(9), key, token, forced: None });
    assert!(driver.step().is_continue());
    let mut waiting: Vec<_> = (0..64).map(|_| Box::pin(client.inspect("k"))).collect();
    assert!(waiting.iter_mut().all(|call| call.now_or_never().is_none()));
    let full = |error| matches!(error, Error::Limit { what: "pending requests", limit: 64 });
    assert!(full(client.inspect("k").await.unwrap_err()));
    // A release beyond twice the capacity is dropped: the lease ends.
    (0..100).for_each(|_| client.release(&foreign(None)));
    // Nothing can check it any more.
    assert!(client.watch(&foreign(None)).is_lost());
}

/// The granting side panics with this at the first command.
async fn failed_by(panic: fn() -> Box<dyn Any + Send>) -> String {
    let (client, script) = open(profile(false), move |_| std::panic::resume_unwind(panic()));
    let watch = client.watch(&foreign(Some(60_000)));
    let status = client.status();
    script.set_status(5);
    sleep(ms(1)).await;
    assert_eq!(*status.borrow(), 5);
    let error = client.inspect("k").await.unwrap_err();
    assert!(watch.is_lost() && script.is_closed());
    assert_eq!(*status.borrow(), 0, "it has no status any more");
    assert!(matches!(client.check_open(), Err(Error::Failed { .. })));
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn panic_of_the_backend_ends_the_handle() {
    assert!(failed_by(|| Box::new("a string")).await.contains("a broken invariant: a string"));
    assert!(failed_by(|| Box::new(String::from("text"))).await.contains("text"));
    assert!(failed_by(|| Box::new(7)).await.contains("a panic without a message"));
}

#[tokio::test(start_paused = true)]
async fn failed_backend_ends_the_handle() {
    let (client, script) = open(profile(false), silent);
    script.fail(Failure::Backend("a reason".into()));
    let error = client.inspect("k").await.unwrap_err();
    assert!(error.to_string().contains("the backend stopped: a reason"), "{error}");
}

/// A call must not wait for the sockets that are being closed.
#[tokio::test(start_paused = true)]
async fn failed_handle_refuses_calls_while_it_closes() {
    let (client, script) = open(profile(false), silent);
    script.set_close_takes(ms(100));
    script.fail(Failure::Backend("a reason".into()));
    sleep(ms(50)).await;
    assert!(matches!(client.inspect("k").await, Err(Error::Failed { .. })));
    assert_eq!(client.clock().now(), at(50));
}

#[tokio::test(start_paused = true)]
async fn every_close_waits_for_the_sockets() {
    let (client, script) = open(profile(false), silent);
    script.set_close_takes(ms(100));
    // Sent in the turn of the first `close`.
    script.set_status(1);
    let close = async |after| {
        sleep(ms(after)).await;
        client.close().await;
        client.clock().now()
    };
    let ended = tokio::join!(close(0), close(50), close(60));
    assert_eq!(ended, (at(100), at(100), at(100)));
}

#[test]
fn opening_without_a_runtime_is_refused() {
    assert!(matches!(check_runtime(), Err(Error::Unavailable { .. })));
}

/// Also a waiter behind it, which may never be granted the key.
#[test]
fn wait_in_vain_names_the_grant_that_was_taken_back() {
    let mut core = core(false);
    for id in [1, 2] {
        core.call(at(0), waits(id, 5_000));
    }
    sent(&mut core, 0);
    core.handle(at(1), Event::Queued { nonce: nonce(2), holder_lease: None });
    let cause = Cause::new(UnavailableKind::Refused, "too few replicas");
    core.handle(at(2), Event::Unsafe { nonce: nonce(1), cause });
    let Some((1, Reply::Unsafe(cause))) = replies(&mut core).pop() else { panic!() };
    // The call retries so.
    let Call::Lock(mut again) = waits(3, 5_000) else { unreachable!() };
    again.unsafe_grant = Some(cause);
    core.call(at(3), Call::Lock(again));
    sent(&mut core, 3);
    core.handle(at(4), Event::Queued { nonce: nonce(3), holder_lease: None });
    core.expire(at(5_000));
    let replies = replies(&mut core);
    assert_eq!(replies.len(), 2);
    for (id, reply) in replies {
        let Reply::Failed(error) = reply else { panic!("{id}: {reply:?}") };
        assert_eq!(error.to_string(), "too few replicas", "{id}");
    }
}
