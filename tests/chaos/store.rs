//! The protected resources, and the requests: a counter and a set, each without and with a check
//! of fencing tokens (Jepsen's second and third lock workloads).
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
    protocol::{Reply, Request, Resource, Value},
    signals::{self, Signal},
    worker::now,
};

/// The longest set that is sent about.
const ELEMENTS_MAX: usize = 500;

/// The value of one resource, and its statistics.
#[derive(Clone, Debug)]
pub(crate) struct Protected {
    value: Value,
    /// Elements that were safe when the set grew too long to be sent about: a long run would do
    /// nothing but carry them.
    archived: BTreeSet<u64>,
    greatest: u64,
    pub(crate) applied: u64,
    /// Refused writes: each would have been a lost update, or may have been.
    pub(crate) refused: u64,
    /// Updates that a later write undid.
    pub(crate) lost: u64,
    /// Writes after which something was missing that had been there.
    pub(crate) backwards: u64,
}

impl Protected {
    pub(crate) fn new(resource: Resource) -> Self {
        let value = resource.initial();
        Self {
            value,
            archived: BTreeSet::new(),
            greatest: 0,
            applied: 0,
            refused: 0,
            lost: 0,
            backwards: 0,
        }
    }

    /// A read is a sighting of its token: a write of an older holder that arrived between the read
    /// and the write of a newer one would be lost otherwise.
    pub(crate) fn get(&mut self, token: u64) -> Value {
        self.greatest = self.greatest.max(token);
        self.value.clone()
    }

    pub(crate) fn put(&mut self, checked: bool, token: u64, mut value: Value) -> Reply {
        if checked && token < self.greatest {
            self.refused += 1;
            return Reply::Stale;
        }
        self.greatest = self.greatest.max(token);
        if let Value::Elements(elements) = &mut value {
            elements.retain(|element| !self.archived.contains(element));
        }
        let lost = match (&self.value, &value) {
            // Every write is one increment: every missing one was another's.
            (Value::Count(before), Value::Count(after)) => (before + 1).saturating_sub(*after),
            (Value::Elements(before), Value::Elements(after)) => {
                u64::try_from(before.difference(after).count()).unwrap()
            }
            _ => panic!("a value of another kind was written"),
        };
        self.lost += lost;
        self.backwards += u64::from(lost > 0);
        self.applied += 1;
        self.value = value;
        if let Value::Elements(elements) = &mut self.value
            && elements.len() >= ELEMENTS_MAX
        {
            self.archived.append(elements);
        }
        Reply::Written
    }

    /// How many updates are in the value.
    pub(crate) fn present(&self) -> u64 {
        match &self.value {
            Value::Count(count) => *count,
            Value::Elements(elements) => {
                u64::try_from(elements.len() + self.archived.len()).unwrap()
            }
        }
    }
}

/// A fault of the next process that has read everything and not yet written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    Stop,
    Kill,
    /// It runs, but the reply to its last read comes only after [`Store::release`].
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
            shared.lock().resources.insert(resource, Protected::new(resource));
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
