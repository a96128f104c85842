//! The tools of a case: handles, distinct keys, and short assertions.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{Fixture, Lacking, Outcome};
use crate::{
    error::Error,
    lock::{Inspection, Lock},
    mutex::KeyedMutex,
    options::LockOptions,
};

/// A handle, as a case uses it.
pub(super) type Handle = Arc<dyn KeyedMutex>;
/// The result of a case.
pub(super) type Verdict = Result<(), Stop>;

/// A lease that no case outlives.
pub(super) const LONG: Duration = Duration::from_secs(1_800);

/// The options of a single attempt, for this lease.
pub(super) fn at_once(lease: Duration) -> LockOptions {
    LockOptions::default().duration(lease).max_wait(Duration::ZERO)
}

/// Holds for very long, and waits for very long.
pub(super) fn patient() -> LockOptions {
    LockOptions::default().duration(LONG).max_wait(LONG)
}

/// Timers of different clocks of one machine may disagree by this much.
const ROUNDING: Duration = Duration::from_millis(5);

/// Why a case ended before its end.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(String),
    NotApplicable(&'static str),
    Untried(&'static str),
}

impl From<Lacking> for Stop {
    fn from(lacking: Lacking) -> Self {
        Self::Untried(lacking.0)
    }
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(what) => Self::Failed(what),
            Stop::NotApplicable(why) => Self::NotApplicable(why),
            Stop::Untried(why) => Self::Untried(why),
        }
    }
}

/// Ends the case as failed unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::testing::context::Stop::Failed(format!($($what)+)));
        }
    };
}

/// Ends the case as failed unless the result is this error.
macro_rules! refused {
    ($result:expr, $error:pat, $($what:tt)+) => {
        match $result {
            Err($error) => {}
            other => {
                let what = format!($($what)+);
                return Err($crate::testing::context::Stop::Failed(format!(
                    "{what}: expected {}, got {other:?}", stringify!($error)
                )));
            }
        }
    };
}

pub(super) use {ensure, refused};

/// A run of one case.
pub(super) struct Context<'a> {
    pub(super) fixture: &'a dyn Fixture,
    prefix: String,
    opened: Mutex<Vec<Handle>>,
}

impl<'a> Context<'a> {
    pub(super) fn new(fixture: &'a dyn Fixture, number: u8) -> Self {
        // Random, because a real server may remember an earlier run.
        let run: u32 = rand::random();
        Self { fixture, prefix: format!("conformance/{run:x}/{number}"), opened: Mutex::default() }
    }

    /// A key of this case's own.
    pub(super) fn key(&self, name: impl std::fmt::Display) -> String {
        format!("{}/{name}", self.prefix)
    }

    pub(super) async fn open(&self) -> Handle {
        let handle = self.fixture.open().await;
        self.keep(&handle);
        handle
    }

    pub(super) async fn open_alone(&self) -> Handle {
        let handle = self.fixture.open_alone().await;
        self.keep(&handle);
        handle
    }

    pub(super) async fn open_two(&self) -> (Handle, Handle) {
        (self.open().await, self.open().await)
    }

    pub(super) fn opened(&self) -> Vec<Handle> {
        std::mem::take(&mut self.opened.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, handle: &Handle) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(handle.clone());
    }

    pub(super) fn slack(&self) -> Duration {
        self.fixture.slack()
    }

    pub(super) fn lease(&self) -> Duration {
        self.fixture.lease()
    }

    /// Sleeps long enough for a request to have arrived, which is short against a lease.
    pub(super) async fn nap(&self) {
        sleep(self.lease() / 8).await;
    }

    /// Waits until the lease of a lock granted before now has ended: the granting side counted it
    /// from before the grant was known here, so a margin for the clocks is enough, and no slack.
    pub(super) async fn outlive(&self, lease: Duration) {
        sleep(lease + self.lease() / 4).await;
    }

    /// Takes a free key for `lease`, or fails the case.
    pub(super) async fn take(
        &self,
        handle: &Handle,
        key: &str,
        lease: Duration,
    ) -> Result<Lock, Stop> {
        let options = LockOptions::default().duration(lease).max_wait(self.slack());
        granted(handle.lock(key, options).await, "lock of a free key")
    }

    /// The key must be held: one attempt by `other` is refused.
    pub(super) async fn must_be_held(&self, other: &Handle, key: &str, when: &str) -> Verdict {
        refused!(other.lock(key, at_once(LONG)).await, Error::Held(_), "one attempt {when}");
        Ok(())
    }

    /// The key must be free, or become it within the slack. Returns the token of the grant, which
    /// is given back.
    pub(super) async fn must_be_free(
        &self,
        other: &Handle,
        key: &str,
        when: &str,
    ) -> Result<u64, Stop> {
        let options = LockOptions::default().duration(LONG).max_wait(self.slack());
        let lock = granted(other.lock(key, options).await, when)?;
        unlocked(other.unlock(&lock).await, when)?;
        Ok(lock.fencing_token())
    }

    /// Starts a lock in a separate task.
    pub(super) fn start(&self, handle: &Handle, key: &str, options: LockOptions) -> Waiter {
        let (handle, key) = (handle.clone(), key.to_owned());
        let task = tokio::spawn(async move {
            let result = handle.lock(&key, options).await;
            (result, Instant::now())
        });
        Waiter { task }
    }

