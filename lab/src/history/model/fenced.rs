//! The model of a lock whose tokens rise.

use std::time::Duration;

use super::{Action, Model, ModelKind, Mutex};

/// A lock whose tokens rise; see [`ModelKind::Fenced`].
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::history) struct Fenced;

/// The present holder, and the token of the last grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::history) struct State {
    mutex: Mutex,
    last_token: u64,
}

impl Model for Fenced {
    type State = State;

    const KIND: ModelKind = ModelKind::Fenced;

    fn step(&self, state: &State, action: &Action, at: Duration) -> Option<(State, Duration)> {
        let mut last_token = state.last_token;
        match *action {
            Action::Grant { acquisition, token, .. } if state.mutex.holds(acquisition) => {
                state.mutex.hold.filter(|hold| hold.token == Some(token))?;
            }
            Action::Grant { token, .. } | Action::Ghost { token: Some(token), .. } => {
                if token <= last_token {
                    return None;
                }
                last_token = token;
            }
            _ => {}
        }
        let (mutex, at) = state.mutex.step(action, at, |_, at| at)?;
        Some((State { mutex, last_token }, at))
    }
}
