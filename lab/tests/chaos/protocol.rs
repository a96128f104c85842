//! The messages between parent and worker: one JSON object a line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The environment variable that makes this binary a worker; it holds an [`Assignment`].
pub(crate) const ASSIGNMENT: &str = "GAGGLE_CHAOS_WORKER";

/// The key that all workers contend for.
pub(crate) const KEY: &str = "chaos";

/// The identity and strategy of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// The name of the worker, and of its member if it is one.
    pub(crate) name: String,
    /// The number of this process among all of a scenario.
    pub(crate) instance: u32,
    /// The socket of the protected resources.
    pub(crate) store: PathBuf,
    /// The URL of its strategy.
    pub(crate) url: String,
}

/// From the parent, on the worker's stdin. The stream's end ends the worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Lock, change the resources, unlock, and repeat until `Halt`.
    Run(Work),
    /// Finish the current sections.
    Halt,
    Status,
    Inspect {
        key: String,
    },
    /// Close the strategy and end.
    Close,
}

/// How to work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) key: String,
    pub(crate) lease_ms: u64,
    pub(crate) max_wait_ms: u64,
    /// Between the reads and the writes.
    pub(crate) work_ms: u64,
    /// How many loops run side by side in the process.
    pub(crate) tasks: u32,
}

/// From a worker, on its stdout. Times are nanoseconds of the boot clock, which all processes of
/// a host share, in every network namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    Up,
    Asked {
        op: u32,
        at: u64,
    },
    Granted {
        op: u32,
        at: u64,
        token: u64,
        deadline: u64,
    },
    Refused {
        op: u32,
        error: String,
    },
    /// The guard said that it is lost.
    Lost {
        op: u32,
        at: u64,
    },
    /// Everything is written; or the checked resources refused their part.
    Wrote {
        op: u32,
        at: u64,
    },
    Unlocking {
        op: u32,
        at: u64,
    },
    Unlocked {
        op: u32,
        at: u64,
        outcome: Outcome,
    },
    Halted,
    Status {
        ready: bool,
        leads: bool,
        leader: Option<String>,
    },
    Inspected {
        free: Option<bool>,
    },
    Closed,
}

/// How an unlock ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Ok,
    NotHolder,
    Expired,
    Other(String),
}

/// From a worker to the protected resources.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Hello { pid: u32 },
    Get { resource: Resource, token: u64 },
    Put { resource: Resource, token: u64, value: u64 },
}

/// And back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Value(u64),
    Written,
    /// The token is smaller than the greatest seen.
    Stale,
}

/// A resource that the lock protects. The checked one looks at the token, the other does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Resource {
    Counter,
    CheckedCounter,
}

impl Resource {
    /// In the order in which workers read them.
    pub(crate) const ALL: [Self; 2] = [Self::Counter, Self::CheckedCounter];

    pub(crate) fn is_checked(self) -> bool {
        self == Self::CheckedCounter
    }
}
