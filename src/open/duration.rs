//! The one grammar of durations, in URLs and on the command line.

use std::time::Duration;

/// The longest text of a duration, in bytes. Sums that overflow the parser are longer.
const TEXT_BYTES_MAX: usize = 20;

/// Parses a duration as the options of URLs and of the command line have it: a number and its unit,
/// as `500ms`, `10s`, `1.5h` or `1h 30m`. Returns `None` for any other text, and for one of more than
/// 20 bytes.
///
/// The units are `ns`, `us`, `ms`, `s`, `m` (minutes), `h`, `d`, `w`, and their long forms, as in
/// the crate `humantime`; `0` needs none. Errors and log events show durations in the same form.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(gaggle::parse_duration("1h 30m"), Some(Duration::from_secs(5_400)));
/// assert_eq!(gaggle::parse_duration("5"), None, "the unit is missing");
/// ```
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let is_short = text.len() <= TEXT_BYTES_MAX;
    is_short.then(|| humantime::parse_duration(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_a_number_with_its_unit() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("100000us", 100),
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h 30m", 5_400_000),
            ("24h", 86_400_000),
            ("1day", 86_400_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1,5s", "5x", "99999999999999999h"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    /// The parser panics where the sum is just beyond the greatest duration.
    #[test]
    fn text_beyond_any_duration_is_refused() {
        assert_eq!(parse_duration("30500568904943w7h15s1000ms"), None);
        assert_eq!(parse_duration("18446744073709551615s 1000ms"), None);
    }
}
