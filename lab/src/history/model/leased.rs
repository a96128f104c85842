//! The model of a lock with leases.

use std::time::Duration;

use super::{Action, Hold, Model, ModelKind, Mutex};

/// A lock with leases; see [`ModelKind::Leased`].
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::history) struct Leased;

impl Model for Leased {
    type State = Mutex;

    const KIND: ModelKind = ModelKind::Leased;

    fn step(&self, state: &Mutex, action: &Action, at: Duration) -> Option<(Mutex, Duration)> {
        state.step(action, at, expires)
    }
}

/// From its deadline on.
pub(super) fn expires(hold: &Hold, at: Duration) -> Duration {
    at.max(hold.until)
}
