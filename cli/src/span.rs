//! Durations of options: a whole number and its unit.

use std::time::Duration;

use clap::builder::TypedValueParser;
use gaggle::MaxWait;
use gaggle_strategies::limits::MAX_WAIT_MAX;

const HOUR: Duration = Duration::from_secs(60 * 60);
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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
        let lease = |text| within(text, Duration::from_millis(100), 24 * HOUR);
        for (text, ms) in [("100000us", 100), ("5s", 5_000), ("2m", 120_000), ("24h", 86_400_000)] {
            assert_eq!(lease(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        let wrong = ["", "5", "s", "-1s", "1.5s", "5 s", "0", "99ms", "25h", "99999999999999999h"];
        for text in wrong {
            let problem = lease(text).unwrap_err();
            assert!(problem.ends_with("us, ms, s, m or h, 100ms to 24h"), "{text}: {problem}");
        }
        assert_eq!(within("0", Duration::ZERO, HOUR), Ok(Duration::ZERO));
        assert_eq!(max_wait("forever"), Ok(MaxWait::Forever));
        assert_eq!(max_wait("0s"), Ok(MaxWait::AtMost(Duration::ZERO)));
        assert!(max_wait("never").is_err());
    }

    #[test]
    fn shown_span_is_parsed_to_itself() {
        for text in ["0s", "1us", "1500us", "15ms", "1500ms", "60s", "3600s", "24h"] {
            assert_eq!(parse(text).map(show).as_deref(), Some(text));
        }
    }
}
