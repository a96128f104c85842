//! The model of a queue of leases.

use std::time::Duration;

use super::{Action, Model, ModelKind, Mutex, leased::expires};

/// A queue of leases; see [`ModelKind::Queued`].
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::history) struct Queued;

/// The holder, and the invocation of the latest grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::history) struct State {
    mutex: Mutex,
    /// The latest invocation of all granted so far. A waiter that was queued before it and is
    /// granted later was overtaken.
    latest_asked: Duration,
}

impl Model for Queued {
    type State = State;

    const KIND: ModelKind = ModelKind::Queued;

    fn step(&self, state: &State, action: &Action, at: Duration) -> Option<(State, Duration)> {
        let mut latest_asked = state.latest_asked;
        if let Action::Grant { acquisition, asked, queued, .. } = *action {
            // A repetition that finds its grant had its turn before.
            let first = !state.mutex.holds(acquisition);
            if first && queued.is_some_and(|queued| queued < latest_asked) {
                return None;
            }
            latest_asked = latest_asked.max(asked);
        }
        let (mutex, at) = state.mutex.step(action, at, expires)?;
        Some((State { mutex, latest_asked }, at))
    }
}
