//! Goal: the promises of a guard with any strategy (contract, "The trait", rules 2, 7 and 11).
//! Method: a stub strategy with scripted replies, in virtual time.

mod common;

use std::{sync::Arc, time::Duration};

use common::{Call, Stub, held, lease, ms};
use gaggle::{Error, Guard, Lock, Locker, LossCause, Owner};
use gaggle_fixtures::Events;
use gaggle_strategies::{Local, clock::TokioClock, error::UnavailableKind::Misconfigured};
use tokio::time::timeout;

#[tokio::test(start_paused = true)]
async fn guard_is_lost_from_its_deadline_on() {
    let locker = Locker::new(Stub::new());
    let guard = locker.lock_with("k", lease(ms(1000))).await.unwrap();
    assert_eq!((&*guard.key(), guard.fencing_token(), guard.remaining()), ("k", 7, ms(1000)));
    tokio::time::advance(ms(999)).await;
    assert!(guard.is_valid());
    assert!(timeout(ms(0), guard.lost()).await.is_err());
    tokio::time::advance(ms(1)).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    guard.lost().await;
}

#[tokio::test(start_paused = true)]
async fn extend_postpones_a_pending_lost() {
    let locker = Locker::new(Stub::new());
    let guard = locker.lock_with("k", lease(ms(1000))).await.unwrap();
    let before = tokio::time::Instant::now();
    let extend = async {
        tokio::time::sleep(ms(600)).await;
        guard.extend(ms(1000)).await.unwrap();
    };
    tokio::join!(guard.lost(), extend);
    assert_eq!(before.elapsed(), ms(1600));
}

#[tokio::test(start_paused = true)]
async fn early_loss_fires_before_the_deadline() {
    let stub = Stub::new();
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(60_000))).await.unwrap();
    assert!(stub.losses.report(&guard.lock(), LossCause::Ended, None));
    timeout(ms(0), guard.lost()).await.expect("at once");
    assert!(!guard.is_valid());
    stub.reply_to_extends(&[|| Err(Error::Closed), || Err(Error::no_quorum())]);
    assert!(matches!(guard.extend(ms(1000)).await, Err(Error::Closed)), "the strategy knows why");
    for _ in 0..2 {
        let lost = guard.extend(ms(1000)).await;
        assert!(matches!(lost, Err(Error::NotHolder)), "{lost:?}: nothing can be retried");
    }
}

/// The extend was sent before the loss.
#[tokio::test(start_paused = true)]
async fn granted_extend_does_not_outlive_a_reported_loss() {
    let stub = Stub::new();
    stub.delay_extends(ms(10));
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(1000))).await.unwrap();
    let lose = async {
        tokio::time::sleep(ms(5)).await;
        stub.losses.report(&guard.lock(), LossCause::Ended, None);
    };
    let (extended, ()) = tokio::join!(guard.extend(ms(5000)), lose);
    assert!(matches!(extended, Err(Error::NotHolder)), "{extended:?}");
    assert_eq!(guard.loss(), Some(LossCause::Ended));
}

#[tokio::test(start_paused = true)]
async fn refused_extend_loses_the_guard() {
    let stub = Stub::new();
    stub.reply_to_extends(&[|| Err(Error::NotHolder)]);
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(1000))).await.unwrap();
    assert!(matches!(guard.extend(ms(1000)).await, Err(Error::NotHolder)));
    assert!(!guard.is_valid());
    timeout(ms(0), guard.lost()).await.expect("at once");
    assert_eq!(stub.calls(), [Call::Lock, Call::Extend(ms(1000))]);
    assert_eq!(guard.loss(), Some(LossCause::Ended), "not its deadline");
    stub.losses.report(&guard.lock(), LossCause::Forced, Some(&"why".into()));
    assert_eq!(guard.loss(), Some(LossCause::Forced), "the strategy knows more");
    assert_eq!(guard.loss_note().as_deref(), Some("why"));
}

