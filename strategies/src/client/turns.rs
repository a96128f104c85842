//! Where a driver takes its turns: on its task, and on every thread that releases a lock.

#[cfg(test)]
#[cfg(feature = "raft")]
mod interleavings;

use std::{
    cell::Cell,
    future::poll_fn,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
    task::{Context, Poll},
};

use tokio::task::{consume_budget, yield_now};

use super::{backend::Backend, driver::Driver};
use crate::{
    clock::Clock,
    sync::{Mutex, MutexGuard},
};

thread_local! {
    /// Whether this thread is in a turn. A turn runs wakers, which may be any code.
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// A driver that one thread at a time uses.
///
/// A thread that drops a guard takes the turn itself. The UNLOCK has then left the process when the
/// drop returns, although the driver's task may never run again. No turn waits for I/O, so a thread
/// waits for at most one turn of another thread.
pub(super) struct Turns<B: Backend> {
    /// `None` before it runs, and once it has ended.
    driver: Mutex<Option<Driver<B>>>,
}

impl<B: Backend> Turns<B> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { driver: Mutex::new(None) })
    }

    /// Runs the driver until it is closed, until every handle is dropped, or until the backend
    /// fails. Dropping the future ends it too.
    pub(super) fn run(self: &Arc<Self>, driver: Driver<B>) -> impl Future<Output = ()> + use<B> {
        let clock = driver.clock();
        self.put(driver);
        let running = DropDriver(self.clone());
        async move {
            running.0.drive(&*clock).await;
            if let Some(driver) = running.0.take() {
                driver.end().await;
            }
        }
    }

    /// Takes a turn on this thread if the mailbox has mail. Without a driver, or within a turn, the
    /// mail waits for the driver's task.
    pub(super) fn take_turn(&self) {
        let Some(_turn) = InTurn::begin() else { return };
        if let Some(driver) = &mut *self.lock() {
            // Wakers, recorders and subscribers are foreign code, and a drop must not panic.
            let _ = catch_unwind(AssertUnwindSafe(|| driver.step_on_caller()));
        }
    }

    /// Waits for arrivals, mail and the time, and takes a turn for each.
    async fn drive(&self, clock: &dyn Clock) {
        // Kept over turns unless a turn must come sooner: an early timer costs less than a new
        // timer for every call.
        let mut sleep = None;
        let mut wake = None;
        loop {
            let Some((next, polling)) = self.with(Driver::plan) else { return };
            if sleep.is_none() || wake.is_none_or(|wake| next < wake) {
                (wake, sleep) = (Some(next), Some(clock.sleep_until(next)));
            }
            let slept = sleep.as_mut().expect("it was just set");
            let flow = tokio::select! {
                biased;
                flow = poll_fn(|context| self.poll_step(context)) => flow,
                () = slept => {
                    sleep = None;
                    self.with(Driver::step).unwrap_or(ControlFlow::Break(()))
                }
                () = yield_now(), if polling => {
                    self.with(Driver::poll_again);
                    continue;
                }
            };
            if flow.is_break() {
                return;
            }
            // A server that sends without end leaves time to the other tasks of this thread.
            consume_budget().await;
            if self.with(Driver::has_taken_batch) == Some(true) {
                // Under load there is always more mail, and tasks woken in this turn may need this
                // thread.
                yield_now().await;
            }
        }
    }

    /// Takes a turn if something has arrived; the wait and the turn are one step, so that no mail
    /// is outside the mailbox and not yet sent.
    fn poll_step(&self, context: &mut Context<'_>) -> Poll<ControlFlow<()>> {
        match self.with(|driver| driver.poll_step(context)) {
            Some(poll) => poll,
            None => Poll::Ready(ControlFlow::Break(())),
        }
    }

    fn with<T>(&self, of: impl FnOnce(&mut Driver<B>) -> T) -> Option<T> {
        let mut driver = self.lock();
        let _turn = InTurn::begin();
        driver.as_mut().map(of)
    }

    fn put(&self, driver: Driver<B>) {
        *self.lock() = Some(driver);
    }

    /// Ends the turns. The caller drops the driver, without the mutex.
    fn take(&self) -> Option<Driver<B>> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Driver<B>>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the driver with its task.
struct DropDriver<B: Backend>(Arc<Turns<B>>);

impl<B: Backend> Drop for DropDriver<B> {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// Marks this thread as in a turn.
struct InTurn;

impl InTurn {
    /// `None` if this thread is in a turn already.
    fn begin() -> Option<Self> {
        (!IN_TURN.replace(true)).then_some(Self)
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        IN_TURN.set(false);
    }
}
