//! Cases 34 to 38: keys, memory, failure and closing.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::{
    runtime::Handle as Runtime,
    time::{Instant, sleep, timeout},
};

use crate::{
    defaults::REQUEST_TIMEOUT,
    error::Error,
    limits::KEY_BYTES_MAX,
    lock::Lock,
    options::LockOptions,
    testing::context::{
        Context, Handle, LONG, Stop, Verdict, Waiter, at_once, ensure, give_back, granted, patient,
        refused, unlocked,
    },
};

/// Keys that a careless strategy takes for one another, or trips over.
fn look_alikes() -> Vec<String> {
    let mut keys: Vec<String> = [
        "k",
        "K",
        " k",
        "k ",
        "k/",
        "/k",
        "k/k",
        "k:",
        "k:waiters",
        "{k}",
        "k}",
        "{",
        "*",
        "k*",
        "k\0",
        "\0",
        "k\n",
        "k\r\n",
        "\u{7f}",
        "%6B",
        "k%00",
        "..",
        "e\u{301}",
        "\u{e9}",
        "a",
        "\u{430}",
        "ß",
        "ss",
        "\u{1f512}",
        "\u{1f512}\u{fe0f}",
        "\u{feff}k",
        "$1",
        "' or 1=1",
        "\"",
    ]
    .map(str::to_owned)
    .into();
    keys.push("x".repeat(KEY_BYTES_MAX - 1));
    keys.push("x".repeat(KEY_BYTES_MAX));
    keys.push("\u{1f512}".repeat(KEY_BYTES_MAX / 4));
    keys
}

pub(in crate::testing) async fn keys_are_kept_apart_and_checked(cx: &Context<'_>) -> Verdict {
    let (first, second) = cx.open_two().await;
    for key in ["".to_owned(), "x".repeat(KEY_BYTES_MAX + 1), "x".repeat(1 << 20)] {
        let (size, limit) = (key.len(), KEY_BYTES_MAX);
        let named = |result: Result<(), Error>, what: &str| {
            let right = matches!(result, Err(Error::InvalidKey { bytes, limit: named })
                if bytes == size && named == limit);
            ensure!(right, "{what} of a key of {size} bytes: got {result:?}");
            Ok(())
        };
        named(first.lock(&key, LockOptions::default()).await.map(drop), "lock")?;
        named(first.inspect(&key).await.map(drop), "inspect")?;
    }

    // All are held at the same time, so none is another.
    let keys = look_alikes();
    let mut held = Vec::new();
    for key in &keys {
        let lock = cx.take(&first, key, LONG).await?;
        ensure!(**lock.key() == **key, "the lock of {key:?} names {:?}", lock.key());
        held.push(lock);
    }
    for key in &keys {
        cx.must_be_held(&second, key, &format!("of {key:?}")).await?;
    }
    let names: BTreeSet<_> = held.iter().map(|lock| lock.key().clone()).collect();
    ensure!(names.len() == keys.len(), "{} names of {} keys", names.len(), keys.len());
    for lock in &held {
        unlocked(first.unlock(lock).await, "unlock by the holder")?;
    }
    Ok(())
}

/// How many requests of case 35 are in flight at once: enough to fill a pipeline, and below any
/// limit on requests.
const AT_ONCE: usize = 500;

pub(in crate::testing) async fn many_keys_give_their_memory_back(cx: &Context<'_>) -> Verdict {
    let ((first, second), before) = (cx.open_two().await, cx.residue().await?);
    let handles = [first, second];
    let patience = cx.fixture.time_limit();
    let options = LockOptions::default().duration(LONG).max_wait(patience);
    let keys: Vec<String> = (0..cx.fixture.keys()).map(|number| cx.key(number)).collect();
    let taking = keys.iter().enumerate().map(|(number, key)| {
        let (handle, options) = (&handles[number % 2], options.clone());
        async move { granted(handle.lock(key, options).await, "lock of one of many keys") }
    });
    let taking: Vec<_> = taking.collect();
    let held: Vec<Result<Lock, Stop>> = stream::iter(taking).buffered(AT_ONCE).collect().await;
    let held = held.into_iter().collect::<Result<Vec<_>, _>>()?;
    cx.must_be_held(&handles[1], &keys[0], "of the first of many keys").await?;

    let freeing = held.iter().enumerate().map(|(number, lock)| {
        let handle = &handles[number % 2];
        async move { give_back(handle, lock, patience, "unlock of one of many keys").await }
    });
    let freeing: Vec<_> = freeing.collect();
    let freed: Vec<Verdict> = stream::iter(freeing).buffered(AT_ONCE).collect().await;
    freed.into_iter().collect::<Verdict>()?;
    cx.must_leave_nothing(before).await
}

