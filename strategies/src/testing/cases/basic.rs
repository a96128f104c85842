//! Cases 1 to 10: one holder, one waiter, one free key.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    clock::Instant as Reading,
    error::Error,
    lock::{Lock, Nonce, Owner},
    options::LockOptions,
    testing::context::{
        Context, LONG, Verdict, at_once, ensure, given_up, granted, refused, remaining, took,
        unlocked,
    },
};

pub(in crate::testing) async fn a_free_key_is_granted_at_once(cx: &Context<'_>) -> Verdict {
    let (handle, key) = (cx.open().await, cx.key("k"));
    let (started, before) = (Instant::now(), handle.clock().now());
    let options = LockOptions::default().label("first in line");
    let duration = options.get_duration();
    let lock = granted(handle.lock(&key, options).await, "lock of a free key")?;
    took(started, Instant::now(), Duration::ZERO, cx.slack(), "lock of a free key")?;

    ensure!(**lock.key() == *key, "the lock names {:?}, not {key:?}", lock.key());
    ensure!(lock.fencing_token() >= 1, "the token is 0, which means none");
    let left = remaining(&handle, &lock)?;
    ensure!(left >= duration / 2, "of a lease of {duration:?} only {left:?} remain");
    let deadline = lock.deadline().unwrap_or_default();
    ensure!(deadline < before.after(duration), "the deadline counts from later than the send");
    let seen = cx.queued(&handle, &key, 0).await?;
    let right = seen.nonce == lock.nonce() && seen.fencing_token == lock.fencing_token();
    ensure!(right, "an inspection shows {seen:?} of {lock:?}");
    let owner = Owner::this_process(Some("first in line".into()));
    ensure!(seen.owner == owner, "an inspection shows {:?}, not {owner:?}", seen.owner);
    let right = seen.remaining > Duration::ZERO && seen.remaining <= duration;
    ensure!(right, "an inspection shows {:?} left of {duration:?}", seen.remaining);
    unlocked(handle.unlock(&lock).await, "unlock by the holder")
}

pub(in crate::testing) async fn a_second_lock_waits(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let held = cx.take(&first, &key, LONG).await?;
    let wait = cx.lease();
    let started = Instant::now();
    let waiter = cx.start(&second, &key, LockOptions::default().max_wait(wait));
    cx.nap().await;
    ensure!(!waiter.is_finished(), "a lock of a held key did not wait");
    let (result, ended) = waiter.ended(wait + cx.slack()).await?;
    refused!(result, Error::TimedOut(_), "lock of a key held for longer than max_wait");
    took(started, ended, wait, cx.slack(), "waiting")?;
    unlocked(first.unlock(&held).await, "unlock by the holder")
}

pub(in crate::testing) async fn an_unlock_wakes_a_waiter(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let held = cx.take(&first, &key, LONG).await?;
    let options = LockOptions::default().max_wait(LONG);
    let duration = options.get_duration();
    let waiter = cx.start(&second, &key, options);
    cx.nap().await;
    ensure!(!waiter.is_finished(), "a lock of a held key did not wait");
    unlocked(first.unlock(&held).await, "unlock by the holder")?;
    let next = waiter.granted(cx.slack(), "a waiter after the unlock").await?;
    ensure!(next.fencing_token() > held.fencing_token(), "the token did not rise");
    let left = remaining(&second, &next)?;
    ensure!(left >= duration / 2, "of a lease of {duration:?}, waited for, {left:?} remain");
    unlocked(second.unlock(&next).await, "unlock by the second holder")
}

pub(in crate::testing) async fn keys_are_independent(cx: &Context<'_>) -> Verdict {
    let (first, second) = cx.open_two().await;
    let (one, two) = (cx.key("one"), cx.key("two"));
    let of_one = cx.take(&first, &one, LONG).await?;
    let of_two = cx.take(&second, &two, LONG).await?;
    unlocked(first.unlock(&of_one).await, "unlock of one key")?;
    cx.must_be_free(&second, &one, "of the key unlocked").await?;
    cx.must_be_held(&first, &two, "of the other key").await?;
    unlocked(second.unlock(&of_two).await, "unlock of the other key")
}

