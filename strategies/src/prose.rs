//! Durations in texts for people: errors, log events, tables.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A duration with a space before its unit, as in `5 s`, `2.5 ms` or `24 h`.
#[must_use]
pub fn in_prose(duration: Duration) -> String {
    let (hours, rest) =
        (duration.as_secs() / HOUR.as_secs(), duration.as_nanos() % HOUR.as_nanos());
    if hours > 0 && rest == 0 {
        return format!("{hours} h");
    }
    let text = format!("{duration:?}");
    let number = text.trim_end_matches(|letter: char| letter.is_alphabetic());
    format!("{number} {}", &text[number.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_stands_apart() {
        let texts = [
            (0, "0 ns"),
            (100, "100 µs"),
            (2_500, "2.5 ms"),
            (5_000_000, "5 s"),
            (5_400_000_000, "5400 s"),
            (86_400_000_000, "24 h"),
        ];
        for (us, text) in texts {
            assert_eq!(in_prose(Duration::from_micros(us)), text);
        }
    }
}