/// The contract knows no backend that could be down where no other process takes part.
fn needs_backend(handle: &Handle) -> Verdict {
    if handle.capabilities().distributed {
        return Ok(());
    }
    Err(Stop::NotApplicable("the strategy has no backend outside the process"))
}

pub(in crate::testing) async fn every_call_ends_while_the_backend_is_down(
    cx: &Context<'_>,
) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    needs_backend(&first)?;
    let held = cx.take(&first, &key, LONG).await?;
    cx.must_be_held(&second, &key, "before the backend goes").await?;
    cx.fixture.backend_down().await?;
    let verdict = all_calls_end(cx, &first, &second, &held).await;
    cx.fixture.backend_up().await?;
    verdict?;

    // The unlock may be repeated as it is; a server that lost its memory knows of no holder.
    let limit = Instant::now() + cx.fixture.recovery();
    loop {
        match first.unlock(&held).await {
            Ok(()) | Err(Error::NotHolder) => return Ok(()),
            Err(error) => ensure!(Instant::now() < limit, "unlock, repeated: got {error:?}"),
        }
        sleep(cx.lease() / 10).await;
    }
}

async fn all_calls_end(cx: &Context<'_>, first: &Handle, second: &Handle, held: &Lock) -> Verdict {
    let (key, wait) = (&**held.key(), cx.lease());
    let options = LockOptions::default().max_wait(wait);
    unavailable(cx, wait, "lock", second.lock(key, options)).await?;
    let free = cx.key("free");
    let options = LockOptions::default().max_wait(wait);
    unavailable(cx, wait, "lock of a free key", first.lock(&free, options)).await?;
    let attempt = second.lock(key, at_once(LONG));
    unavailable(cx, REQUEST_TIMEOUT, "one attempt", attempt).await?;
    let attempt = first.lock(&free, at_once(LONG));
    unavailable(cx, REQUEST_TIMEOUT, "one attempt on a free key", attempt).await?;
    unavailable(cx, REQUEST_TIMEOUT, "extend", first.extend(held, LONG)).await?;
    unavailable(cx, REQUEST_TIMEOUT, "unlock", first.unlock(held)).await?;
    // Input is checked before any I/O.
    let empty = first.lock("", LockOptions::default()).await;
    refused!(empty, Error::InvalidKey { .. }, "lock of an empty key");
    Ok(())
}

