//! The guarantees of a strategy, as values.

/// The guarantees of a strategy, in the terms of the contract.
///
/// ```
/// use gaggle_strategies::{KeyedMutex, Local, capabilities::{Exclusion, Order}};
///
/// let capabilities = Local::new().capabilities();
/// assert_eq!((capabilities.exclusion, capabilities.order), (Exclusion::Always, Order::Fifo));
/// assert!(!capabilities.distributed);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The strategy's name, as in a URL: `local`, `redis`, `http`, `raft`, `gaggle`, `noop`.
    pub strategy: &'static str,
    /// When at most one live lease exists per key, in the view of the granting side.
    pub exclusion: Exclusion,
    /// In which order waiters are granted.
    pub order: Order,
    /// Which losses leave the locks in place.
    pub survives: Survives,
    /// Whether processes other than this one take part.
    pub distributed: bool,
    /// Whether a call made before a leader exists waits for one, within `max_wait`.
    pub waits_for_leader: bool,
    /// Whether a holder is notified, with the note of the operator, when another process ends its
    /// lock. If not, its next extend finds out, or its local deadline passes.
    pub notifies_forced: bool,
}

impl Capabilities {
    /// No guarantee at all, for a strategy of this name. Set the fields of the guarantees it gives.
    #[must_use]
    pub const fn none(strategy: &'static str) -> Self {
        Self {
            strategy,
            exclusion: Exclusion::Never,
            order: Order::None,
            survives: Survives::Nothing,
            distributed: false,
            waits_for_leader: false,
            notifies_forced: false,
        }
    }
}

/// When exclusion holds.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// Always, within the bound on clock rates.
    Always,
    /// While the server keeps its memory (no restart, failover, eviction, flush) and its wall
    /// clock is neither stepped nor slewed beyond the drift bound.
    WhileServerKeepsMemory,
    /// Never: for tests of tests.
    Never,
}

/// In which order waiters are granted.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come, first served, among waiters that are still alive.
    Fifo,
    /// No order is promised.
    None,
}

/// Which losses leave the locks in place.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// Locks live and die with this process.
    Nothing,
    /// The loss of any client, not of the server.
    AnyClient,
    /// The loss of less than half of the members.
    Minority,
}
