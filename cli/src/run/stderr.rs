//! Standard error of `gaggle run`, written by a separate thread. A reader that stalls must not
//! delay an extension of the lease or a forwarded signal.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Write},
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};

/// The most writes that are queued; later ones are dropped.
const WRITES_MAX: usize = 1024;

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), is_writing: false });
static CHANGED: Condvar = Condvar::new();
/// Whether the thread runs.
static STARTED: OnceLock<bool> = OnceLock::new();

struct Queue {
    waiting: VecDeque<Vec<u8>>,
    is_writing: bool,
}

impl Queue {
    fn is_written(&self) -> bool {
        self.waiting.is_empty() && !self.is_writing
    }
}

/// Each write is queued whole. No write fails: a closed standard error does not end the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let start = || thread::Builder::new().name("stderr".into()).spawn(write_all).is_ok();
        if !STARTED.get_or_init(start) {
            // The system gives no thread.
            write_whole(bytes);
            return Ok(bytes.len());
        }
        let mut queue = queue();
        if queue.waiting.len() < WRITES_MAX {
            queue.waiting.push_back(bytes.to_vec());
            CHANGED.notify_all();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stderr {
    /// Waits until everything is written, and no longer than `most`.
    pub(super) fn settle(self, most: Duration) {
        let _ = CHANGED.wait_timeout_while(queue(), most, |queue| !queue.is_written());
    }

    /// Completes when everything is written.
    pub(super) async fn written(self) {
        while !queue().is_written() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_all() {
    // The other threads handle signals. With SIGTTOU blocked, a write from the background does not
    // stop the process.
    let _ = SigSet::all().thread_block();
    loop {
        let waiting = CHANGED.wait_while(queue(), |queue| queue.waiting.is_empty());
        let mut queue = waiting.unwrap_or_else(PoisonError::into_inner);
        let bytes = queue.waiting.pop_front().unwrap_or_default();
        queue.is_writing = true;
        drop(queue);
        write_whole(&bytes);
        self::queue().is_writing = false;
        CHANGED.notify_all();
    }
}

/// Waits for space also where the parent has made the stream non-blocking.
fn write_whole(mut bytes: &[u8]) {
    let stderr = io::stderr();
    while !bytes.is_empty() {
        match (&stderr).write(bytes) {
            Ok(count) if count > 0 => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => break,
        }
    }
}