/// The call must end within `limit` (and the slack), as not served or not known.
async fn unavailable<T: std::fmt::Debug>(
    cx: &Context<'_>,
    limit: Duration,
    what: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Verdict {
    let limit = limit + cx.slack();
    let Ok(result) = timeout(limit, call).await else {
        return Err(Stop::Failed(format!("{what} has not ended within {limit:?}, backend down")));
    };
    let right = matches!(result, Err(Error::Unavailable { .. } | Error::Unknown));
    ensure!(right, "{what} with the backend down: got {result:?}");
    Ok(())
}

pub(in crate::testing) async fn the_client_recovers_with_its_backend(cx: &Context<'_>) -> Verdict {
    let ((first, second), key) = (cx.open_two().await, cx.key("k"));
    needs_backend(&first)?;
    let lock = cx.take(&first, &key, cx.lease()).await?;
    unlocked(first.unlock(&lock).await, "unlock before the backend goes")?;
    let token = lock.fencing_token();
    cx.fixture.backend_down().await?;
    let options = LockOptions::default().max_wait(cx.lease());
    let down = unavailable(cx, cx.lease(), "lock", second.lock(&key, options)).await;
    cx.fixture.backend_up().await?;
    down?;

    let limit = Instant::now() + cx.fixture.recovery();
    for handle in [&first, &second] {
        let next = loop {
            let options = LockOptions::default().duration(LONG).max_wait(cx.slack());
            match handle.lock(&key, options).await {
                Ok(next) => break next,
                Err(error) => {
                    ensure!(Instant::now() < limit, "lock after the return: got {error:?}");
                    sleep(cx.lease() / 10).await;
                }
            }
        };
        ensure!(next.fencing_token() > token, "the token did not rise");
        unlocked(handle.unlock(&next).await, "unlock after the return")?;
    }
    Ok(())
}

pub(in crate::testing) async fn closing_wakes_every_waiter(cx: &Context<'_>) -> Verdict {
    let tasks_before = Runtime::current().metrics().num_alive_tasks();
    let holder = cx.open().await;
    let closing = cx.open_alone().await;
    let (key, own) = (cx.key("k"), cx.key("own"));
    let held = cx.take(&holder, &key, LONG).await?;
    let mine = cx.take(&closing, &own, LONG).await?;
    let watch = closing.watch(&mine);
    let waiters: Vec<_> = (0..10).map(|_| cx.start(&closing, &key, patient())).collect();
    cx.nap().await;
    ensure!(!watch.is_lost(), "a lock was lost before the close");
    ensure!(
        !waiters.iter().any(Waiter::is_finished),
        "a lock of a held key did not wait: `Fixture::open_alone` must open the backend of `open`"
    );

    let limit = REQUEST_TIMEOUT + cx.slack();
    let closed = timeout(limit, closing.close()).await;
    ensure!(closed.is_ok(), "close has not ended within {limit:?}");
    for waiter in waiters {
        refused!(waiter.ended(cx.slack()).await?.0, Error::Closed, "a waiter of a closed handle");
    }
    let lost = timeout(cx.slack(), watch.lost()).await;
    ensure!(lost.is_ok(), "a watched lock was not lost at the close");
    every_call_is_closed(&closing, &key, &mine).await?;
    let again = timeout(cx.slack(), closing.close()).await;
    ensure!(again.is_ok(), "a second close has not ended");

    // Watched locks are unlocked by the close; the waiters have left the queue. First asked of a
    // handle of before, if it is another: `settle` may replace the backend.
    if !matches!(holder.inspect(&own).await, Err(Error::Closed)) {
        cx.must_be_free(&holder, &own, "watched by a closed handle").await?;
    }
    cx.fixture.settle().await;
    let other = cx.open().await;
    cx.must_be_free(&other, &own, "watched by a closed handle").await?;
    // Dropping a guard after the close is no error and no panic.
    closing.release(&mine);
    if holder.unlock(&held).await.is_ok() {
        cx.must_be_free(&other, &key, "waited for by a closed handle").await?;
    }
    drop((watch, closing));
    for handle in cx.opened() {
        cx.fixture.done(handle).await;
    }
    let limit = Instant::now() + cx.slack() + Duration::from_secs(5);
    loop {
        let tasks = Runtime::current().metrics().num_alive_tasks();
        if tasks <= tasks_before {
            return Ok(());
        }
        ensure!(Instant::now() < limit, "{tasks} tasks live, {tasks_before} did before");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A fixture may have one handle for all, and open that again.
async fn every_call_is_closed(handle: &Handle, key: &str, lock: &Lock) -> Verdict {
    let options = LockOptions::default();
    refused!(
        handle.lock(key, options).await,
        Error::Closed,
        "lock on a closed handle (if the fixture's handles are one, `settle` replaces it)"
    );
    refused!(handle.lock(key, at_once(LONG)).await, Error::Closed, "one attempt, closed handle");
    refused!(handle.unlock(lock).await, Error::Closed, "unlock on a closed handle");
    refused!(handle.extend(lock, LONG).await, Error::Closed, "extend on a closed handle");
    refused!(handle.inspect(key).await, Error::Closed, "inspect on a closed handle");
    Ok(())
}
