//! Cases 29 to 33 and 43: waiters are granted, withdrawn ones are not.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::{JoinSet, yield_now},
    time::{Instant, sleep, timeout_at},
};

use crate::{
    capabilities::Order,
    error::Error,
    testing::context::{
        Context, Handle, LONG, Stop, Verdict, ensure, give_back, granted, patient, refused,
        unlocked,
    },
};

pub(in crate::testing) async fn waiters_are_served_in_order_or_at_least_all(
    cx: &Context<'_>,
) -> Verdict {
    let handles = [cx.open().await, cx.open().await, cx.open().await];
    match handles[0].capabilities().order {
        Order::Fifo => first_come_first_served(cx, &handles).await,
        Order::None => no_waiter_starves(cx, &handles).await,
    }
}

async fn first_come_first_served(cx: &Context<'_>, handles: &[Handle]) -> Verdict {
    let key = cx.key("fifo");
    let mut held = cx.take(&handles[0], &key, LONG).await?;
    let mut holder = &handles[0];
    let mut waiters = Vec::new();
    for (place, handle) in handles.iter().cycle().take(20).enumerate() {
        waiters.push((handle, cx.start(handle, &key, patient())));
        cx.queued(&handles[0], &key, place as u64 + 1).await?;
    }
    for (place, (handle, waiter)) in waiters.into_iter().enumerate() {
        unlocked(holder.unlock(&held).await, "unlock by the holder")?;
        held = waiter.granted(cx.slack(), &format!("waiter {place} in its turn")).await?;
        holder = handle;
    }
    unlocked(holder.unlock(&held).await, "unlock by the last holder")
}

/// How many contend, how often each must be served, and how many grants may pass until then.
const CONTENDERS: usize = 18;
const TURNS: u64 = 5;
const ROUNDS: u64 = 600;
/// How long each contender holds, and pauses before it locks again. Without a promise of order, a
/// contender without a pause would find the key free before any other retries, and two contenders
/// with equal times could shut out the others.
const HOLD: Duration = Duration::from_millis(2);
const THINK: Duration = Duration::from_millis(9);

