//! Cases 21 to 23: a nonce names one acquisition.

use crate::{
    error::Error,
    lock::{Lock, Nonce},
    testing::context::{Context, LONG, Verdict, ensure, patient, refused, unlocked},
};

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
    let waiter = cx.start(&second, &key, patient());
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
    let waiter = cx.start(&handle, &key, patient());
    cx.nap().await;
    ensure!(!waiter.is_finished(), "a client entered its own lock again");
    unlocked(handle.unlock(&held).await, "unlock by the holder")?;
    let next = waiter.granted(cx.slack(), "the same client's next lock").await?;
    ensure!(next.nonce() != held.nonce(), "two acquisitions have one nonce");
    ensure!(next.fencing_token() > held.fencing_token(), "the token did not rise");
    unlocked(handle.unlock(&next).await, "unlock of the second lock")
}
