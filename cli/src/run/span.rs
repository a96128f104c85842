//! Durations of options: a whole number and its unit.

use std::time::Duration;

use gaggle::MaxWait;
use gaggle_strategies::limits::{DURATION_MAX, MAX_WAIT_MAX};

const HOUR: Duration = Duration::from_secs(60 * 60);
/// The shortest lease: a command needs time to start.
const LEASE_MIN: Duration = Duration::from_millis(100);
const MAX_HOLD_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// `--duration`.
pub(super) fn lease(text: &str) -> Result<Duration, String> {
    within(text, LEASE_MIN, DURATION_MAX)
}

/// `--max-wait`.
pub(super) fn max_wait(text: &str) -> Result<MaxWait, String> {
    if text == "forever" {
        return Ok(MaxWait::Forever);
    }
    let wait = within(text, Duration::ZERO, MAX_WAIT_MAX);
    wait.map(MaxWait::AtMost).map_err(|problem| problem + ", or forever")
}

/// `--max-hold`.
pub(super) fn max_hold(text: &str) -> Result<Duration, String> {
    within(text, LEASE_MIN, MAX_HOLD_MAX)
}

/// `--at-least`, the longest lease.
pub(super) fn at_least(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, DURATION_MAX)
}

/// `--kill-after`, whose upper limit is another option, and `--older-than`.
pub(crate) fn any(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, MAX_HOLD_MAX)
}

fn within(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let span = parse(text).filter(|span| (min..=max).contains(span));
    let limit = || format!("{} to {}", show(min), show(max));
    span.ok_or_else(|| format!("give a whole number with ms, s, m or h, {}", limit()))
}

fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ms).map(Duration::from_millis)
}

/// The duration as an option takes it.
pub(super) fn show(span: Duration) -> String {
    let (seconds, ms) = (span.as_secs(), span.as_millis());
    if span.subsec_millis() > 0 {
        format!("{ms}ms")
    } else if span > HOUR && seconds.is_multiple_of(HOUR.as_secs()) {
        format!("{}h", seconds / HOUR.as_secs())
    } else {
        format!("{seconds}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_is_a_whole_number_with_its_unit() {
        for (text, ms) in [("100ms", 100), ("5s", 5_000), ("2m", 120_000), ("24h", 86_400_000)] {
            assert_eq!(lease(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        let wrong =
            ["", "5", "s", "-1s", "1.5s", "5 s", "5us", "99ms", "25h", "99999999999999999h"];
        for text in wrong {
            let problem = lease(text).unwrap_err();
            assert!(problem.ends_with("100ms to 24h"), "{text}: {problem}");
        }
        assert_eq!(max_wait("forever"), Ok(MaxWait::Forever));
        assert_eq!(max_wait("0s"), Ok(MaxWait::AtMost(Duration::ZERO)));
        assert!(max_wait("never").is_err());
    }
}
