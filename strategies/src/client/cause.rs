//! Why a backend cannot serve, for all calls that it ends.

use std::sync::Arc;

use crate::{Error, UnavailableKind};

/// Why a backend cannot serve. Cheap to clone: one cause may end many calls.
#[derive(Clone, Debug)]
pub struct Cause {
    kind: UnavailableKind,
    text: Arc<str>,
}

impl Cause {
    /// A cause with its text, without a password.
    #[must_use]
    pub fn new(kind: UnavailableKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Whether repeating the request is of no use.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.kind == UnavailableKind::Misconfigured
    }

    /// The text for people.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The public error.
    #[must_use]
    pub fn to_error(&self) -> Error {
        Error::unavailable(self.kind, &*self.text)
    }
}