#[tokio::test(start_paused = true)]
async fn failed_extend_leaves_the_guard_valid() {
    let stub = Stub::new();
    stub.reply_to_extends(&[|| Err(Error::Unknown), || Err(Error::no_quorum())]);
    let guard = Locker::new(stub).lock_with("k", lease(ms(1000))).await.unwrap();
    assert!(matches!(guard.extend(ms(9000)).await, Err(Error::Unknown)));
    assert!(matches!(guard.extend(ms(9000)).await, Err(Error::Unavailable { .. })));
    assert_eq!(guard.remaining(), ms(1000));
}

#[tokio::test(start_paused = true)]
async fn expired_guard_is_never_extended() {
    let stub = Stub::new();
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(100))).await.unwrap();
    tokio::time::advance(ms(100)).await;
    assert!(matches!(guard.extend(ms(1000)).await, Err(Error::Expired)));
    assert!(!guard.is_valid());
    assert_eq!(stub.calls(), [Call::Lock], "an extend of a lost guard is not even sent");
}

#[tokio::test(start_paused = true)]
async fn late_extend_does_not_revive_the_guard() {
    let stub = Stub::new();
    stub.delay_extends(ms(200));
    let guard = Locker::new(stub).lock_with("k", lease(ms(100))).await.unwrap();
    let (extended, ()) = tokio::join!(guard.extend(ms(9000)), guard.lost());
    assert!(matches!(extended, Err(Error::Expired)), "{extended:?}");
    assert!(!guard.is_valid(), "a lost guard stays lost");
}

#[tokio::test(start_paused = true)]
async fn unlock_returns_and_disarms_the_drop() {
    let stub = Stub::new();
    stub.reply_to_unlocks(&[|| Ok(()), || Err(Error::NotHolder), || Err(Error::Expired)]);
    let locker = Locker::new(stub.clone());
    assert!(locker.lock("k").await.unwrap().unlock().await.is_ok());
    assert!(matches!(locker.lock("k").await.unwrap().unlock().await, Err(Error::NotHolder)));
    assert!(matches!(locker.lock("k").await.unwrap().unlock().await, Err(Error::Expired)));
    assert_eq!(stub.count(|call| *call == Call::Release), 0);
    assert!(stub.losses.is_empty(), "no watch stays behind");
}

#[tokio::test(start_paused = true)]
async fn unlock_without_reply_is_left_to_the_driver() {
    let stub = Stub::new();
    stub.reply_to_unlocks(&[|| Err(Error::Unknown)]);
    let guard = Locker::new(stub.clone()).lock("k").await.unwrap();
    assert!(matches!(guard.unlock().await, Err(Error::Unknown)));
    assert_eq!(stub.calls(), [Call::Lock, Call::Unlock, Call::Release]);
}

/// Another holder may have overlapped with the work.
#[tokio::test(start_paused = true)]
async fn unlock_without_reply_of_a_lost_guard_reports_the_loss() {
    for (waits, loses) in [(0, true), (100, false), (100, true), (99, false)] {
        let stub = Stub::new();
        stub.reply_to_unlocks(&[|| Err(Error::Unknown)]);
        let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(100))).await.unwrap();
        tokio::time::advance(ms(waits)).await;
        if loses {
            stub.losses.report(&guard.lock(), LossCause::Ended, None);
        }
        let outcome = guard.unlock().await;
        assert!(
            match waits {
                0 => matches!(outcome, Err(Error::NotHolder)),
                99 => matches!(outcome, Err(Error::Unknown)),
                _ => matches!(outcome, Err(Error::Expired)),
            },
            "{outcome:?} after {waits} ms"
        );
        assert_eq!(stub.calls(), [Call::Lock, Call::Unlock, Call::Release]);
    }
}

#[tokio::test(start_paused = true)]
async fn unpolled_unlock_still_unlocks() {
    let stub = Stub::new();
    let guard = Locker::new(stub.clone()).lock("k").await.unwrap();
    drop(guard.unlock());
    assert_eq!(stub.calls(), [Call::Lock, Call::Release]);
}

