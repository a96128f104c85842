//! The events of a simulation.

use std::task::Waker;

use bytes::Bytes;
use gaggle_channels::{NodeName, Received};

use super::{network::Ways, redis::ServerEvent};

/// An event, with its data.
pub(super) enum Event {
    Frame { to: usize, from: usize, name: NodeName, frame: Bytes },
    Link { to: usize, received: Received },
    Turn { slot: usize, run: u64 },
    Wake { slot: usize },
    Sleeper(Waker),
    Fault(Fault),
    Cut(Ways),
    Reconnect(Ways),
    Slow { slot: usize, times: u64 },
    Resume { slot: usize, run: u64 },
    Start { slot: usize },
    Rate { slot: usize, rate: u64 },
    Server(ServerEvent),
}

/// The kinds of faults that come at separate times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Partition,
    Slow,
    Pause,
    Crash,
    CrashAll,
    Leave,
    Transfer,
    Drift,
    Restore,
    ClientDeath,
    Cut,
    FlushScripts,
    Full,
    Standstill,
    ServerRestart,
    MemoryLoss,
    Failover,
    Flushed,
}

impl Fault {
    /// All kinds.
    pub(super) const ALL: [Self; 18] = [
        Self::Partition,
        Self::Slow,
        Self::Pause,
        Self::Crash,
        Self::CrashAll,
        Self::Leave,
        Self::Transfer,
        Self::Drift,
        Self::Restore,
        Self::ClientDeath,
        Self::Cut,
        Self::FlushScripts,
        Self::Full,
        Self::Standstill,
        Self::ServerRestart,
        Self::MemoryLoss,
        Self::Failover,
        Self::Flushed,
    ];
}
