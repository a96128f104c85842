//! The output of commands: lines, tables and progress bars.

use std::{
    fmt::Display,
    io::{self, Write as _},
    time::Duration,
};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;

/// The text of a cell without a figure.
pub(crate) const NONE: &str = "–";

/// Prints a line. A pipe that its reader has closed (`| head -1`) is no failure; any other write
/// error, such as a full disk, is one.
pub(crate) fn say(line: impl Display) -> Result<(), Failure> {
    written(writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush()))
}

/// Prints a line to standard error. A closed or full standard error is not a failure.
pub(crate) fn remark(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// The same, under the name of the program.
pub(crate) fn notice(text: &str) {
    remark(format_args!("gaggle: {text}"));
}

/// JSON in ASCII: a terminal obeys no character of a key or a name.
pub(crate) fn json(value: &serde_json::Value) -> String {
    let mut text = String::new();
    for character in value.to_string().chars() {
        if character.is_ascii() && !character.is_ascii_control() {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                text += &format!("\\u{unit:04x}");
            }
        }
    }
    text
}

/// A key or a text of another process: a terminal obeys no character of it. Quotes and backslashes
/// stay.
pub(crate) fn printable(text: &str) -> String {
    const KEPT: [char; 3] = ['\'', '"', '\\'];
    let mut shown = String::new();
    for part in text.split_inclusive(KEPT) {
        let before = part.strip_suffix(KEPT).unwrap_or(part);
        shown.extend(before.escape_debug());
        shown.push_str(&part[before.len()..]);
    }
    shown
}

/// Treats a write to standard output as [`say`] does.
pub(crate) fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new("standard output").because(&error))
        }
        _ => Ok(()),
    }
}

/// A column of a table: its header, and its cell in the row of a `T`.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

/// A table without borders, one line a row. The first column is aligned left, the others right. A
/// column without a single figure is left out.
pub(crate) fn table<T>(columns: &[Column<T>], rows: &[T]) -> String {
    let mut lines = vec![Vec::new(); rows.len() + 1];
    for (header, cell) in columns {
        let cells: Vec<_> = rows.iter().map(cell).collect();
        if cells.iter().any(|cell| cell != NONE) {
            let column = std::iter::once((*header).to_owned()).chain(cells);
            lines.iter_mut().zip(column).for_each(|(line, cell)| line.push(cell));
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).add_rows(lines);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// The lines of a legend that these tables need. A line begins with the words of the headers that
/// it explains, and two spaces.
pub(crate) fn legend(lines: &str, tables: &str) -> String {
    let is_shown = |line: &&str| {
        let (words, _) = line.split_once("  ").expect("two spaces follow the words");
        tables.contains(words)
    };
    lines.split_inclusive('\n').filter(is_shown).collect()
}

/// Whole milliseconds.
pub(crate) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// `1 member`, `5 members`.
pub(crate) fn count(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { plural(noun) })
}

fn plural(noun: &str) -> &'static str {
    if noun.ends_with('s') { "es" } else { "s" }
}

/// A progress bar on standard error. One that is not shown counts too.
pub(crate) fn bar(is_shown: bool, template: &str, length: u64) -> ProgressBar {
    let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let bar = ProgressBar::with_draw_target(Some(length), target);
    bar.set_style(style);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_printable_ascii() {
        let value = serde_json::json!({ "label": "a\u{1b}\u{7f}\u{9b}\u{202e}\n\u{1f512}\"" });
        let text = json(&value);
        assert!(text.chars().all(|it| it.is_ascii_graphic()), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn quotes_stay_and_control_characters_do_not() {
        let text = "it's \"a\\b\" zo\u{e9} 定时\u{1b}[2J\n\u{202e}'";
        let shown = "it's \"a\\b\" zo\u{e9} 定时\\u{1b}[2J\\n\\u{202e}'";
        assert_eq!(printable(text), shown);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(count(1_u32, "member"), "1 member");
        assert_eq!(count(0_u32, "round"), "0 rounds");
        assert_eq!(
            (count(1_u32, "process"), count(2_u32, "process")),
            ("1 process".into(), "2 processes".into())
        );
    }

    #[test]
    fn legend_explains_only_what_is_shown() {
        let lines = "p50  half\np99  nearly all\n";
        assert_eq!(legend(lines, "lock  p99\nredis   5"), "p99  nearly all\n");
        assert_eq!(legend(lines, "lock\nredis"), "");
    }

    #[test]
    fn column_without_a_figure_is_left_out() {
        let columns: [Column<u32>; 3] = [
            ("lock", |_| "redis".into()),
            ("empty", |_| NONE.into()),
            ("number", |number| if *number == 1 { NONE.into() } else { number.to_string() }),
        ];
        let table = table(&columns, &[1, 20]);
        let lines: Vec<Vec<_>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["lock", "number"], ["redis", "–"], ["redis", "20"]], "{table}");
    }
}