#[test]
fn drop_works_outside_any_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (stub, guard) = runtime.block_on(async {
        let stub = Stub::new();
        let acquire = Locker::new(stub.clone());
        (stub, acquire.lock_with("k", lease(ms(9000))).auto_extend(ms(9000)).await.unwrap())
    });
    drop(runtime);
    std::thread::spawn(move || drop(guard)).join().expect("drop does not panic");
    assert_eq!(stub.calls(), [Call::Lock, Call::Release]);
}

#[tokio::test(start_paused = true)]
async fn into_lock_disarms_drop_and_auto_extend() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let guard = locker.lock_with("k", lease(ms(900))).auto_extend(ms(9000)).await.unwrap();
    let lock = guard.into_lock();
    // Before the task of the auto-extend has ended.
    assert!(stub.losses.is_empty(), "a close would unlock it");
    tokio::time::sleep(ms(5000)).await;
    assert_eq!(stub.calls(), [Call::Lock]);
    assert_eq!(lock.fencing_token(), 7);
}

#[tokio::test(start_paused = true)]
async fn lock_has_no_deadline_until_adopted() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let sent = locker.lock("ключ/🔑").await.unwrap().into_lock();
    let text = serde_json::to_string(&sent).unwrap();
    let received: Lock = serde_json::from_str(&text).unwrap();
    assert_eq!(received.deadline(), None);
    assert_eq!(received.nonce(), sent.nonce());

    let guard = locker.adopt(&received, ms(4000)).await.unwrap();
    assert_eq!((&*guard.key(), guard.remaining()), ("ключ/🔑", ms(4000)));
    assert_eq!(guard.fencing_token(), sent.fencing_token());
    drop(guard);
    assert_eq!(stub.calls(), [Call::Lock, Call::Extend(ms(4000)), Call::Release]);
}

#[tokio::test(start_paused = true)]
async fn failed_adopt_has_no_effect() {
    let stub = Stub::new();
    stub.reply_to_extends(&[|| Err(Error::NotHolder)]);
    let locker = Locker::new(stub.clone());
    let lock = locker.lock("k").await.unwrap().into_lock();
    assert!(matches!(locker.adopt(&lock, ms(1000)).await, Err(Error::NotHolder)));
    assert_eq!(stub.calls(), [Call::Lock, Call::Extend(ms(1000))]);
}

#[tokio::test(start_paused = true)]
async fn try_now_changes_only_the_wait() {
    let locker = Locker::new(gaggle::strategies::Local::new());
    let request = || locker.lock_with("k", lease(ms(900)).label("nightly").max_wait(ms(5000)));
    let guard = request().auto_extend(ms(60_000)).try_now().await.unwrap();
    let owner = locker.inspect("k").await.unwrap().unwrap().owner;
    assert_eq!(owner.label.as_deref(), Some("nightly"));
    let before = tokio::time::Instant::now();
    let held = request().try_now().await.unwrap_err();
    assert_eq!(before.elapsed(), ms(0));
    let owner = Owner::this_process(Some("nightly".into()));
    assert_eq!(held.to_string(), format!("\"k\" is held by {owner}"));
    let late = locker.lock_with("k", lease(ms(900)).max_wait(ms(20))).await.unwrap_err();
    let text = format!("timed out after 20ms waiting for \"k\", held by {owner}");
    assert_eq!(late.to_string(), text);
    tokio::time::sleep(ms(5000)).await;
    assert!(guard.is_valid(), "it is extended");
}

