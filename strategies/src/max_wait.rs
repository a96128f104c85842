//! How long a lock request waits.

use std::time::Duration;

/// How long `lock` waits for a key that another acquisition holds.
///
/// ```
/// use gaggle_strategies::{LockOptions, MaxWait};
///
/// let options = LockOptions::default().max_wait(MaxWait::Forever);
/// assert_eq!(options.get_max_wait(), MaxWait::Forever);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxWait {
    /// Waits at most this long, 0 to 24 h; zero is one attempt.
    AtMost(Duration),
    /// Waits until the key is granted or the strategy closed. A refusal or a limit ends the call as
    /// well. An outage is logged and does not end it, even if only an operator can end the outage.
    Forever,
}

impl From<Duration> for MaxWait {
    fn from(wait: Duration) -> Self {
        Self::AtMost(wait)
    }
}
