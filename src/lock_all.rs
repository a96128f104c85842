//! Several keys under one deadline, all or none.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use futures_util::future::{join_all, try_join_all};
use gaggle_strategies::{
    Error, LockOptions, MaxWait,
    error::Contention,
    implement::{check_request, not_held, wait_until},
};

use crate::{Guard, Locker};

/// A guard that waits for the others is extended when this part of its lease has passed.
const EXTEND_AFTER_PARTS: u32 = 3;

pub(crate) async fn lock_all(
    locker: &Locker,
    keys: Vec<Arc<str>>,
    options: LockOptions,
) -> Result<Vec<Guard>, Error> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|&at| &keys[at]);
    for key in &keys {
        check_request(key, &options)?;
    }
    if let Some(pair) = order.windows(2).find(|pair| keys[pair[0]] == keys[pair[1]]) {
        let (value, limit) = (keys[pair[0]].to_string(), "each key once".into());
        return Err(Error::InvalidOptions { field: "keys", value, limit });
    }
    let clock = locker.strategy().clock();
    let (max_wait, lease) = (options.get_max_wait(), options.get_duration());
    let until = wait_until(clock.now(), max_wait);
    let mut guards: Vec<Guard> = Vec::with_capacity(keys.len());
    for &at in &order {
        let left = until.map_or(MaxWait::Forever, |until| until.since(clock.now()).into());
        let request = locker.lock_with(&keys[at], options.clone().max_wait(left)).into_future();
        let guard = extending(&guards, lease, locker, request).await;
        guards.push(guard.map_err(|error| timed_out(error, max_wait))?);
    }
    let short = guards.iter().filter(|guard| guard.remaining() < lease / 2);
    try_join_all(short.map(|guard| guard.extend(lease))).await?;
    if let Some(lost) = guards.iter().find(|guard| !guard.is_valid()) {
        return Err(not_held(&lost.lock(), clock.now()));
    }
    let mut in_order: Vec<_> = order.into_iter().zip(guards).collect();
    in_order.sort_by_key(|(at, _)| *at);
    Ok(in_order.into_iter().map(|(_, guard)| guard).collect())
}

/// Awaits a request, and extends the guards meanwhile.
async fn extending(
    guards: &[Guard],
    lease: Duration,
    locker: &Locker,
    mut request: impl Future<Output = Result<Guard, Error>> + Unpin,
) -> Result<Guard, Error> {
    let clock = locker.strategy().clock();
    loop {
        let extend_at = clock.now().after(lease / EXTEND_AFTER_PARTS);
        tokio::select! {
            biased;
            guard = &mut request => return guard,
            () = clock.sleep_until(extend_at), if !guards.is_empty() => {}
        }
        for extended in join_all(guards.iter().map(|guard| guard.extend(lease))).await {
            // After any other error another attempt follows before the lease ends.
            if let Err(error @ (Error::NotHolder | Error::Expired)) = extended {
                return Err(error);
            }
        }
    }
}

/// The error of one key as that of the whole call, whose wait is `max_wait`. A later key may have
/// been left no time to wait.
fn timed_out(error: Error, max_wait: MaxWait) -> Error {
    match error {
        Error::TimedOut(contention) | Error::Held(contention)
            if max_wait != MaxWait::AtMost(Duration::ZERO) =>
        {
            Error::TimedOut(contention.map(|it| Box::new(Contention { max_wait, ..*it })))
        }
        error => error,
    }
}