pub(in crate::testing) async fn one_attempt_takes_a_free_key(cx: &Context<'_>) -> Verdict {
    let (handle, key) = (cx.open().await, cx.key("k"));
    // The original's Redis strategy failed here: zero means one attempt, not none.
    let lock = granted(handle.lock(&key, at_once(LONG)).await, "one attempt on a free key")?;
    unlocked(handle.unlock(&lock).await, "unlock after one attempt")
}

pub(in crate::testing) async fn one_attempt_on_a_held_key_is_refused_at_once(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let held = cx.take(&first, &key, LONG).await?;
    for handle in [&first, &second] {
        let started = Instant::now();
        cx.must_be_held(handle, &key, "on a held key").await?;
        took(started, Instant::now(), Duration::ZERO, cx.slack(), "a refusal")?;
    }
    unlocked(first.unlock(&held).await, "unlock by the holder")?;
    // A refused attempt leaves no waiter in the queue.
    cx.must_show_free(&second, &key, "after refusals and an unlock").await?;
    let lock =
        granted(second.lock(&key, at_once(LONG)).await, "lock by a handle that was refused")?;
    unlocked(second.unlock(&lock).await, "unlock by a handle that was refused")
}

pub(in crate::testing) async fn dropping_a_guard_unlocks(cx: &Context<'_>) -> Verdict {
    let (first, second) = cx.open_two().await;
    let (inside, outside) = (cx.key("inside"), cx.key("outside"));

    let lock = cx.take(&first, &inside, LONG).await?;
    cx.must_be_held(&second, &inside, "before release").await?;
    first.release(&lock);
    cx.must_be_free(&second, &inside, "after release").await?;

    // A guard may be dropped by any thread, long after the runtime was left.
    let lock = cx.take(&first, &outside, LONG).await?;
    let handle = first.clone();
    let thread = std::thread::spawn(move || handle.release(&lock));
    ensure!(thread.join().is_ok(), "release panicked outside the runtime");
    cx.must_be_free(&second, &outside, "after release outside the runtime").await?;
    Ok(())
}

pub(in crate::testing) async fn a_forgotten_lock_ends_with_its_lease(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let forgotten = cx.take(&first, &key, cx.lease()).await?;
    let limit = Instant::now() + cx.lease() + cx.slack();
    // Only attempts: the lease must end without a waiter.
    let next = loop {
        match second.lock(&key, at_once(LONG)).await {
            Ok(next) => break next,
            Err(Error::Held(_)) => {}
            Err(other) => {
                refused!(Err::<Lock, _>(other), Error::Held(_), "one attempt on a held key");
            }
        }
        ensure!(Instant::now() < limit, "a lease of {:?} has not ended", cx.lease());
        sleep(cx.lease() / 20).await;
    };
    given_up(&first, &forgotten)?;
    ensure!(next.fencing_token() > forgotten.fencing_token(), "the token did not rise");
    unlocked(second.unlock(&next).await, "unlock by the second holder")
}

pub(in crate::testing) async fn a_second_unlock_is_refused(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let lock = cx.take(&first, &key, LONG).await?;
    unlocked(first.unlock(&lock).await, "the first unlock")?;
    let started = Instant::now();
    refused!(first.unlock(&lock).await, Error::NotHolder, "the second unlock");
    took(started, Instant::now(), Duration::ZERO, cx.slack(), "the second unlock")?;

    let next = cx.take(&second, &key, LONG).await?;
    refused!(first.unlock(&lock).await, Error::NotHolder, "an unlock when another holds");
    cx.must_be_held(&first, &key, "after a stale unlock").await?;
    unlocked(second.unlock(&next).await, "unlock by the second holder")
}

pub(in crate::testing) async fn an_unlock_of_what_was_never_locked_is_refused(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let now = first.clock().now();
    let forged = |deadline| Lock::new(&*key, Nonce::random(), 1, deadline);
    let started = Instant::now();
    let lasting = forged(Some(now.after(LONG)));
    refused!(first.unlock(&lasting).await, Error::NotHolder, "unlock of what was never locked");
    let endless = forged(None);
    refused!(first.unlock(&endless).await, Error::NotHolder, "unlock with no deadline");
    let past = forged(Some(Reading::default()));
    refused!(first.unlock(&past).await, Error::Expired, "unlock from the local deadline on");
    took(started, Instant::now(), Duration::ZERO, cx.slack(), "three refusals")?;
    cx.must_be_free(&second, &key, "after unlocks of nothing").await?;
    Ok(())
}
