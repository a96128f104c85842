//! The tasks of a handle: the subscriber hears of grants, the poller asks after waiters in case a
//! publication was lost, the releaser sends the unlocks that nobody waits for.

use std::{collections::VecDeque, sync::Arc};

use futures_util::future::join_all;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{sleep, timeout},
};

use super::{
    acquire::back_off,
    keys,
    reply::{Answer, Found, Granted},
    shared::{Release, Shared, tell},
    trouble::{Fate, Trouble},
    waiters::{Outcome, Waiting},
    wire::{OnPush, Unasked, Wire},
};
use crate::{
    Lock,
    planted::{Bug, planted},
};

/// How many nonces one command carries: it bounds how long a script keeps the server.
const NONCES_PER_COMMAND: usize = 512;
/// How many unlocks are under way at once.
const RELEASES_AT_ONCE: usize = 256;

/// Completes when the handle is closed or dropped.
pub(super) type Stop = watch::Receiver<bool>;

pub(super) async fn stopped(stop: &mut Stop) {
    // An error means that the handle has gone, and with it the sender.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Keeps a subscription to this process' topic on a connection of its own.
pub(super) async fn subscribe(shared: Arc<Shared>, mut stop: Stop) {
    tokio::select! {
        () = stopped(&mut stop) => {}
        () = stay_subscribed(&shared) => {}
    }
    shared.subscribed.send_replace(false);
}

async fn stay_subscribed(shared: &Arc<Shared>) {
    let mut failures = 0;
    loop {
        match open_subscription(shared).await {
            Ok((connection, ended)) => {
                failures = 0;
                shared.subscribed.send_replace(true);
                // What was published before the subscription is found by a poll.
                shared.waiters().poll_all(shared.now());
                shared.poke.notify_one();
                check_holds(shared).await;
                watch_subscription(shared, connection, &ended).await;
                if planted(Bug::SubscriptionLost) {
                    // Believes that it is subscribed for ever after.
                    return std::future::pending().await;
                }
                shared.subscribed.send_replace(false);
                tracing::info!("the subscription has ended");
            }
            Err(trouble) => {
                failures += 1;
                tracing::debug!(%trouble, failures, "no subscription");
            }
        }
        sleep(back_off(failures + 1)).await;
    }
}

/// Asks after the locks that somebody here watches: the server may have lost its memory together
/// with the connection. What cannot be asked now is noticed by the next extend.
async fn check_holds(shared: &Arc<Shared>) {
    let mut held: Vec<_> =
        shared.holds.locks().into_iter().map(|lock| (keys::bucket(lock.key()), lock)).collect();
    held.sort_by_key(|(bucket, _)| *bucket);
    for held in held.chunk_by(|(one, _), (other, _)| one == other) {
        for held in held.chunks(NONCES_PER_COMMAND) {
            let one = |(_, lock): &(_, Lock)| (lock.key().clone(), vec![lock.nonce()]);
            let groups: Vec<_> = held.iter().map(one).collect();
            let until = shared.now().after(shared.options.request_timeout);
            let Ok(found) = shared.poll(held[0].0, &groups, until).await else { return };
            for ((_, found), (_, lock)) in found.into_iter().zip(held) {
                if matches!(found, Found::Spent | Found::Unknown) {
                    shared.lost(lock);
                }
            }
        }
    }
}

async fn open_subscription(shared: &Arc<Shared>) -> Result<(Wire, Arc<Notify>), Trouble> {
    let ended = Arc::new(Notify::new());
    let on_push: OnPush = {
        let (shared, ended) = (shared.clone(), ended.clone());
        Arc::new(move |unasked| match unasked {
            Unasked::Message(payload) => hear(&shared, payload),
            Unasked::Ended => ended.notify_one(),
        })
    };
    let connection = shared.server.connect(on_push).await?;
    let mut subscribe = redis::cmd("SUBSCRIBE");
    subscribe.arg(shared.topic());
    match timeout(shared.options.request_timeout, connection.request(&subscribe)).await {
        Ok(subscribed) => subscribed.map(|_| (connection, ended)),
        Err(_) => Err(Trouble::Silent),
    }
}

/// Returns when the subscription has ended, or its connection does not answer any more.
async fn watch_subscription(shared: &Arc<Shared>, connection: Wire, ended: &Notify) {
    loop {
        if timeout(shared.options.waiter_ttl, ended.notified()).await.is_ok() {
            return;
        }
        let ping = redis::cmd("PING");
        let answer = connection.request(&ping);
        if !matches!(timeout(shared.options.request_timeout, answer).await, Ok(Ok(_))) {
            return;
        }
    }
}

/// A publication: runs on the connection's own task, so that nothing stands between it and the
/// caller.
fn hear(shared: &Shared, payload: &[u8]) {
    let Some((bucket, granted)) = Granted::published(payload) else {
        tracing::warn!(bytes = payload.len(), "a publication was not understood");
        return;
    };
    let effects = shared.waiters().granted(bucket, granted, shared.now());
    tell(effects);
}

/// Asks after the waiters of this process when they are due.
pub(super) async fn poll(shared: Arc<Shared>, mut stop: Stop) {
    tokio::select! {
        () = stopped(&mut stop) => {}
        () = keep_polling(&shared) => {}
    }
}

async fn keep_polling(shared: &Arc<Shared>) {
    let mut failures = 0;
    loop {
        let next = shared.waiters().arm();
        let clock = &shared.options.clock;
        match next {
            None => shared.poke.notified().await,
            Some(at) => tokio::select! {
                () = clock.sleep_until(at) => {}
                () = shared.poke.notified() => {}
            },
        }
        loop {
            let due = shared.waiters().due(shared.now());
            let Some((bucket, waiting)) = due else { break };
            for waiting in waiting.chunks(NONCES_PER_COMMAND) {
                match poll_some(shared, bucket, waiting).await {
                    Ok(()) => failures = 0,
                    Err(trouble) => {
                        failures += 1;
                        tracing::debug!(%trouble, failures, "a poll has failed");
                        let again = shared.now().after(back_off(failures));
                        shared.waiters().poll_at(bucket, again);
                    }
                }
            }
        }
    }
}

async fn poll_some(
    shared: &Arc<Shared>,
    bucket: usize,
    waiting: &[Waiting],
) -> Result<(), Trouble> {
    let by_key = waiting.chunk_by(|a, b| a.request.key == b.request.key);
    let groups: Vec<_> = by_key
        .map(|group| {
            let nonces = group.iter().map(|waiting| waiting.request.nonce).collect();
            (group[0].request.key.clone(), nonces)
        })
        .collect();
    let until = shared.now().after(shared.options.request_timeout);
    let found = shared.poll(bucket, &groups, until).await?;
    let (now, mut unknown) = (shared.now(), Vec::new());
    for ((nonce, found), waiting) in found.into_iter().zip(waiting) {
        if found == Found::Unknown {
            unknown.push(waiting.clone());
        } else {
            let effects = shared.waiters().found(bucket, nonce, found, now, rand::random());
            tell(effects);
        }
    }
    if unknown.is_empty() { Ok(()) } else { queue_again(shared, bucket, unknown).await }
}

/// The server has lost its memory, or has taken us for dead: those of the nonces that still wait queue
/// again, in the order in which they came.
async fn queue_again(
    shared: &Arc<Shared>,
    bucket: usize,
    waiting: Vec<Waiting>,
) -> Result<(), Trouble> {
    let mut waiting: Vec<_> = {
        let mut waiters = shared.waiters();
        let still = |waiting: Waiting| Some((waiters.queueing_again(&waiting.request)?, waiting));
        waiting.into_iter().filter_map(still).map(|(copies, waiting)| (waiting, copies)).collect()
    };
    if waiting.is_empty() {
        return Ok(());
    }
    tracing::info!(
        waiters = waiting.len(),
        "redis does not know waiters of ours: they queue again"
    );
    let asked = shared.now();
    let until = asked.after(shared.options.request_timeout);
    let mut answers = shared.ask_all(bucket, &waiting, until).await;
    if matches!(answers.as_deref(), Ok([Answer::Stale])) {
        answers = shared.ask_all(bucket, &waiting, until).await;
    }
    if !matches!(&answers, Err(trouble) if trouble.fate() == Fate::Unanswered) {
        for (waiting, _) in &waiting {
            shared.waiters().settled(&waiting.request);
        }
    }
    let now = shared.now();
    for (answer, (waiting, _)) in answers?.into_iter().zip(waiting.drain(..)) {
        let (request, mut waiters) = (&waiting.request, shared.waiters());
        let nonce = request.nonce;
        let effects = match answer {
            Answer::Granted { token } => waiters.granted_at_once(request, token, now).1,
            Answer::Again { token, remaining } => {
                waiters.granted_again(request, token, asked, remaining).1
            }
            Answer::Queued { remaining } => {
                let found = Found::Waiting { remaining };
                waiters.found(bucket, nonce, found, now, rand::random())
            }
            Answer::Spent => waiters.end(bucket, nonce, Outcome::Spent),
            Answer::Limit { what, limit } => {
                waiters.end(bucket, nonce, Outcome::Limit { what, limit })
            }
            Answer::Held | Answer::Stale => {
                waiters.poll_at(bucket, now);
                Vec::new()
            }
        };
        drop(waiters);
        tell(effects);
    }
    Ok(())
}

/// Sends the unlocks that nobody waits for, and repeats those that fail while their lease may
/// last.
pub(super) async fn release(
    shared: Arc<Shared>,
    mut releases: mpsc::Receiver<Release>,
    mut stop: Stop,
) {
    let mut pending = VecDeque::new();
    let mut failures = 0;
    loop {
        let pause = back_off(failures);
        tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            () = sleep(pause), if !pending.is_empty() => {}
            release = releases.recv(), if pending.is_empty() => pending.extend(release),
        }
        gather(&mut releases, &mut pending);
        let failed = release_some(&shared, &mut pending).await;
        failures = if failed { failures + 1 } else { 0 };
    }
    // What was handed over before the end is still sent, once.
    let last = async {
        while gather(&mut releases, &mut pending) {
            release_some(&shared, &mut VecDeque::from_iter(pending.drain(..))).await;
        }
    };
    let _ = timeout(shared.options.request_timeout, last).await;
}

/// Takes what waits, up to what is sent at once. Returns whether there is anything to send.
fn gather(releases: &mut mpsc::Receiver<Release>, pending: &mut VecDeque<Release>) -> bool {
    while pending.len() < RELEASES_AT_ONCE
        && let Ok(release) = releases.try_recv()
    {
        pending.push_back(release);
    }
    !pending.is_empty()
}

/// Sends all of `pending`; those that fail stay in it. Returns whether any did.
async fn release_some(shared: &Shared, pending: &mut VecDeque<Release>) -> bool {
    let now = shared.now();
    let until = now.after(shared.options.request_timeout);
    pending.retain(|release| release.until > now);
    let sending = pending.drain(..).map(|release| async move {
        let Release { ref key, bucket, nonce, copies, .. } = release;
        let result = shared.free(key, bucket, (nonce, copies), false, until).await;
        if let Err(trouble) = &result
            && !trouble.is_passing()
        {
            tracing::warn!(%trouble, "an unlock was refused: the lease will run out");
        }
        matches!(&result, Err(trouble) if trouble.is_passing()).then_some(release)
    });
    let failed: Vec<_> = join_all(sending).await.into_iter().flatten().collect();
    pending.extend(failed);
    !pending.is_empty()
}