/// Contract, *Outcomes*: within 100 ms after the end of the call.
#[tokio::test(start_paused = true)]
async fn holder_is_named_if_the_reply_comes_in_time() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    for (delay, is_named) in [(99, true), (101, false)] {
        stub.reply_to_locks(&[|| Err(Error::Held(None))]);
        stub.reply_to_inspections(ms(delay), held);
        let before = tokio::time::Instant::now();
        let refused = locker.lock("k").await.unwrap_err();
        assert_eq!(before.elapsed(), ms(delay.min(100)));
        let Error::Held(Some(contention)) = &refused else { panic!("{refused:?}") };
        assert_eq!((&*contention.key, contention.holder.is_some()), ("k", is_named));
    }
    // Nothing ends this wait but an operator.
    stub.reply_to_locks(&[|| Err(Error::TimedOut(None))]);
    stub.reply_to_inspections(ms(1), || {
        Err(Error::unavailable(Misconfigured, "of another program"))
    });
    let refused = locker.lock("k").await.unwrap_err();
    assert!(refused.is_permanent(), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn locker_extends_and_unlocks_a_plain_lock() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let lock = locker.lock("k").await.unwrap().into_lock();
    let longer = locker.extend(&lock, ms(60_000)).await.unwrap();
    assert!(longer.deadline() > lock.deadline());
    locker.unlock(&longer).await.unwrap();
    assert_eq!(stub.calls(), [Call::Lock, Call::Extend(ms(60_000)), Call::Unlock]);
}

#[test]
fn bounds() {
    fn is<T: Send + Sync + Unpin + 'static>() {}
    fn future<T: Send>(_: &T) {}
    fn owned<T: Send + 'static>(_: T) {}
    is::<Guard>();
    is::<Locker>();
    is::<Lock>();
    is::<Error>();
    is::<gaggle::OpenError>();
    let locker = Locker::new(Stub::with_clock(std::sync::Arc::new(gaggle::BootClock)));
    future(&locker.lock("k"));
    owned(locker.lock_with(String::from("k"), lease(ms(1))));
    owned(locker.lock_with("k", lease(ms(1))).into_future());
    owned(locker.lock_with("k", lease(ms(1))).try_now());
    future(&locker.with_lock("k", lease(ms(1)), |_| async {}));
}

/// Contract, *Outcomes*: `NotHolder` before the local deadline, for every reason.
#[tokio::test(start_paused = true)]
async fn extend_after_early_loss_says_why() {
    let locker = Locker::new(gaggle::strategies::Local::new());
    let guard = locker.lock("k").await.unwrap();
    let elsewhere = locker.adopt(&guard.lock(), ms(10_000)).await.unwrap();
    elsewhere.unlock().await.unwrap();
    assert!(matches!(guard.extend(ms(5000)).await, Err(Error::NotHolder)));
    drop(guard);
    let guard = locker.lock("k").await.unwrap();
    locker.close().await;
    assert!(matches!(guard.extend(ms(5000)).await, Err(Error::Closed)));
}

/// Locking a free key never waits, so the call itself must yield. A task that does not blocks its
/// thread, so that only another one notices.
#[test]
fn locking_in_a_loop_yields() {
    let (sender, ended) = std::sync::mpsc::channel();
    let loops = async move {
        let locker = Locker::new(Local::new());
        tokio::spawn(async move { while locker.lock("k").await.is_ok() {} });
        tokio::time::sleep(ms(5)).await;
        sender.send(()).unwrap();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || runtime.block_on(loops));
    ended.recv_timeout(ms(20_000)).expect("the loops yield");
}

/// The first is checked against a deadline that the second has moved by then.
#[tokio::test(start_paused = true)]
async fn overtaken_extend_keeps_the_guard() {
    let stub = Stub::new();
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(900))).await.unwrap();
    stub.reply_to_extends(&[|| Err(Error::Expired), || Ok(())]);
    stub.delay_extends(ms(950));
    let late = guard.extend(ms(1000));
    let longer = async {
        tokio::time::sleep(ms(100)).await;
        stub.delay_extends(ms(0));
        guard.extend(ms(5000)).await
    };
    let (late, longer) = tokio::join!(late, longer);
    longer.unwrap();
    assert!(matches!(late, Err(Error::Unknown)), "{late:?}");
    assert!(guard.is_valid());
}

/// The table of a `Local` reports an expiry when a call on the key finds it.
#[tokio::test(start_paused = true)]
async fn reported_expiry_is_a_loss_by_the_deadline() {
    let locker = Locker::new(Local::with_clock(Arc::new(TokioClock::new())));
    for asked_before in [true, false] {
        let guard = locker.lock_with("k", lease(ms(1000))).await.unwrap();
        tokio::time::sleep(ms(2000)).await;
        assert!(!asked_before || guard.loss() == Some(LossCause::Deadline));
        assert!(locker.inspect("k").await.unwrap().is_none());
        timeout(ms(0), guard.lost()).await.expect("at once");
        assert_eq!(guard.loss(), Some(LossCause::Deadline));
    }
}

