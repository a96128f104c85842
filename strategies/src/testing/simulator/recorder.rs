use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{Error, Instant, Lock, LossWatch, Nonce};

/// What clients tell the simulation, in the order in which it happened.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    seen: Mutex<Vec<Observation>>,
    stopped: AtomicBool,
}

/// A call, or what a client believes.
#[derive(Debug)]
pub(super) enum Observation {
    Called {
        client: u64,
        key: Arc<str>,
        nonce: Nonce,
        call: Called,
    },
    Answered {
        client: u64,
        outcome: Answered,
    },
    /// The client relies on the lock from now on until its deadline, unless the watch fires.
    Holds {
        client: u64,
        lock: Lock,
        watch: LossWatch,
    },
    Extends {
        client: u64,
        nonce: Nonce,
        deadline: Instant,
    },
    LetsGo {
        client: u64,
        nonce: Nonce,
    },
    /// Something that the contract forbids.
    Broken(String),
    /// Something rare that must happen sometimes.
    Reached(&'static str),
}

/// What a client asks for; times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    Lock { duration_ms: u64, wait_ms: Option<u64> },
    Unlock,
    Extend { duration_ms: u64 },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Granted {
        token: u64,
        until: Instant,
    },
    Done,
    Extended {
        until: Instant,
    },
    /// Without effect.
    Refused(&'static str),
    /// Perhaps with effect.
    Unknown(&'static str),
    /// The caller did not wait for the end.
    Cancelled,
}

impl Recorder {
    pub(super) fn note(&self, observation: Observation) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(observation);
    }

    pub(super) fn take(&self) -> Vec<Observation> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_empty() { Vec::new() } else { std::mem::take(&mut seen) }
    }

    /// Clients begin nothing new.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl Answered {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Held => Self::Refused("held"),
            Error::NotHolder => Self::Refused("not holder"),
            Error::Expired => Self::Refused("expired"),
            Error::Spent => Self::Refused("spent"),
            Error::Limit { .. } => Self::Refused("limit"),
            // A withdrawal was sent; until it lands the key may be taken in the nonce's name.
            Error::TimedOut => Self::Unknown("timed out"),
            Error::Unavailable { .. } => Self::Unknown("unavailable"),
            Error::Unknown => Self::Unknown("unknown"),
            Error::Closed => Self::Unknown("closed"),
            Error::Failed { .. } => Self::Unknown("failed"),
            _ => Self::Refused("invalid"),
        }
    }
}
