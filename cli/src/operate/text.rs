//! Holders as text within 80 columns.

use std::time::Duration;

use gaggle::{Inspection, operator::Entry};

const WIDTH: usize = 80;
const HOLDER_MAX: usize = 24;
const HEADER: [&str; 6] = ["KEY", "HOLDER", "AGE", "LEASE", "WAITERS", "TOKEN"];

/// One line a key. Long keys and holders are shortened.
pub(super) fn table(entries: &[Entry]) -> String {
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(entries.iter().map(|Entry { key, holder }| {
        [
            key.escape_debug().to_string(),
            shortened(&holder.owner.to_string().escape_debug().to_string(), HOLDER_MAX),
            span(holder.held_for),
            span(holder.remaining),
            holder.waiters.to_string(),
            holder.fencing_token.to_string(),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let mut widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let others = widths[1..].iter().sum::<usize>() + 2 * (HEADER.len() - 1);
    widths[0] = widths[0].min(WIDTH.saturating_sub(others).max(HEADER[0].len()));
    let lines = rows.iter().map(|row| {
        let [key, holder, age, lease, waiters, token] = row;
        let [k, h, a, l, w, t] = widths;
        let key = shortened(key, k);
        format!("{key:k$}  {holder:h$}  {age:>a$}  {lease:>l$}  {waiters:>w$}  {token:>t$}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// One line a fact, with the whole key.
pub(super) fn details(key: &str, holder: &Inspection) -> String {
    let Inspection { fencing_token, owner, held_for, remaining, waiters, .. } = holder;
    format!(
        "key      {}\nholder   {}\nage      {}\nlease    {} left\nwaiters  {waiters}\n\
         token    {fencing_token}",
        key.escape_debug(),
        owner.to_string().escape_debug(),
        span(*held_for),
        span(*remaining)
    )
}

/// At most `most` characters; a missing rest is shown by the last.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A duration in at most five characters, up to a thousand days.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..10 => format!("{seconds}.{}s", span.subsec_millis() / 100),
        10..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use gaggle::{Nonce, Owner};

    use super::*;

    fn entry(key: &str, label: Option<&str>) -> Entry {
        let (host, label) = ("web-3.example.org".into(), label.map(Into::into));
        let holder = Inspection {
            fencing_token: 1_764_223_000_123_456_789,
            nonce: Nonce::from_u128(1),
            owner: Owner { host, pid: 4_194_304, label },
            held_for: Duration::from_secs(86_399),
            remaining: Duration::from_millis(9_940),
            waiters: 131_072,
        };
        Entry { key: key.into(), holder }
    }

    #[test]
    fn table_fits_80_columns() {
        let long = "k".repeat(1_024);
        let table = table(&[entry(&long, Some("nightly")), entry("\u{1b}[2J\n", None)]);
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        assert!(table.contains("23h") && table.contains("9.9s") && table.contains('…'), "{table}");
        assert!(!table.contains('\u{1b}') && table.contains("\\u{1b}[2J\\n"), "{table}");
    }

    #[test]
    fn spans_are_short() {
        let shown = [0, 9_999, 10_000, 119_000, 120_000, 7_200_000, 172_800_000];
        let shown = shown.map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(shown, ["0.0s", "9.9s", "10s", "119s", "2m", "2h", "2d"]);
    }
}
