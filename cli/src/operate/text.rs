//! Holders as text within 80 columns.

use std::{sync::Arc, time::Duration};

use comfy_table::{CellAlignment, ColumnConstraint, Row, Width, presets};
use gaggle::{Inspection, operator::Entry};

use crate::output::{NONE, printable};

const WIDTH: u16 = 80;
const HOLDER_MAX: u16 = 24;
const GAP: u16 = 2;
const HEADER: [&str; 6] = ["KEY", "HOLDER", "AGE", "LEASE", "WAITERS", "TOKEN"];

/// The pages of a listing, each as wide as those before it.
#[derive(Default)]
pub(super) struct Table {
    /// Empty before the first page.
    widths: Vec<u16>,
}

impl Table {
    /// A line for each key, on the first page below a header. Long keys and holders are shortened.
    pub(super) fn page(&mut self, entries: &[Entry], unreadable: &[Arc<str>]) -> String {
        let mut rows = Vec::new();
        if self.widths.is_empty() {
            rows.push(HEADER.map(str::to_owned));
        }
        rows.extend(entries.iter().map(|Entry { key, holder }| {
            [
                printable(key),
                holder.owner.to_string(),
                span(holder.held_for),
                span(holder.remaining),
                holder.waiters.to_string(),
                holder.fencing_token.to_string(),
            ]
        }));
        rows.extend(unreadable.iter().map(|key| {
            let key = printable(key);
            [&key, "(unreadable)", NONE, NONE, NONE, NONE].map(str::to_owned)
        }));
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_truncation_indicator("…").set_delimiter('\0');
        table.add_rows(rows.into_iter().map(|row| {
            let mut row = Row::from(row);
            row.max_height(1);
            row
        }));
        self.widen(&table.column_max_content_widths());
        for (index, column) in table.column_iter_mut().enumerate() {
            let gap = if index + 1 < HEADER.len() { GAP } else { 0 };
            column.set_padding((0, gap));
            column
                .set_constraint(ColumnConstraint::Absolute(Width::Fixed(self.widths[index] + gap)));
            if index > 1 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt()
    }

    /// Keeps numbers whole, and shortens keys to the rest of the line.
    fn widen(&mut self, content: &[u16]) {
        self.widths.resize(HEADER.len(), 0);
        for (width, content) in self.widths.iter_mut().zip(content) {
            *width = (*width).max(*content);
        }
        self.widths[1] = self.widths[1].min(HOLDER_MAX);
        let gaps = GAP * (u16::try_from(HEADER.len()).unwrap_or_default() - 1);
        let others = self.widths[1..].iter().sum::<u16>() + gaps;
        self.widths[0] = self.widths[0].min(WIDTH.saturating_sub(others).max(GAP));
    }
}

/// A line for each fact, with the whole key.
pub(super) fn details(key: &str, holder: &Inspection) -> String {
    let Inspection { fencing_token, owner, held_for, remaining, waiters, .. } = holder;
    format!(
        "key      {}\nholder   {}\nage      {}\nlease    {} left\nwaiters  {waiters}\n\
         token    {fencing_token}",
        printable(key),
        owner,
        span(*held_for),
        span(*remaining)
    )
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

    /// The columns of a line: a CJK character has two.
    fn columns(line: &str) -> usize {
        line.chars().map(|it| if ('\u{2e80}'..'\u{fb00}').contains(&it) { 2 } else { 1 }).sum()
    }

    #[test]
    fn table_fits_80_columns() {
        let (long, wide) = ("k".repeat(1_024), "定时".repeat(20));
        let mut table = Table::default();
        let first = [entry(&long, Some("nightly")), entry("\u{1b}[2J\n", None)];
        let pages = [
            table.page(&first, &[]),
            table.page(&[entry(&wide, Some(&wide)), entry("k", None)], &["junk".into()]),
        ];
        let text = pages.join("\n");
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(text.contains("23h") && text.contains("9.9s") && text.contains('…'), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2J\\n"), "{text}");
        let token = text.lines().nth(1).unwrap().rfind("1764223000123456789").unwrap();
        let line = text.lines().nth(4).unwrap();
        assert_eq!(line.rfind("1764223000123456789"), Some(token - 2), "{text}");
        assert!(
            line.starts_with("k  ") && text.contains("junk  ") && text.contains("(unr"),
            "{text}"
        );
    }

    #[test]
    fn spans_are_short() {
        let shown = [0, 9_999, 10_000, 119_000, 120_000, 7_200_000, 172_800_000];
        let shown = shown.map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(shown, ["0.0s", "9.9s", "10s", "119s", "2m", "2h", "2d"]);
    }
}