async fn no_waiter_starves(cx: &Context<'_>, handles: &[Handle]) -> Verdict {
    let key = cx.key("starvation");
    let grants = Arc::new(AtomicU64::new(0));
    let (satisfied, inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for handle in handles.iter().cycle().take(CONTENDERS) {
        let (handle, key) = (handle.clone(), key.clone());
        let (grants, satisfied) = (grants.clone(), satisfied.clone());
        let inside = inside.clone();
        // All go on until the last is satisfied, so that it has rivals to the end.
        tasks.spawn(async move {
            let mut turns = 0;
            while satisfied.load(Ordering::Relaxed) < CONTENDERS
                && grants.load(Ordering::Relaxed) <= ROUNDS
            {
                let lock = granted(handle.lock(&key, patient()).await, "a contender")?;
                let others = inside.fetch_add(1, Ordering::SeqCst);
                ensure!(others == 0, "{others} others hold the key");
                sleep(HOLD).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                turns += 1;
                if turns == TURNS {
                    satisfied.fetch_add(1, Ordering::Relaxed);
                }
                grants.fetch_add(1, Ordering::Relaxed);
                unlocked(handle.unlock(&lock).await, "unlock by a contender")?;
                sleep(THINK).await;
            }
            Ok::<(), Stop>(())
        });
    }
    let limit = Instant::now() + LONG;
    while let Ok(Some(ended)) = timeout_at(limit, tasks.join_next()).await {
        ended.map_err(|panicked| Stop::Failed(panicked.to_string()))??;
    }
    let grants = grants.load(Ordering::Relaxed);
    ensure!(
        grants <= ROUNDS,
        "{grants} grants, and not yet {TURNS} for each of {CONTENDERS} contenders, at most \
         {ROUNDS}: retry after pauses with jitter, or one contender is always too late"
    );
    Ok(())
}

pub(in crate::testing) async fn a_cancelled_waiter_is_skipped(cx: &Context<'_>) -> Verdict {
    let ((first, second), third) = (cx.open_two().await, cx.open().await);
    let key = cx.key("k");
    let held = cx.take(&first, &key, LONG).await?;
    let withdrawn = cx.start(&second, &key, patient());
    cx.nap().await;
    let next = cx.start(&third, &key, patient());
    cx.nap().await;
    ensure!(!withdrawn.is_finished() && !next.is_finished(), "a lock of a held key did not wait");
    withdrawn.cancel(&second).await?;
    unlocked(first.unlock(&held).await, "unlock by the holder")?;
    let next = next.granted(cx.slack(), "the waiter behind a cancelled one").await?;
    unlocked(third.unlock(&next).await, "unlock by the next holder")?;
    cx.must_show_free(&first, &key, "after a cancelled waiter").await
}

/// How many interleavings of cancel and grant are tried.
const INTERLEAVINGS: u32 = 24;

pub(in crate::testing) async fn a_waiter_cancelled_at_its_grant_passes_it_on(
    cx: &Context<'_>,
) -> Verdict {
    let (first, second) = cx.open_two().await;
    for step in 0..INTERLEAVINGS {
        let key = cx.key(step);
        let held = cx.take(&first, &key, LONG).await?;
        let waiter = cx.start(&second, &key, patient());
        // Short: a request that has not arrived by then makes one more interleaving.
        sleep(cx.lease() / 40).await;
        ensure!(!waiter.is_finished(), "a lock of a held key did not wait");
        // The unlock and the drop of the waiting call meet at another step each time.
        let unlocking = tokio::spawn({
            let (first, held) = (first.clone(), held.clone());
            async move { first.unlock(&held).await }
        });
        for _ in 0..step / 2 {
            yield_now().await;
        }
        if step % 2 == 1 && !cx.slack().is_zero() {
            sleep(Duration::from_micros(u64::from(step) * 100)).await;
        }
        waiter.cancel(&second).await?;
        let result = unlocking.await.map_err(|panicked| Stop::Failed(panicked.to_string()))?;
        unlocked(result, "unlock by the holder")?;
        cx.must_be_free(&first, &key, &format!("after a cancel at the grant, step {step}")).await?;
    }
    Ok(())
}

pub(in crate::testing) async fn many_waiters_are_all_served_once(cx: &Context<'_>) -> Verdict {
    let handles = [cx.open().await, cx.open().await, cx.open().await];
    let (key, waiters) = (cx.key("k"), cx.fixture.waiters());
    let held = cx.take(&handles[0], &key, LONG).await?;
    let (inside, patience) = (Arc::new(AtomicUsize::new(0)), cx.fixture.recovery());
    let mut tasks = JoinSet::new();
    for handle in handles.iter().cycle().take(waiters) {
        let (handle, key, inside) = (handle.clone(), key.clone(), inside.clone());
        tasks.spawn(async move {
            let lock = granted(handle.lock(&key, patient()).await, "one of many waiters")?;
            let others = inside.fetch_add(1, Ordering::SeqCst);
            ensure!(others == 0, "{others} others hold the key");
            yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            give_back(&handle, &lock, patience, "unlock by one of many").await?;
            Ok::<u64, Stop>(lock.fencing_token())
        });
    }
    cx.nap().await;
    give_back(&handles[0], &held, patience, "unlock by the first holder").await?;
    let mut tokens = BTreeSet::from([held.fencing_token()]);
    while let Some(ended) = tasks.join_next().await {
        let token = ended.map_err(|panicked| Stop::Failed(panicked.to_string()))??;
        ensure!(tokens.insert(token), "token {token} was granted twice");
    }
    ensure!(tokens.len() == waiters + 1, "{} grants for {waiters} waiters", tokens.len() - 1);
    cx.must_show_free(&handles[1], &key, "after many waiters").await
}

pub(in crate::testing) async fn a_dropped_call_leaves_nothing_behind(cx: &Context<'_>) -> Verdict {
    let ((first, second), before) = (cx.open_two().await, cx.residue().await?);
    let shared = cx.key("shared");
    let held = cx.take(&first, &shared, LONG).await?;
    let (mut calls, mut free) = (Vec::new(), Vec::new());
    for call in 0..100_usize {
        let handle = if call % 2 == 0 { &first } else { &second };
        calls.push((handle, cx.start(handle, &shared, patient())));
        // On a free key the drop meets the grant instead of the queue.
        let key = cx.key(call);
        calls.push((handle, cx.start(handle, &key, patient())));
        free.push(key);
        for _ in 0..call % 7 {
            yield_now().await;
        }
        if call % 3 == 0 {
            for (handle, call) in calls.drain(..) {
                call.cancel(handle).await?;
            }
        }
    }
    cx.nap().await;
    for (handle, call) in calls {
        call.cancel(handle).await?;
    }
    cx.queued(&first, &shared, 0).await?;
    unlocked(first.unlock(&held).await, "unlock by the holder")?;
    for key in &free {
        cx.must_be_free(&second, key, "after a dropped call").await?;
    }
    cx.must_show_free(&second, &shared, "after dropped calls").await?;
    cx.must_leave_nothing(before).await
}

/// The holder, the waiter that ends and the waiter behind it have the same key. The last is of
/// another process, unless all handles are one.
pub(in crate::testing) async fn unlock_all_ends_waits_before_it_unlocks(
    cx: &Context<'_>,
) -> Verdict {
    let (first, second) = (cx.open_alone().await, cx.open().await);
    let (meant, other) = (cx.key("meant/k"), cx.key("other/k"));
    let held = cx.take(&first, &meant, LONG).await?;
    let kept = cx.take(&first, &other, LONG).await?;
    let watches = (first.watch(&held), first.watch(&kept));
    let (ended, stays) = (cx.start(&first, &meant, patient()), cx.start(&first, &other, patient()));
    cx.nap().await;
    let behind = cx.start(&second, &meant, patient());
    cx.nap().await;

    match first.unlock_all(&cx.key("meant/")).await {
        Err(Error::Unsupported { .. }) => {
            return Err(Stop::NotApplicable("the strategy has no unlock_all"));
        }
        result => unlocked(result, "unlock_all by the holder")?,
    }

    let (result, _) = ended.ended(cx.slack()).await?;
    refused!(result, Error::Withdrawn, "a wait that unlock_all ended");
    ensure!(watches.0.is_lost(), "unlock_all did not notify the holder");
    if Arc::ptr_eq(&first, &second) {
        let (result, _) = behind.ended(cx.slack()).await?;
        refused!(result, Error::Withdrawn, "another wait that unlock_all ended");
    } else {
        let next = behind.granted(cx.slack(), "the waiter of another process").await?;
        unlocked(second.unlock(&next).await, "unlock by the next holder")?;
    }
    ensure!(!watches.1.is_lost(), "unlock_all ended a lock of another prefix");
    unlocked(first.unlock(&kept).await, "unlock of the other key")?;
    let last = stays.granted(cx.slack(), "a waiter of another prefix").await?;
    unlocked(first.unlock(&last).await, "unlock of the other key by its waiter")
}
