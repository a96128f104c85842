//! Goal: a critical section is dropped when its lock is lost, unlocked in every case, and hides
//! neither its output nor a failed unlock.
//! Method: a stub strategy with scripted replies, in virtual time.

mod common;

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{Call, Stub, lease, ms};
use gaggle::{Clock, Error, Instant as ClockInstant, LockOptions, Locker, LossCause, SectionError};
use tokio::time::{Instant, timeout};

/// Says when it is dropped.
struct Canary(Arc<AtomicBool>);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn section_returns_its_output_and_unlocks() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let section = |section: gaggle::Section| async move { section.fencing_token() };
    let token = locker.with_lock("k", LockOptions::default(), section).await.unwrap();
    assert_eq!(token, 7);
    assert_eq!(stub.calls(), [Call::Lock, Call::Unlock]);
}

#[tokio::test(start_paused = true)]
async fn section_is_dropped_when_the_lock_is_lost() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let dropped = Arc::new(AtomicBool::new(false));
    let canary = Canary(Arc::clone(&dropped));
    let before = Instant::now();
    let section = locker.with_lock("k", lease(ms(700)), |_| async move {
        let _canary = canary;
        pending::<()>().await;
    });
    let outcome = timeout(ms(60_000), section).await.expect("it ends");
    assert!(matches!(outcome, Err(SectionError::Lost(LossCause::Deadline))), "{outcome:?}");
    let error = outcome.as_ref().unwrap_err();
    assert_eq!(error.to_string(), "the section was dropped, its lock was lost: its lease ended");
    assert!(matches!(Error::from(outcome.unwrap_err()), Error::Expired));
    assert_eq!(before.elapsed(), ms(700));
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(stub.calls(), [Call::Lock, Call::Release]);
}

#[tokio::test(start_paused = true)]
async fn auto_extend_outlasts_the_lease() {
    let locker = Locker::new(Stub::new());
    let acquire = locker.lock_with("k", lease(ms(700))).auto_extend(ms(60_000));
    acquire.run(|_| tokio::time::sleep(ms(5000))).await.unwrap();
}

/// The driver goes on with the unlock while the key may still be locked, as for a dropped guard.
#[tokio::test(start_paused = true)]
async fn failed_unlock_keeps_output_and_cause() {
    use Call::{Lock, Release, Unlock};
    let open: &'static [Call] = &[Lock, Unlock, Release];
    let settled: &'static [Call] = &[Lock, Unlock];
    type Case = (fn() -> Result<(), Error>, &'static str, &'static [Call]);
    let table: [Case; 7] = [
        (|| Err(Error::NotHolder), "NotHolder", settled),
        (|| Err(Error::Expired), "Expired", settled),
        (|| Err(Error::Unknown), "Unknown", open),
        (|| Err(Error::no_quorum()), "Unavailable", open),
        (|| Err(Error::Limit { what: "requests", limit: 1 }), "Limit", open),
        (|| Err(Error::Closed), "Closed", open),
        (|| Err(Error::Failed { cause: "broken".into() }), "Failed", open),
    ];
    for (reply, name, calls) in table {
        let stub = Stub::new();
        stub.reply_to_unlocks(&[reply]);
        let locker = Locker::new(stub.clone());
        let outcome = locker.with_lock("k", LockOptions::default(), |_| async { 42 }).await;
        let Err(SectionError::NotUnlocked { output: 42, cause }) = outcome else {
            panic!("{name}: {outcome:?}")
        };
        // `Debug` is the sentence, too, as a `main` that returns the error prints it.
        assert_eq!(format!("{cause:?}"), reply().unwrap_err().to_string(), "{name}");
        assert_eq!(stub.calls(), calls, "{name}");
        assert!(stub.losses.is_empty(), "{name}: no watch stays behind");
    }
}

#[tokio::test(start_paused = true)]
async fn section_dropped_during_unlock_is_unlocked() {
    let stub = Stub::new();
    stub.delay_unlocks(ms(500));
    let locker = Locker::new(stub.clone());
    let acquire = locker.lock_with("k", lease(ms(900))).auto_extend(ms(60_000));
    let section = acquire.run(|_| async { 42 });
    assert!(timeout(ms(100), section).await.is_err(), "the unlock has no reply yet");
    assert_eq!(stub.calls(), [Call::Lock, Call::Unlock, Call::Release]);
    tokio::time::sleep(ms(5000)).await;
    assert!(stub.extend_times_ms().is_empty(), "nothing extends what is being unlocked");
    assert!(stub.losses.is_empty());
}

