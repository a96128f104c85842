//! Cases 21 to 27: a nonce names one acquisition.

use std::time::Duration;

use crate::{
    Error, Lock, LockOptions, Nonce, Order,
    testing::context::{
        Context, LONG, Stop, Verdict, ensure, granted, refused, remaining, unlocked,
    },
};

fn named(nonce: Nonce, duration: Duration) -> LockOptions {
    LockOptions::default().nonce(nonce).duration(duration)
}

pub(in crate::testing) async fn a_nonce_repeated_while_held_finds_its_grant(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let nonce = Nonce::random();
    let lock = granted(first.lock(&key, named(nonce, LONG)).await, "lock by a given nonce")?;
    ensure!(lock.nonce() == nonce, "the lock does not bear the nonce given");
    let latest_end = first.clock().now().after(LONG);
    cx.nap().await;
    let again = granted(first.lock(&key, named(nonce, LONG)).await, "the same lock again")?;
    ensure!(again.nonce() == nonce, "the repeated lock has another nonce");
    ensure!(again.fencing_token() == lock.fencing_token(), "the repeated lock has another token");
    // Rule 2: the deadline counts from the first send of this nonce.
    ensure!(
        again.deadline().is_some_and(|deadline| deadline < latest_end),
        "the repeated lock counts its lease from the repetition"
    );
    ensure!(!remaining(&first, &again)?.is_zero(), "nothing remains of a long lease");
    cx.must_be_held(&second, &key, "after a repetition").await?;
    // Granted once: one unlock frees it.
    unlocked(first.unlock(&lock).await, "unlock of a lock asked for twice")?;
    cx.must_be_free(&second, &key, "after one unlock of a lock asked for twice").await?;
    Ok(())
}

pub(in crate::testing) async fn a_nonce_repeated_while_queued_keeps_its_place(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), third) = (cx.open_two().await, cx.open().await);
    let key = cx.key("k");
    let held = cx.take(&first, &key, LONG).await?;
    let options = named(Nonce::random(), LONG).max_wait(LONG);
    let waiter = cx.start(&second, &key, options.clone());
    cx.nap().await;
    let behind = LockOptions::default().duration(LONG).max_wait(LONG);
    let behind = cx.start(&third, &key, behind);
    cx.nap().await;
    let again = cx.start(&second, &key, options);
    cx.nap().await;
    let fifo = first.capabilities().order == Order::Fifo;
    if fifo {
        cx.queued(&first, &key, 2).await?;
    }
    unlocked(first.unlock(&held).await, "unlock by the holder")?;
    let both_calls = async {
        let one = waiter.granted(cx.slack() * 2, "the first call of a nonce").await?;
        let two = again.granted(cx.slack(), "the second call of a nonce").await?;
        let same = one.nonce() == two.nonce() && one.fencing_token() == two.fencing_token();
        ensure!(same, "one nonce was granted twice: {one:?} and {two:?}");
        unlocked(second.unlock(&one).await, "unlock of a lock asked for twice")?;
        Ok::<_, Stop>(one.fencing_token())
    };
    let the_other = async {
        let lock = behind.granted(cx.slack() * 2, "the waiter behind").await?;
        unlocked(third.unlock(&lock).await, "unlock by the waiter behind")?;
        Ok::<_, Stop>(lock.fencing_token())
    };
    let (place, behind) = tokio::try_join!(both_calls, the_other)?;
    ensure!(!fifo || place < behind, "a repeated nonce lost its place");
    cx.must_show_free(&first, &key, "after a repeated nonce").await
}

pub(in crate::testing) async fn a_nonce_repeated_after_unlock_is_spent(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let nonce = Nonce::random();
    let lock = granted(first.lock(&key, named(nonce, LONG)).await, "lock by a given nonce")?;
    unlocked(first.unlock(&lock).await, "unlock by the holder")?;
    refused!(first.lock(&key, named(nonce, LONG)).await, Error::Spent, "lock by a nonce unlocked");
    cx.must_be_free(&second, &key, "after a spent nonce").await?;
    let held = cx.take(&second, &key, LONG).await?;
    refused!(first.lock(&key, named(nonce, LONG)).await, Error::Spent, "the same, key held");
    unlocked(second.unlock(&held).await, "unlock by the second holder")
}

pub(in crate::testing) async fn a_nonce_repeated_after_expiry_is_spent(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let nonce = Nonce::random();
    let options = named(nonce, cx.lease());
    granted(first.lock(&key, options.clone()).await, "lock by a given nonce")?;
    cx.outlive(cx.lease()).await;
    refused!(first.lock(&key, options).await, Error::Spent, "lock by a nonce that expired");
    cx.must_be_free(&second, &key, "after a spent nonce").await?;
    Ok(())
}

pub(in crate::testing) async fn an_unlock_by_another_nonce_is_refused(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let held = cx.take(&first, &key, LONG).await?;
    for handle in [&first, &second] {
        let deadline = handle.clock().now().after(LONG);
        let token = held.fencing_token();
        let forged = Lock::new(&*key, Nonce::random(), token, Some(deadline));
        refused!(handle.unlock(&forged).await, Error::NotHolder, "unlock by another nonce");
    }
    cx.must_be_held(&second, &key, "after unlocks by other nonces").await?;
    unlocked(first.unlock(&held).await, "unlock by the holder")
}

pub(in crate::testing) async fn an_unlock_after_expiry_spares_the_new_holder(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let ended = cx.take(&first, &key, cx.lease()).await?;
    let waiter = LockOptions::default().duration(LONG).max_wait(LONG);
    let waiter = cx.start(&second, &key, waiter);
    let next = waiter.granted(cx.lease() + cx.slack(), "a waiter at the lease's end").await?;
    // The original's Redis strategy said success here.
    refused!(first.unlock(&ended).await, Error::Expired, "unlock of an expired lock");
    cx.must_be_held(&first, &key, "after an unlock of an expired lock").await?;
    unlocked(second.unlock(&next).await, "unlock by the new holder")
}

pub(in crate::testing) async fn a_new_nonce_of_the_same_client_waits(cx: &Context<'_>) -> Verdict {
    let (handle, key) = (cx.open().await, cx.key("k"));
    let held = cx.take(&handle, &key, LONG).await?;
    cx.must_be_held(&handle, &key, "by the holder's own client").await?;
    let waiter = LockOptions::default().duration(LONG).max_wait(LONG);
    let waiter = cx.start(&handle, &key, waiter);
    cx.nap().await;
    ensure!(!waiter.is_finished(), "a client entered its own lock again");
    unlocked(handle.unlock(&held).await, "unlock by the holder")?;
    let next = waiter.granted(cx.slack(), "the same client's next lock").await?;
    ensure!(next.nonce() != held.nonce(), "two acquisitions have one nonce");
    ensure!(next.fencing_token() > held.fencing_token(), "the token did not rise");
    unlocked(handle.unlock(&next).await, "unlock of the second lock")
}
