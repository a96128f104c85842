//! The protected resources, and the requests: a counter without and one with a check of fencing
//! tokens (Jepsen's second lock workload).
//!
//! Served on a Unix socket, which reaches into every network namespace and listens on no network.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    protocol::{Reply, Request, Resource},
    signals::{self, Signal},
    worker::now,
};

/// A counter, and its statistics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Protected {
    /// How many updates it has.
    pub(crate) value: u64,
    greatest: u64,
    pub(crate) applied: u64,
    /// Refused writes: each would have been a lost update, or may have been.
    pub(crate) refused: u64,
    /// Updates that a later write undid.
    pub(crate) lost: u64,
}

impl Protected {
    /// A read is a sighting of its token: a write of an older holder that arrived between the read
    /// and the write of a newer one would be lost otherwise.
    fn get(&mut self, token: u64) -> u64 {
        self.greatest = self.greatest.max(token);
        self.value
    }

    fn put(&mut self, checked: bool, token: u64, value: u64) -> Reply {
        if checked && token < self.greatest {
            self.refused += 1;
            return Reply::Stale;
        }
        self.greatest = self.greatest.max(token);
        // Every write is one increment: every missing one was another's.
        self.lost += (self.value + 1).saturating_sub(value);
        self.applied += 1;
        self.value = value;
        Reply::Written
    }
}

/// A fault of the next process that has read everything and not yet written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    Stop,
    Kill,
    /// The store runs, but the reply to its last read comes only after [`Store::release`].
    Hold,
}

/// A process in the trap: signalled between its reads and its writes, and so holding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trapped {
    pub(crate) pid: u32,
    /// Just before the signal.
    pub(crate) at: u64,
}

#[derive(Default)]
struct State {
    resources: BTreeMap<Resource, Protected>,
    trap: Option<Trap>,
    /// The processes that have begun to read since the trap was set.
    reading: BTreeSet<u32>,
    trapped: Option<Trapped>,
    holding: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Serves the resources until it is dropped.
pub(crate) struct Store {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Store {
    /// Listens at `path`.
    pub(crate) fn serve(path: &Path) -> Self {
        let shared = Arc::new(Shared::default());
        for resource in Resource::ALL {
            shared.lock().resources.insert(resource, Protected::default());
        }
        let listener = UnixListener::bind(path).unwrap();
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), shared) = (stream, serving.clone()) else { return };
                // The last connection is that of `Drop`.
                if Arc::strong_count(&shared) == 2 {
                    return;
                }
                std::thread::spawn(move || shared.converse(&stream));
            }
        });
        Self { shared, path: path.to_owned() }
    }

    pub(crate) fn seen(&self, resource: Resource) -> Protected {
        self.shared.lock().resources[&resource].clone()
    }

    /// Sets the trap for the next holder. A process that has already read is not trapped: its read
    /// may be older than the last write, so that its own write would undo an update from before the
    /// trap.
    pub(crate) fn trap(&self, trap: Trap) {
        let mut state = self.shared.lock();
        state.trap = Some(trap);
        state.reading.clear();
        state.trapped = None;
    }

    /// Waits for the trap to close; it is taken away where it does not within `bound`.
    pub(crate) fn trapped(&self, bound: Duration) -> Option<Trapped> {
        let state = self.shared.lock();
        let waiting = |state: &mut State| state.trapped.is_none();
        let (mut state, _) = self.shared.changed.wait_timeout_while(state, bound, waiting).unwrap();
        state.trap = None;
        state.trapped.take()
    }

    /// Replies the read that [`Trap::Hold`] holds back.
    pub(crate) fn release(&self) {
        self.shared.lock().holding = false;
        self.shared.changed.notify_all();
    }

    /// Waits until `is` holds of a resource; says whether it came to that within `bound`.
    pub(crate) fn wait(
        &self,
        resource: Resource,
        bound: Duration,
        is: impl Fn(&Protected) -> bool,
    ) -> bool {
        let state = self.shared.lock();
        let waiting = |state: &mut State| !is(&state.resources[&resource]);
        !self.shared.changed.wait_timeout_while(state, bound, waiting).unwrap().1.timed_out()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.release();
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn converse(&self, stream: &UnixStream) {
        let mut replies = stream;
        let mut pid = 0;
        // A process that is killed may leave half a line behind.
        for line in BufReader::new(stream).lines() {
            let Ok(request) = serde_json::from_str(&line.unwrap_or_default()) else { return };
            let reply = match request {
                Request::Hello { pid: said } => {
                    pid = said;
                    continue;
                }
                Request::Get { resource, token } => {
                    let mut state = self.lock();
                    if Some(&resource) == Resource::ALL.first() {
                        state.reading.insert(pid);
                    }
                    let value = state.resources.get_mut(&resource).unwrap().get(token);
                    drop(state);
                    if Some(&resource) == Resource::ALL.last() {
                        self.spring(pid);
                    }
                    Reply::Value(value)
                }
                Request::Put { resource, token, value } => {
                    let mut state = self.lock();
                    let protected = state.resources.get_mut(&resource).unwrap();
                    let reply = protected.put(resource.is_checked(), token, value);
                    self.changed.notify_all();
                    reply
                }
            };
            let mut line = serde_json::to_vec(&reply).unwrap();
            line.push(b'\n');
            if replies.write_all(&line).is_err() {
                return;
            }
        }
    }

    /// Signals the process that has read everything, if the trap is for it.
    fn spring(&self, pid: u32) {
        let mut state = self.lock();
        let Some(trap) = state.trap.filter(|_| state.reading.contains(&pid)) else { return };
        state.trap = None;
        drop(state);
        let at = now();
        match trap {
            Trap::Stop => signals::stop(pid),
            Trap::Kill => signals::send(pid, Signal::KILL),
            Trap::Hold => self.lock().holding = true,
        }
        let mut state = self.lock();
        state.trapped = Some(Trapped { pid, at });
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.holding).unwrap());
    }
}
