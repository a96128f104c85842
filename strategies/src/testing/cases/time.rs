//! Cases 11 to 20: leases, waits and limits.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    error::Error,
    limits::{DURATION_MAX, DURATION_MIN, MAX_WAIT_MAX},
    lock::{Lock, Nonce},
    options::{LockOptions, MaxWait},
    testing::context::{
        Context, Handle, LONG, Stop, Verdict, ensure, given_up, granted, refused, remaining, took,
        unlocked,
    },
};

pub(in crate::testing) async fn a_waiter_is_granted_when_the_lease_ends(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let started = Instant::now();
    let forgotten = cx.take(&first, &key, cx.lease()).await?;
    let waiter = cx.start(&second, &key, LockOptions::default().max_wait(LONG));
    let next = waiter.granted(cx.lease() + cx.slack(), "a waiter at the lease's end").await?;
    given_up(&first, &forgotten)?;
    // The original granted 5 s after a lease of 500 ms.
    let late = cx.lease() + cx.slack();
    ensure!(started.elapsed() <= late, "granted after {:?}", started.elapsed());
    unlocked(second.unlock(&next).await, "unlock by the second holder")
}

pub(in crate::testing) async fn no_waiter_is_granted_before_the_holder_gave_up(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), third) = (cx.open_two().await, cx.open().await);
    let key = cx.key("k");
    let mut holder = (first.clone(), cx.take(&first, &key, cx.lease()).await?);
    // Each holder but the first has waited for its lock: its deadline counts the wait (rule 2).
    let handles = [&second, &third, &first];
    let leases = LockOptions::default().duration(cx.lease()).max_wait(LONG);
    let mut waiting = Vec::new();
    for handle in handles {
        waiting.push((handle.clone(), cx.start(handle, &key, leases.clone())));
        cx.nap().await;
    }
    let limit = Instant::now() + (cx.lease() + cx.slack()) * 4;
    while !waiting.is_empty() {
        ensure!(Instant::now() < limit, "{} of 3 waiters were not granted", waiting.len());
        sleep(cx.lease() / 100).await;
        let Some(index) = waiting.iter().position(|(_, waiter)| waiter.is_finished()) else {
            continue;
        };
        let relied_until = relied_until(&holder.0, &holder.1)?;
        let (handle, waiter) = waiting.swap_remove(index);
        let (result, ended) = waiter.ended(cx.slack()).await?;
        let lock = granted(result, "a waiter at a lease's end")?;
        let early = relied_until.saturating_duration_since(ended);
        ensure!(early.is_zero(), "granted {early:?} before the former holder gave up");
        holder = (handle, lock);
    }
    Ok(())
}

/// The holder's local deadline, as the runtime's time.
fn relied_until(handle: &Handle, lock: &Lock) -> Result<Instant, Stop> {
    let now = Instant::now();
    let deadline = lock.deadline().unwrap_or_default();
    let passed = handle.clock().now().since(deadline);
    Ok(now + remaining(handle, lock)? - passed)
}

pub(in crate::testing) async fn max_wait_runs_out_and_leaves_nothing(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let held = cx.take(&first, &key, LONG).await?;
    // 100 ms is what the original overran to 182.
    for wait in [Duration::from_millis(100), cx.lease() / 2] {
        let started = Instant::now();
        let options = LockOptions::default().duration(LONG).max_wait(wait);
        refused!(second.lock(&key, options).await, Error::TimedOut(_), "lock for {wait:?}");
        took(started, Instant::now(), wait, cx.slack(), "waiting")?;
    }
    cx.queued(&first, &key, 0).await?;
    unlocked(first.unlock(&held).await, "unlock by the holder")?;
    cx.must_be_free(&first, &key, "after waits that timed out").await?;
    cx.must_show_free(&second, &key, "after waits that timed out").await
}