#[tokio::test(start_paused = true)]
async fn section_is_not_run_without_the_lock() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let acquire = locker.lock_with("k", lease(ms(900))).auto_extend(ms(1));
    let outcome = acquire.run(|_| async { panic!("it must not run") }).await;
    let Err(SectionError::NotLocked(error)) = outcome else { panic!("{outcome:?}") };
    assert!(matches!(error, Error::InvalidOptions { field: "max_hold", .. }), "{error:?}");
    assert!(stub.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn section_that_panics_is_unlocked() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let panics = tokio::spawn(async move {
        let section = |_| async { panic!("in the section") };
        let _ = locker.with_lock("k", LockOptions::default(), section).await;
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(stub.calls(), [Call::Lock, Call::Release]);
}

#[tokio::test(start_paused = true)]
async fn dropped_section_is_unlocked() {
    let stub = Stub::new();
    let locker = Locker::new(stub.clone());
    let section = locker.with_lock("k", LockOptions::default(), |_| pending::<()>());
    assert!(timeout(ms(10), section).await.is_err());
    assert_eq!(stub.calls(), [Call::Lock, Call::Release]);
}

#[tokio::test(start_paused = true)]
async fn error_debug_is_its_sentence_without_the_output() {
    let stub = Stub::new();
    stub.reply_to_unlocks(&[|| Err(Error::Unknown)]);
    let section = |_| async { "secret" };
    let error =
        Locker::new(stub).with_lock("k", LockOptions::default(), section).await.unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(!error.to_string().contains("secret"), "{error:?}");
}

/// A clock that shows the time that it is set to.
#[derive(Debug, Default)]
struct Hands(Mutex<Duration>);

impl Clock for Hands {
    fn now(&self) -> ClockInstant {
        ClockInstant::from_origin(*self.0.lock().expect("no test panics with it"))
    }
}

/// Nothing can interrupt it. If the unlock has no reply, the local deadline decides.
#[tokio::test(start_paused = true)]
async fn section_blocked_beyond_its_lease_is_expired() {
    for (blocked, expired) in [(899, false), (900, true)] {
        let clock = Arc::new(Hands::default());
        let stub = Stub::with_clock(clock.clone());
        stub.reply_to_unlocks(&[|| Err(Error::Unknown)]);
        let section = |_| async move {
            *clock.0.lock().unwrap() += ms(blocked);
        };
        let outcome = Locker::new(stub).with_lock("k", lease(ms(900)), section).await;
        let Err(SectionError::NotUnlocked { cause, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(matches!(cause, Error::Expired), expired, "{cause:?}");
        assert_eq!(matches!(cause, Error::Unknown), !expired, "{cause:?}");
    }
}

/// The runtime polls the section's task again before its timers.
#[tokio::test(start_paused = true)]
async fn section_blocked_beyond_its_lease_ends_at_its_next_await() {
    let clock = Arc::new(Hands::default());
    let locker = Locker::new(Stub::with_clock(clock.clone()));
    let went_on = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&went_on);
    let section = |_| async move {
        *clock.0.lock().unwrap() += ms(900);
        tokio::spawn(async {}).await.unwrap();
        flag.store(true, Ordering::SeqCst);
    };
    let outcome = locker.with_lock("k", lease(ms(900)), section).await;
    assert!(!went_on.load(Ordering::SeqCst), "{outcome:?}");
    assert!(matches!(outcome, Err(SectionError::Lost(LossCause::Deadline))), "{outcome:?}");
}

/// Before the local deadline: the lease did not end.
#[tokio::test(start_paused = true)]
async fn loss_in_the_last_step_is_not_called_expired() {
    let replies: [fn() -> Result<(), Error>; 2] = [|| Err(Error::NotHolder), || Err(Error::Closed)];
    for reply in replies {
        let stub = Stub::new();
        stub.reply_to_unlocks(&[reply]);
        let losses = stub.losses.clone();
        let section = |section: gaggle::Section| async move {
            losses.report(&section.lock(), LossCause::Ended, None);
        };
        let outcome = Locker::new(stub).with_lock("k", lease(ms(900)), section).await;
        let Err(SectionError::NotUnlocked { cause, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(matches!(cause, Error::NotHolder), "{cause:?}");
    }
}
