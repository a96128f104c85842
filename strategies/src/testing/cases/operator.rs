//! Cases 39 to 41: listing, and ending the lock of another process.

use std::collections::BTreeMap;

use tokio::time::timeout;

use crate::{
    capabilities::Order,
    error::Error,
    lock::LossCause,
    operator::{ForcedUnlock, ListOptions, Operator},
    testing::context::{Context, Handle, LONG, Stop, Verdict, ensure, patient, refused, unlocked},
};

const REASON: &str = "conformance suite";

fn operator(handle: &Handle) -> Result<&dyn Operator, Stop> {
    handle.operator().ok_or(Stop::NotApplicable("the strategy has no operator"))
}

async fn force(
    handle: &Handle,
    key: &str,
    token: Option<u64>,
    what: &str,
) -> Result<ForcedUnlock, Stop> {
    let forced = operator(handle)?.force_unlock(key, token, REASON).await;
    forced.map_err(|error| Stop::Failed(format!("{what}: force_unlock: {error:?}")))
}

pub(in crate::testing) async fn a_listing_shows_held_keys_and_waiters(cx: &Context<'_>) -> Verdict {
    let (first, second) = cx.open_two().await;
    operator(&first)?;
    let mut locks = BTreeMap::new();
    for number in 0..5 {
        let key = cx.key(format!("listed/{number}"));
        let lock = cx.take(&first, &key, LONG).await?;
        locks.insert(key, lock);
    }
    let other = cx.take(&first, &cx.key("other"), LONG).await?;
    let awaited = cx.key("listed/3");
    let _waiters = [cx.start(&second, &awaited, patient()), cx.start(&second, &awaited, patient())];
    let queues = first.capabilities().order == Order::Fifo;
    if queues {
        cx.queued(&first, &awaited, 2).await?;
    }

    let mut options = ListOptions::default().prefix(cx.key("listed/")).limit(2);
    let mut found = BTreeMap::new();
    loop {
        let page = operator(&first)?.list(options.clone()).await;
        let page = page.map_err(|error| Stop::Failed(format!("list: {error:?}")))?;
        found.extend(page.entries.into_iter().map(|entry| (entry.key, entry.holder)));
        let Some(next) = page.next else { break };
        options = options.after(next);
    }
    let keys: Vec<&str> = found.keys().map(|key| &**key).collect();
    ensure!(keys == locks.keys().collect::<Vec<_>>(), "the listing has {keys:?}");
    for (key, holder) in &found {
        let lock = &locks[&**key];
        let named = (holder.nonce, holder.fencing_token) == (lock.nonce(), lock.fencing_token());
        ensure!(named && holder.remaining <= LONG, "{key} is listed as {holder:?}");
        let waiters = if queues && **key == *awaited { 2 } else { 0 };
        ensure!(holder.waiters == waiters, "{key} has {waiters} waiters, listed as {holder:?}");
    }
    let unlisted = operator(&first)?.list(ListOptions::default().limit(0)).await;
    refused!(unlisted, Error::InvalidOptions { field: "limit", .. }, "a page of nothing");
    drop(_waiters);
    for lock in locks.values().chain([&other]) {
        unlocked(first.unlock(lock).await, "unlock of a listed key")?;
    }
    Ok(())
}

pub(in crate::testing) async fn a_forced_unlock_notifies_and_passes_on(
    cx: &Context<'_>,
) -> Verdict {
    let (first, second) = cx.open_two().await;
    operator(&second)?;
    let key = cx.key("k");
    let held = cx.take(&first, &key, LONG).await?;
    let watch = first.watch(&held);
    let waiter = cx.start(&second, &key, patient());
    cx.nap().await;
    ensure!(!watch.is_lost() && !waiter.is_finished(), "the key changed hands too early");

    let forced = force(&second, &key, Some(held.fencing_token()), "of a held key").await?;
    let token = held.fencing_token();
    let is_it = matches!(&forced, ForcedUnlock::Unlocked(was) if was.fencing_token == token);
    ensure!(is_it, "a force-unlock of token {token} returned {forced:?}");
    let is_notified = first.capabilities().notifies_forced;
    if !is_notified {
        refused!(first.extend(&held, LONG).await, Error::NotHolder, "extend of a forced lock");
    }
    let lost = timeout(cx.slack(), watch.lost()).await;
    ensure!(lost.is_ok(), "the holder was not notified of a force-unlock");
    let cause = watch.cause();
    let forced = cause == Some(LossCause::Forced) || !is_notified;
    ensure!(forced, "the cause of a forced loss is {cause:?}");
    let note = watch.note();
    let is_noted = note.is_some() == (cause == Some(LossCause::Forced));
    ensure!(is_noted, "the note of a loss with the cause {cause:?} is {note:?}");
    refused!(first.unlock(&held).await, Error::NotHolder, "unlock of a forced lock");

    let next = waiter.granted(cx.slack(), "the waiter behind a forced lock").await?;
    ensure!(next.fencing_token() > token, "the token did not rise after a force-unlock");
    unlocked(second.unlock(&next).await, "unlock by the next holder")?;
    let again = force(&second, &key, None, "of a free key").await?;
    ensure!(again == ForcedUnlock::NotHeld, "a force-unlock of a free key returned {again:?}");
    cx.must_show_free(&first, &key, "after a force-unlock").await
}

pub(in crate::testing) async fn a_forced_unlock_spares_another_token(cx: &Context<'_>) -> Verdict {
    let (first, second) = cx.open_two().await;
    operator(&second)?;
    let key = cx.key("k");
    let held = cx.take(&first, &key, LONG).await?;
    let watch = first.watch(&held);
    let token = held.fencing_token();
    for wrong in [token - 1, token + 1] {
        let forced = force(&second, &key, Some(wrong), "with another token").await?;
        let spared =
            matches!(&forced, ForcedUnlock::OtherToken(holder) if holder.fencing_token == token);
        ensure!(spared, "a force-unlock of token {wrong} found {token} and returned {forced:?}");
    }
    cx.must_be_held(&second, &key, "after a force-unlock of another token").await?;
    ensure!(!watch.is_lost(), "a force-unlock of another token lost the lock");
    let long = "r".repeat(257);
    let refused = operator(&second)?.force_unlock(&key, None, &long).await;
    refused!(refused, Error::InvalidOptions { field: "reason", .. }, "a long reason");
    unlocked(first.unlock(&held).await, "unlock after a force-unlock of another token")
}
