//! Observations that clients leave for the simulation.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gaggle_strategies::{Lock, clock::Instant, implement::LossWatch, lock::Nonce};

use crate::history::{Call, Outcome};

/// Observations of clients, in order.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    seen: Mutex<Vec<Observation>>,
    stopped: AtomicBool,
    ops: AtomicU64,
    /// How often the granting side has lost its memory.
    forgotten: AtomicU64,
    /// How often that has happened, or a group was formed again.
    memories: AtomicU64,
    /// Nonces that a force-unlock was called for.
    forced: Mutex<BTreeSet<Nonce>>,
}

/// Names one call of `lock` and the use of its lock. The library generates the nonce, so the call
/// carries this name as its owner's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Op(u64);

/// Marks an operation under a given nonce.
const GIVEN: u64 = 1 << 63;

impl Op {
    /// The same number, for an operation whose caller gives its nonce.
    pub(super) const fn given(self) -> Self {
        Self(self.0 | GIVEN)
    }

    pub(super) fn label(self) -> String {
        format!("op {}", self.0)
    }

    /// The operation that took a lock under this label; none for a probe.
    pub(super) fn of_label(label: Option<&str>) -> Option<Self> {
        label?.strip_prefix("op ")?.parse().ok().map(Self)
    }

    /// How a history names it. A given nonce is this one.
    pub(super) const fn nonce(self) -> Nonce {
        match self.0 & GIVEN {
            0 => Nonce::from_u128(self.0 as u128),
            _ => Nonce::given(self.0 as u128),
        }
    }
}

/// A call, or a belief of a client.
#[derive(Debug)]
pub(super) enum Observation {
    Called {
        client: u32,
        key: Arc<str>,
        op: Op,
        call: Call,
    },
    Completed {
        client: u32,
        outcome: Completion,
    },
    /// The client relies on the lock from now on until its deadline, unless the watch fires.
    Holds {
        client: u32,
        op: Op,
        lock: Lock,
        watch: LossWatch,
    },
    Extends {
        client: u32,
        nonce: Nonce,
        deadline: Instant,
    },
    LetsGo {
        client: u32,
        nonce: Nonce,
    },
    /// The lock is about to be unlocked without waiting: watches in this process are notified
    /// before the request is sent.
    Releases {
        nonce: Nonce,
        token: u64,
    },
    /// An unlock has ended with `Ok`.
    Unlocked(Lock),
    /// The grant is about to be ended by an operator.
    Forces {
        key: Arc<str>,
        nonce: Nonce,
        token: u64,
    },
    /// Something that the contract forbids.
    Broken(String),
    /// A failure to recover after the faults, with any clocks before.
    Unhealed(String),
    /// Something rare that must happen sometimes.
    Reached(&'static str),
}

/// How a call ended; deadlines are on the client's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    Granted {
        token: u64,
        until: Instant,
    },
    Extended {
        until: Instant,
    },
    Otherwise(Outcome),
    /// The caller did not wait for the end.
    Cancelled,
    /// The outcome is as little known, and yet nothing was given up.
    Unknown,
}

impl Recorder {
    pub(super) fn note(&self, observation: Observation) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(observation);
    }

    pub(super) fn take(&self) -> Vec<Observation> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_empty() { Vec::new() } else { std::mem::take(&mut seen) }
    }

    /// The name of the next call of `lock`.
    pub(super) fn next_op(&self) -> Op {
        Op(self.ops.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The granting side has lost its memory.
    pub(super) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        self.begin_memory();
    }

    /// The granting side begins without a memory.
    pub(super) fn begin_memory(&self) {
        self.memories.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn memories(&self) -> u64 {
        self.memories.load(Ordering::Relaxed)
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    fn forces(&self) -> MutexGuard<'_, BTreeSet<Nonce>> {
        self.forced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A force-unlock of this nonce is called.
    pub(super) fn force(&self, nonce: Nonce) {
        self.forces().insert(nonce);
    }

    pub(super) fn is_forced(&self, nonce: Nonce) -> bool {
        self.forces().contains(&nonce)
    }

    /// Clients begin nothing new.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
