//! Ends a run of the suite that hangs: a strategy that never yields blocks its runtime, timeouts
//! included, so that only another thread can report it.

use std::{
    io::Write,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// The status with which the process ends, as that of a panic.
const EXIT_STATUS: i32 = 101;

/// Watches one case until it is dropped.
pub(super) struct Watchdog {
    thread: Option<thread::JoinHandle<()>>,
    done: Option<mpsc::Sender<()>>,
}

impl Watchdog {
    /// Ends the process with a message that names `case`, unless dropped within `limit` of real
    /// time.
    pub(super) fn start(case: String, limit: Duration) -> Self {
        let (done, ended) = mpsc::channel::<()>();
        let watch = move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Past the output capture of the test harness, which would lose it.
                let _ = writeln!(
                    std::io::stderr(),
                    "conformance case {case}: not finished after {limit:?} of real time; \
                     the strategy blocks its thread, or a task of it never ends, or it is too slow: \
                     Fixture::time_limit, keys and waiters bound the work"
                );
                std::process::exit(EXIT_STATUS);
            }
        };
        Self { thread: Some(thread::spawn(watch)), done: Some(done) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
