//! An EXTEND or an INSPECT until it is answered or its caller's time is over.

use std::sync::Arc;

use super::{
    call::{CallId, ExtendCall},
    command::Command,
    pace::Attempts,
    schedule::Due,
};
use crate::Instant;

/// A request that names one call, and is abandoned with it.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) what: What,
    pub(super) attempts: Attempts,
    pub(super) first_sent: Option<Instant>,
    pub(super) due: Due,
    pub(super) end: Due,
}

#[derive(Debug)]
pub(super) enum What {
    Extend(ExtendCall),
    Inspect { id: CallId, key: Arc<str> },
}

impl Query {
    pub(super) fn new(what: What) -> Self {
        Self {
            what,
            attempts: Attempts::default(),
            first_sent: None,
            due: Due::default(),
            end: Due::default(),
        }
    }

    pub(super) fn command(&self) -> Command {
        match &self.what {
            What::Extend(ExtendCall { id, lock, lease, .. }) => Command::Extend {
                id: *id,
                nonce: lock.nonce(),
                key: lock.key().clone(),
                token: lock.fencing_token(),
                lease: *lease,
            },
            What::Inspect { id, key } => Command::Inspect { id: *id, key: key.clone() },
        }
    }
}