pub(in crate::testing) async fn max_wait_just_below_and_just_above_the_lease(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let held = cx.take(&first, &key, cx.lease()).await?;
    // Below: it ends while the holder still relies on its lock.
    let margin = cx.lease() / 10;
    let below = remaining(&first, &held)?.saturating_sub(margin);
    ensure!(!below.is_zero(), "no time is left of a fresh lease");
    let options = LockOptions::default().max_wait(below);
    refused!(second.lock(&key, options).await, Error::TimedOut(_), "max_wait just below the lease");

    // Above: counted from the lock itself, it ends later than the lease.
    let held = {
        cx.outlive(margin * 2).await;
        cx.take(&first, &key, cx.lease()).await?
    };
    let above = cx.lease() + cx.slack();
    let started = Instant::now();
    let options = LockOptions::default().max_wait(above);
    let next = granted(second.lock(&key, options).await, "max_wait just above the lease")?;
    given_up(&first, &held)?;
    ensure!(started.elapsed() <= above, "max_wait was overrun");
    unlocked(second.unlock(&next).await, "unlock by the second holder")
}

pub(in crate::testing) async fn a_duration_of_zero_is_refused(cx: &Context<'_>) -> Verdict {
    let (handle, key) = (cx.open().await, cx.key("k"));
    for duration in [Duration::ZERO, Duration::from_micros(999)] {
        must_refuse_duration(&handle, &key, duration).await?;
    }
    // After drift and rounding, nothing remains of the shortest lease.
    let shortest = LockOptions::default().duration(DURATION_MIN);
    let shortest = shortest.max_wait(cx.slack().max(cx.lease() / 20));
    let result = handle.lock(&key, shortest).await;
    refused!(
        result,
        Error::TimedOut(_) | Error::InvalidOptions { field: "duration", .. },
        "lock for {DURATION_MIN:?}, of which less than half is left"
    );
    cx.must_show_free(&handle, &key, "after refused requests").await
}

pub(in crate::testing) async fn a_duration_may_be_a_day_and_no_longer(cx: &Context<'_>) -> Verdict {
    let (handle, key) = (cx.open().await, cx.key("k"));
    for duration in [DURATION_MAX + Duration::from_millis(1), Duration::MAX] {
        must_refuse_duration(&handle, &key, duration).await?;
    }
    let lock = cx.take(&handle, &key, DURATION_MAX).await?;
    let left = remaining(&handle, &lock)?;
    ensure!(left >= DURATION_MAX / 2 && left < DURATION_MAX, "of a day {left:?} remain");
    let longer = granted(handle.extend(&lock, DURATION_MAX).await, "extend by a day")?;
    ensure!(longer.deadline() >= lock.deadline(), "extend moved the deadline back");
    unlocked(handle.unlock(&longer).await, "unlock of a day's lock")?;
    cx.must_be_free(&handle, &key, "after the unlock of a day's lock").await?;
    Ok(())
}

/// Lock and extend must refuse a duration by name, at once.
async fn must_refuse_duration(handle: &Handle, key: &str, duration: Duration) -> Verdict {
    let options = LockOptions::default().duration(duration);
    let field = "duration";
    let named = |what: &str, result: Result<Lock, Error>| {
        let right =
            matches!(&result, Err(Error::InvalidOptions { field: named, .. }) if *named == field);
        ensure!(
            right,
            "{what} with {duration:?}: expected InvalidOptions of {field}, got {result:?}"
        );
        Ok(())
    };
    named("lock", handle.lock(key, options).await)?;
    let deadline = Some(handle.clock().now().after(LONG));
    let lock = Lock::new(key, Nonce::random(), 1, deadline);
    named("extend", handle.extend(&lock, duration).await)
}

