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
    /// At most this long, 0 to 24 h; zero is one attempt.
    AtMost(Duration),
    /// Until granted or closed. A refusal or a limit ends the call as well. An outage does not, not
    /// even one that only an operator can end: it is logged.
    Forever,
}

impl From<Duration> for MaxWait {
    fn from(wait: Duration) -> Self {
        Self::AtMost(wait)
    }
}
