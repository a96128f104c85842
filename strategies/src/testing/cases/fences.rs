//! Cases 24 to 28: fencing tokens rise from grant to grant, despite any event between them.

use tokio::time::{Instant, sleep};

use crate::{
    error::Error,
    lock::Lock,
    options::LockOptions,
    testing::{
        context::{
            Context, Handle, LONG, Stop, Verdict, ensure, given_up, granted, patient, unlocked,
        },
        resource::FencedResource,
    },
};

pub(in crate::testing) async fn tokens_rise_per_key(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let mut greatest = 0;
    for round in 0..20 {
        let handle = if round % 2 == 0 { &first } else { &second };
        let lock = cx.take(handle, &key, LONG).await?;
        let token = lock.fencing_token();
        ensure!(token > greatest, "grant {round} has token {token} after {greatest}");
        greatest = token;
        unlocked(handle.unlock(&lock).await, "unlock by the holder")?;
    }
    Ok(())
}

pub(in crate::testing) async fn tokens_rise_across_expiry(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let before = cx.residue().await?;
    let ended = cx.take(&first, &key, cx.lease()).await?;
    cx.outlive(cx.lease()).await;
    let next = cx.take(&second, &key, cx.lease()).await?;
    ensure!(next.fencing_token() > ended.fencing_token(), "the token did not rise");
    // Once more with the key swept out of the table in between.
    cx.must_leave_nothing(before).await?;
    let last = cx.take(&first, &key, LONG).await?;
    ensure!(last.fencing_token() > next.fencing_token(), "the token did not outlive its key");
    unlocked(first.unlock(&last).await, "unlock by the holder")
}

pub(in crate::testing) async fn tokens_rise_across_a_restart(cx: &Context<'_>) -> Verdict {
    let (handle, key) = (cx.open().await, cx.key("k"));
    let mut greatest = 0;
    for _ in 0..5 {
        let lock = cx.take(&handle, &key, LONG).await?;
        greatest = lock.fencing_token();
        unlocked(handle.unlock(&lock).await, "unlock by the holder")?;
    }
    cx.fixture.restart_backend().await?;
    let (handle, lock) = recovered(cx, &key).await?;
    let token = lock.fencing_token();
    ensure!(token > greatest, "token {token} after a restart, {greatest} before");
    unlocked(handle.unlock(&lock).await, "unlock after the restart")
}

/// The first grant after the backend came back.
async fn recovered(cx: &Context<'_>, key: &str) -> Result<(Handle, Lock), Stop> {
    let limit = Instant::now() + cx.fixture.recovery();
    let handle = cx.open().await;
    loop {
        let options = LockOptions::default().duration(LONG).max_wait(cx.slack());
        match handle.lock(key, options).await {
            Ok(lock) => return Ok((handle, lock)),
            Err(Error::Unavailable { .. } | Error::Unknown) => {}
            Err(other) => return granted(Err(other), "lock after a restart").map(|l| (handle, l)),
        }
        ensure!(Instant::now() < limit, "no grant within {:?}", cx.fixture.recovery());
        sleep(cx.lease() / 10).await;
    }
}

pub(in crate::testing) async fn tokens_rise_across_a_change_of_leader(cx: &Context<'_>) -> Verdict {
    let (first, second) = cx.open_two().await;
    if !first.capabilities().waits_for_leader {
        return Err(Stop::NotApplicable("the strategy has no leader"));
    }
    let (kept, ended) = (cx.key("kept"), cx.key("ended"));
    let held = cx.take(&first, &kept, LONG).await?;
    let before = cx.take(&second, &ended, LONG).await?;
    unlocked(second.unlock(&before).await, "unlock before the change")?;

    cx.fixture.change_leader().await?;
    let limit = cx.fixture.recovery();
    let options = LockOptions::default().duration(LONG).max_wait(limit);
    let next = granted(second.lock(&ended, options).await, "lock under the new leader")?;
    ensure!(next.fencing_token() > before.fencing_token(), "the token did not rise");
    cx.must_be_held(&second, &kept, "of a key held across the change").await?;
    let longer = granted(first.extend(&held, LONG).await, "extend under the new leader")?;
    ensure!(longer.fencing_token() == held.fencing_token(), "the change gave another token");
    unlocked(first.unlock(&held).await, "unlock under the new leader")?;
    unlocked(second.unlock(&next).await, "unlock under the new leader")?;
    let last = cx.take(&first, &kept, LONG).await?;
    ensure!(last.fencing_token() > held.fencing_token(), "the token did not rise");
    unlocked(first.unlock(&last).await, "unlock under the new leader")
}

pub(in crate::testing) async fn a_resource_rejects_the_stale_write(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    let resource = FencedResource::default();
    let stale = cx.take(&first, &key, cx.lease()).await?;
    ensure!(resource.write(stale.fencing_token(), 1).is_ok(), "the first write was refused");

    // The first holder pauses past its lease, then writes as if nothing had happened.
    let waiter = cx.start(&second, &key, patient());
    let fresh = waiter.granted(cx.lease() + cx.slack(), "a waiter at the lease's end").await?;
    given_up(&first, &stale)?;
    let fresh_token = fresh.fencing_token();
    ensure!(resource.read(fresh_token) == Ok(1), "the new holder was refused");
    ensure!(resource.write(stale.fencing_token(), 3).is_err(), "the stale write went through");
    ensure!(resource.write(fresh_token, 2).is_ok(), "the new holder was refused");
    let read = resource.read(fresh_token);
    ensure!(read == Ok(2), "the resource replies {read:?}");
    unlocked(second.unlock(&fresh).await, "unlock by the second holder")
}