pub(in crate::testing) async fn max_wait_may_be_a_day_or_unbounded(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    for wait in [MAX_WAIT_MAX + Duration::from_millis(1), Duration::MAX] {
        let result = first.lock(&key, LockOptions::default().max_wait(wait)).await;
        let right =
            matches!(&result, Err(Error::InvalidOptions { field, .. }) if *field == "max_wait");
        ensure!(right, "max_wait {wait:?}: expected InvalidOptions of max_wait, got {result:?}");
    }
    for wait in [MaxWait::AtMost(MAX_WAIT_MAX), MaxWait::Forever] {
        let options = LockOptions::default().duration(LONG).max_wait(wait);
        let held = granted(first.lock(&key, options.clone()).await, "a long wait for a free key")?;
        let waiter = cx.start(&second, &key, options);
        cx.nap().await;
        ensure!(!waiter.is_finished(), "a long wait ended at once");
        unlocked(first.unlock(&held).await, "unlock by the holder")?;
        let next = waiter.granted(cx.slack(), "a long wait").await?;
        unlocked(second.unlock(&next).await, "unlock by the second holder")?;
    }
    Ok(())
}

pub(in crate::testing) async fn extend_lengthens_and_never_shortens(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let lock = cx.take(&first, &key, cx.lease()).await?;
    let longer = granted(first.extend(&lock, LONG).await, "extend by the holder")?;
    let same = longer.nonce() == lock.nonce() && longer.fencing_token() == lock.fencing_token();
    ensure!(same, "extend changed the nonce or the token");
    let left = remaining(&first, &longer)?;
    ensure!(left >= LONG / 2 && left < LONG, "after an extend by {LONG:?} {left:?} remain");
    cx.outlive(cx.lease()).await;
    cx.must_be_held(&second, &key, "after the first lease, extended").await?;

    let after = granted(first.extend(&longer, cx.lease() / 10).await, "a shorter extend")?;
    ensure!(after.deadline() >= longer.deadline(), "a shorter extend moved the deadline back");
    cx.outlive(cx.lease() / 10).await;
    cx.must_be_held(&second, &key, "after a shorter extend").await?;
    unlocked(first.unlock(&after).await, "unlock after extends")
}

pub(in crate::testing) async fn extend_never_creates_a_lock_again(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let ended = cx.take(&first, &key, cx.lease()).await?;
    // The granting side's lease ends later, by the drift: the holder has given it up already.
    first.clock().sleep_until(ended.deadline().unwrap_or_default()).await;
    refused!(first.extend(&ended, LONG).await, Error::Expired, "extend after the local deadline");
    cx.outlive(cx.lease()).await;
    refused!(first.extend(&ended, LONG).await, Error::Expired, "extend after expiry, key free");
    let next = cx.take(&second, &key, LONG).await?;
    refused!(first.extend(&ended, LONG).await, Error::Expired, "extend when another holds");
    cx.must_be_held(&first, &key, "after a refused extend").await?;
    unlocked(second.unlock(&next).await, "unlock by the second holder")?;

    let unlocked_one = cx.take(&first, &key, LONG).await?;
    unlocked(first.unlock(&unlocked_one).await, "unlock by the holder")?;
    let late = first.extend(&unlocked_one, LONG).await;
    refused!(late, Error::NotHolder, "extend after unlock");
    cx.must_be_free(&second, &key, "after a refused extend").await?;
    Ok(())
}

pub(in crate::testing) async fn extend_by_another_nonce_is_refused(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let started = Instant::now();
    let held = cx.take(&first, &key, cx.lease()).await?;
    let forged = Lock::new(&*key, Nonce::random(), held.fencing_token(), held.deadline());
    for handle in [&first, &second] {
        let deadline = handle.clock().now().after(LONG);
        let forged = forged.with_deadline(deadline);
        refused!(handle.extend(&forged, LONG).await, Error::NotHolder, "extend by another nonce");
    }
    // The refused extend has not lengthened the holder's lease.
    let late = (cx.lease() + cx.slack()).saturating_sub(started.elapsed());
    let waiter = cx.start(&second, &key, LockOptions::default().max_wait(LONG));
    let next = waiter.granted(late, "a waiter at the lease's end").await?;
    given_up(&first, &held)?;
    unlocked(second.unlock(&next).await, "unlock by the second holder")
}
