use std::time::Duration;

use super::{Action, Model, ModelKind, Mutex};

/// An owner-aware mutex; see [`ModelKind::Owner`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner;

impl Model for Owner {
    type State = Mutex;

    const KIND: ModelKind = ModelKind::Owner;

    fn step(
        &self,
        state: &Mutex,
        action: &Action,
        at: Duration,
        ghosts: &[Duration],
    ) -> Option<(Mutex, Duration)> {
        state.step(action, at, ghosts, |_, _| None)
    }
}