    /// Waits until `waiters` wait on a held key, as an inspection shows it.
    pub(super) async fn queued(
        &self,
        handle: &Handle,
        key: &str,
        waiters: u64,
    ) -> Result<Inspection, Stop> {
        let limit = Instant::now() + self.slack() + Duration::from_secs(5);
        let mut last = None;
        while Instant::now() < limit {
            match handle.inspect(key).await {
                Ok(Some(seen)) if seen.waiters == waiters => return Ok(seen),
                seen => last = Some(seen),
            }
            sleep(Duration::from_millis(5)).await;
        }
        Err(Stop::Failed(format!("expected {waiters} waiters, the last inspection shows {last:?}")))
    }

    /// An inspection must show the key free and without waiters within the slack.
    pub(super) async fn must_show_free(&self, handle: &Handle, key: &str, when: &str) -> Verdict {
        let limit = Instant::now() + self.slack() + Duration::from_secs(5);
        loop {
            let seen = handle.inspect(key).await;
            if matches!(seen, Ok(None)) {
                return Ok(());
            }
            ensure!(Instant::now() < limit, "{when} an inspection shows {seen:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The rows that the granting side keeps now: none, unless an earlier case has failed.
    pub(super) async fn residue(&self) -> Result<u64, Stop> {
        let residue = self.fixture.residue().await;
        residue.ok_or(Stop::Untried("the fixture cannot count the residue"))
    }

    /// Waits until the granting side keeps at most `before`, for the time that the contract gives
    /// it.
    pub(super) async fn must_leave_nothing(&self, before: u64) -> Verdict {
        let limit = Instant::now() + self.fixture.sweep() + self.slack();
        loop {
            let residue = self.residue().await?;
            if residue <= before {
                return Ok(());
            }
            let (left, sweep) = (residue - before, self.fixture.sweep());
            ensure!(
                Instant::now() < limit,
                "{left} keys and waiters more than before are still kept after {sweep:?}: free and \
                 expired ones must leave within `Fixture::sweep`, and `Fixture::residue` must not \
                 count what the contract lets the granting side keep"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A lock call in a separate task, cancelled when dropped.
pub(super) struct Waiter {
    task: JoinHandle<(Result<Lock, Error>, Instant)>,
}

impl Waiter {
    pub(super) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// The result of the call and its time, if it returns within `limit`.
    pub(super) async fn ended(
        mut self,
        limit: Duration,
    ) -> Result<(Result<Lock, Error>, Instant), Stop> {
        match timeout(limit, &mut self.task).await {
            Err(_) => Err(Stop::Failed(format!("a lock call has not ended within {limit:?}"))),
            Ok(Err(panicked)) => Err(Stop::Failed(format!("a lock call panicked: {panicked}"))),
            Ok(Ok(ended)) => Ok(ended),
        }
    }

    /// The lock, if it is granted within `limit`.
    pub(super) async fn granted(self, limit: Duration, what: &str) -> Result<Lock, Stop> {
        granted(self.ended(limit).await?.0, what)
    }

    /// Drops the call at the await point where it is. Where it had returned a lock already, that
    /// is a lock like any other, and is given back.
    pub(super) async fn cancel(mut self, handle: &Handle) -> Verdict {
        self.task.abort();
        match (&mut self.task).await {
            Ok((Ok(lock), _)) => unlocked(handle.unlock(&lock).await, "unlock of a late grant"),
            _ => Ok(()),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The lock, or a failed case.
pub(super) fn granted(result: Result<Lock, Error>, what: &str) -> Result<Lock, Stop> {
    result.map_err(|error| Stop::Failed(format!("{what}: expected a lock, got {error:?}")))
}

/// An unlock must have succeeded.
pub(super) fn unlocked(result: Result<(), Error>, what: &str) -> Verdict {
    result.map_err(|error| Stop::Failed(format!("{what}: expected Ok of unlock, got {error:?}")))
}

/// Unlocks under load: where no reply came in time the unlock is repeated as it is, for
/// `patience`, as `Unknown` says.
pub(super) async fn give_back(
    handle: &Handle,
    lock: &Lock,
    patience: Duration,
    what: &str,
) -> Verdict {
    let limit = Instant::now() + patience;
    let mut unknown = false;
    loop {
        match handle.unlock(lock).await {
            Err(Error::Unknown) if Instant::now() < limit => unknown = true,
            Err(Error::Unavailable { .. }) if Instant::now() < limit => {}
            // The one of unknown outcome has freed it.
            Err(Error::NotHolder) if unknown => return Ok(()),
            result => return unlocked(result, what),
        }
    }
}

/// From `started` to `ended` at least `wanted` and at most `slack` more must have passed.
pub(super) fn took(
    started: Instant,
    ended: Instant,
    wanted: Duration,
    slack: Duration,
    what: &str,
) -> Verdict {
    let took = ended - started;
    ensure!(took + ROUNDING >= wanted, "{what} took {took:?}, less than {wanted:?}");
    ensure!(took <= wanted + slack, "{what} took {took:?}, more than {wanted:?} and {slack:?}");
    Ok(())
}

/// How long the holder may still rely on the lock.
pub(super) fn remaining(handle: &Handle, lock: &Lock) -> Result<Duration, Stop> {
    let deadline =
        lock.deadline().ok_or_else(|| Stop::Failed("a granted lock has no deadline".into()))?;
    Ok(deadline.since(handle.clock().now()))
}

/// Another acquisition was just granted: the former holder must have given up before (rule 2).
pub(super) fn given_up(handle: &Handle, former: &Lock) -> Verdict {
    let left = remaining(handle, former)?;
    ensure!(left.is_zero(), "granted while the former holder relied on its lock for {left:?} more");
    Ok(())
}
