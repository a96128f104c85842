//! Durations of options: a whole number and its unit.

use std::time::Duration;

use gaggle::MaxWait;
use gaggle_strategies::limits::{DURATION_MAX, MAX_WAIT_MAX};

/// The shortest time, one unit of the parser.
const MIN: Duration = Duration::from_micros(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// The shortest lease: a command needs time to start.
const LEASE_MIN: Duration = Duration::from_millis(100);
const MAX_HOLD_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const WORK_MAX: Duration = Duration::from_secs(60);
const WINDOW_MAX: Duration = Duration::from_secs(600);

/// `--duration` of `gaggle run`.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    within(text, LEASE_MIN, DURATION_MAX)
}

/// `--max-wait`.
pub(crate) fn max_wait(text: &str) -> Result<MaxWait, String> {
    if text == "forever" {
        return Ok(MaxWait::Forever);
    }
    let wait = within(text, Duration::ZERO, MAX_WAIT_MAX);
    wait.map(MaxWait::AtMost).map_err(|problem| problem + ", or forever")
}

/// `--max-hold`.
pub(crate) fn max_hold(text: &str) -> Result<Duration, String> {
    within(text, LEASE_MIN, MAX_HOLD_MAX)
}

/// `--at-least`, the longest lease.
pub(crate) fn at_least(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, DURATION_MAX)
}

/// `--kill-after`, whose upper limit is another option, and `--older-than`.
pub(crate) fn any(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, MAX_HOLD_MAX)
}

/// `--work`.
pub(crate) fn work(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, WORK_MAX)
}

/// `--duration` of `gaggle bench`.
pub(crate) fn window(text: &str) -> Result<Duration, String> {
    within(text, MIN, WINDOW_MAX)
}

fn within(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let span = parse(text).filter(|span| (min..=max).contains(span));
    let limit = || format!("{} to {}", show(min), show(max));
    // The next option: the parser takes it, because a value may begin with `-`.
    let missing = if text.starts_with("--") { "its value is missing: " } else { "" };
    span.ok_or_else(|| format!("{missing}give a whole number with us, ms, s, m or h, {}", limit()))
}

fn parse(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok()?;
    let unit_us = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "" if number == 0 => 1,
        _ => return None,
    };
    number.checked_mul(unit_us).map(Duration::from_micros)
}

/// The duration as an option takes it.
pub(crate) fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    if !span.subsec_micros().is_multiple_of(1_000) {
        format!("{}us", span.as_micros())
    } else if span.subsec_millis() > 0 {
        format!("{}ms", span.as_millis())
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

    #[test]
    fn work_may_be_zero_and_a_window_may_not() {
        for (text, us) in [("15ms", 15_000), ("60s", 60_000_000), ("500us", 500), ("0", 0)] {
            assert_eq!(work(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for text in ["15", "61s", "99999999999999999999s"] {
            let problem = work(text).unwrap_err();
            assert!(problem.ends_with("us, ms, s, m or h, 0s to 60s"), "{text}: {problem}");
        }
        for text in ["0", "0s", "601s"] {
            let problem = window(text).unwrap_err();
            assert!(problem.ends_with("1us to 600s"), "{text}: {problem}");
        }
    }

    #[test]
    fn shown_span_is_parsed_to_itself() {
        for text in ["0s", "1us", "1500us", "15ms", "1500ms", "60s", "3600s", "24h"] {
            assert_eq!(any(text).map(show), Ok(text.to_owned()));
        }
    }
}