#[tokio::test(start_paused = true)]
async fn first_cause_of_a_loss_stays() {
    let stub = Stub::new();
    stub.reply_to_extends(&[|| Err(Error::NotHolder)]);
    let locker = Locker::new(stub.clone());
    let refused = locker.lock_with("k", lease(ms(1000))).await.unwrap();
    assert!(matches!(refused.extend(ms(1000)).await, Err(Error::NotHolder)));
    let reported = locker.lock_with("k", lease(ms(1000))).await.unwrap();
    stub.losses.report(&reported.lock(), LossCause::Ended, None);
    tokio::time::sleep(ms(2000)).await;
    stub.losses.report(&refused.lock(), LossCause::Ended, None);
    for guard in [refused, reported] {
        assert_eq!((guard.loss(), guard.is_valid()), (Some(LossCause::Ended), false));
        assert!(matches!(guard.extend(ms(1000)).await, Err(Error::Expired)), "from then on");
    }
}

#[tokio::test(start_paused = true)]
async fn loss_by_the_deadline_names_the_extend_error() {
    let (events, _recording) = Events::of_thread();
    let stub = Stub::new();
    let refused = || Err(Error::unavailable(Misconfigured, "no right to PEXPIRE"));
    stub.reply_to_extends(&[refused, || Ok(()), refused, || Err(Error::Unknown)]);
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(1000))).await.unwrap();
    guard.extend(ms(1000)).await.unwrap_err();
    assert_eq!(guard.extend_error().as_deref(), Some("no right to PEXPIRE"));
    guard.extend(ms(1000)).await.unwrap();
    assert_eq!(guard.extend_error(), None, "it was extended");
    guard.extend(ms(1000)).await.unwrap_err();
    guard.extend(ms(1000)).await.unwrap_err();
    assert_eq!(guard.loss_note(), None, "it is not lost");
    tokio::time::advance(ms(1000)).await;
    assert_eq!(guard.loss(), Some(LossCause::Deadline));
    assert_eq!(guard.loss_note().as_deref(), Some("no right to PEXPIRE"));
    let logged = events.with("lock lost");
    assert!(logged.len() == 1 && logged[0].contains("no right to PEXPIRE"), "{logged:?}");
}

/// The lease lasts at the granting side for the drift beyond the deadline.
#[tokio::test(start_paused = true)]
async fn expired_guard_is_not_lost_by_force() {
    let stub = Stub::new();
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(1000))).await.unwrap();
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(guard.loss(), Some(LossCause::Deadline));
    stub.losses.report(&guard.lock(), LossCause::Forced, Some(&"why".into()));
    assert_eq!((guard.loss(), guard.loss_note()), (Some(LossCause::Deadline), None));
}

/// Contract, *Outcomes*: `Expired` only from the local deadline on.
#[tokio::test(start_paused = true)]
async fn extend_of_a_lock_that_another_found_lost_says_when() {
    for (delay, expired) in [(20, false), (950, true)] {
        let stub = Stub::new();
        let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(900))).await.unwrap();
        stub.reply_to_extends(&[|| Ok(()), || Err(Error::NotHolder)]);
        stub.delay_extends(ms(delay));
        let granted = guard.extend(ms(1000));
        let refused = async {
            tokio::time::sleep(ms(1)).await;
            stub.delay_extends(ms(0));
            guard.extend(ms(1000)).await
        };
        let (granted, refused) = tokio::join!(granted, refused);
        assert!(matches!(refused, Err(Error::NotHolder)), "{refused:?}");
        assert_eq!(matches!(granted, Err(Error::Expired)), expired, "{granted:?}");
        assert_eq!(matches!(granted, Err(Error::NotHolder)), !expired, "{granted:?}");
        assert_eq!(guard.loss(), Some(LossCause::Ended));
    }
}
