//! Durations of options, within limits.

use std::time::Duration;

use clap::builder::TypedValueParser;
use gaggle::{MaxWait, parse_duration};
use gaggle_strategies::limits::MAX_WAIT_MAX;
use humantime::format_duration;

/// `1year` as the grammar of durations has it, 365.25 days.
pub(crate) const YEAR: Duration = Duration::from_secs(31_557_600);

/// A parser of durations from `min` to `max`.
pub(crate) fn between(min: Duration, max: Duration) -> impl TypedValueParser<Value = Duration> {
    move |text: &str| within(text, min, max)
}

/// `--max-wait`.
pub(crate) fn max_wait(text: &str) -> Result<MaxWait, String> {
    if text == "forever" {
        return Ok(MaxWait::Forever);
    }
    let wait = within(text, Duration::ZERO, MAX_WAIT_MAX);
    wait.map(MaxWait::AtMost).map_err(|problem| problem + ", or forever")
}

fn within(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let duration = parse_duration(text).filter(|duration| (min..=max).contains(duration));
    // The next option: the parser takes it, because a value may begin with `-`.
    let missing = if text.starts_with("--") { "its value is missing: " } else { "" };
    duration.ok_or_else(|| {
        let (min, max) = (format_duration(min), format_duration(max));
        format!("{missing}expected a duration such as 500ms, 10s or 5m, {min} to {max}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_beyond_its_limits_is_refused_with_them() {
        let lease = |text| within(text, Duration::from_millis(100), MAX_WAIT_MAX);
        for (text, ms) in [("100000us", 100), ("5s", 5_000), ("2m", 120_000), ("24h", 86_400_000)] {
            assert_eq!(lease(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "-1s", "0", "99ms", "25h"] {
            let problem = lease(text).unwrap_err();
            assert_eq!(problem, "expected a duration such as 500ms, 10s or 5m, 100ms to 1day");
        }
        assert_eq!(lease("--json").unwrap_err().find("its value is missing: "), Some(0));
        assert_eq!(max_wait("forever"), Ok(MaxWait::Forever));
        assert_eq!(max_wait("0s"), Ok(MaxWait::AtMost(Duration::ZERO)));
        assert!(max_wait("never").unwrap_err().ends_with("0s to 1day, or forever"));
        assert_eq!(within("8760h", Duration::ZERO, YEAR), Ok(Duration::from_secs(365 * 86_400)));
        assert_eq!(parse_duration(&format_duration(YEAR).to_string()), Some(YEAR));
    }
}
