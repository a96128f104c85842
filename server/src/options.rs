//! The limits of a service.

use std::time::Duration;

use gaggle::strategies::limits::DURATION_MAX;

/// The limits of a [`Service`](crate::Service).
///
/// ```
/// use std::time::Duration;
///
/// let options = gaggle_server::Options::default().max_ttl(Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) max_ttl: Duration,
    pub(crate) waiting_max: usize,
    pub(crate) claims_per_token: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_ttl: DURATION_MAX, waiting_max: 16_384, claims_per_token: 65_536 }
    }
}

impl Options {
    /// Sets the longest ttl, 24 h by default. A group must have at least this `outside_max`.
    #[must_use]
    pub fn max_ttl(self, max_ttl: Duration) -> Self {
        Self { max_ttl, ..self }
    }

    /// Sets how many claims may wait, 16,384 by default.
    #[must_use]
    pub fn waiting_max(self, waiting_max: usize) -> Self {
        Self { waiting_max, ..self }
    }

    /// Sets how many claims of one token may wait or be active, 65,536 by default.
    #[must_use]
    pub fn claims_per_token(self, claims_per_token: usize) -> Self {
        Self { claims_per_token, ..self }
    }
}
