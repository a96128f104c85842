//! Bar charts, in the terminal and as SVG.

use std::fmt;

use svg::{
    Document, Node,
    node::element::{Rectangle, Style, Text, Title},
};

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bar {
    /// Its name.
    pub(super) label: String,
    /// Its length.
    pub(super) value: f64,
    /// The text behind it.
    pub(super) text: String,
    /// Whether it has the colour of this project's locks.
    pub(super) ours: bool,
}

/// Bars of the same unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    /// The name of the measurement.
    pub(super) title: String,
    /// The unit, and whether more or less is better.
    pub(super) note: String,
    /// From top to bottom.
    pub(super) bars: Vec<Bar>,
}

/// Several series in one picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BarChart {
    /// The heading.
    pub(super) title: String,
    /// The conditions of the measurement.
    pub(super) subtitle: String,
    /// From top to bottom.
    pub(super) series: Vec<Series>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 290.0;
const BAR_WIDTH: f64 = 390.0;
const BAR_HEIGHT: f64 = 20.0;
const MARGIN: f64 = 24.0;
/// The colours of bars and of text.
const OURS: &str = "#2f6fb3";
const OTHERS: &str = "#b4bcc6";
const INK: &str = "#1f2933";
const FAINT: &str = "#616e7c";
/// The file embeds no font.
const STYLE: &str = "text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif }";

/// The length of the longest bar in a terminal of 80 columns, in characters.
const TERMINAL_BAR: usize = 30;

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.title, self.note)?;
        let width = self.bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        for bar in &self.bars {
            let length = (bar.value / self.longest() * TERMINAL_BAR as f64).ceil() as usize;
            let (label, text) = (&bar.label, &bar.text);
            writeln!(f, "{label:>width$} | {:<TERMINAL_BAR$} | {text}", "#".repeat(length))?;
        }
        Ok(())
    }
}

impl Series {
    fn longest(&self) -> f64 {
        self.bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max)
    }

    fn height(&self) -> f64 {
        46.0 + self.bars.len() as f64 * (BAR_HEIGHT + 6.0)
    }

    fn draw(&self, picture: &mut Document, top: f64) {
        picture.append(label(MARGIN, top + 18.0, 15, INK, &self.title).set("font-weight", 600));
        let note = label(WIDTH - MARGIN, top + 18.0, 12, FAINT, &self.note);
        picture.append(note.set("text-anchor", "end"));
        let mut y = top + 32.0;
        for bar in &self.bars {
            let length = (bar.value / self.longest() * BAR_WIDTH).max(0.0);
            let (colour, middle) = (if bar.ours { OURS } else { OTHERS }, y + BAR_HEIGHT * 0.72);
            let name = label(LEFT - 10.0, middle, 13, INK, &bar.label);
            picture.append(name.set("text-anchor", "end"));
            let bar_drawn = Rectangle::new().set("x", LEFT).set("y", y).set("width", length);
            picture.append(bar_drawn.set("height", BAR_HEIGHT).set("rx", 2).set("fill", colour));
            picture.append(label(LEFT + length + 8.0, middle, 12, INK, &bar.text));
            y += BAR_HEIGHT + 6.0;
        }
    }
}

impl BarChart {
    /// The chart as SVG.
    pub(super) fn svg(&self) -> String {
        let heights: f64 = self.series.iter().map(Series::height).sum();
        let height = 74.0 + heights + MARGIN;
        let mut picture = Document::new()
            .set("viewBox", (0, 0, WIDTH, height))
            .set("width", WIDTH)
            .set("height", height)
            .set("role", "img")
            .add(Title::new(&self.title))
            .add(Style::new(STYLE))
            .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#fff"))
            .add(label(MARGIN, 34.0, 20, INK, &self.title).set("font-weight", 700))
            .add(label(MARGIN, 56.0, 12, FAINT, &self.subtitle));
        let mut top = 74.0;
        for series in &self.series {
            series.draw(&mut picture, top);
            top += series.height();
        }
        picture.to_string()
    }
}

fn label(x: f64, y: f64, size: u32, colour: &str, text: &str) -> Text {
    Text::new(text).set("x", x).set("y", y).set("font-size", size).set("fill", colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> Series {
        let bar = |label: &str, value| Bar {
            label: label.into(),
            value,
            text: format!("{value} ms"),
            ours: label == "gaggle",
        };
        Series {
            title: "worst".into(),
            note: "ms, less is better".into(),
            bars: vec![bar("raft", 200.0), bar("gaggle", 60.0), bar("<nothing>", 0.0)],
        }
    }

    #[test]
    fn bars_scale_to_the_longest() {
        let lines = series().to_string();
        let hashes = |label: &str| {
            let line = lines.lines().find(|line| line.contains(label)).unwrap();
            line.matches('#').count()
        };
        assert_eq!((hashes("raft"), hashes("gaggle"), hashes("nothing")), (30, 9, 0));
        assert!(lines.contains("60 ms"), "{lines}");
    }

    #[test]
    fn picture_holds_every_text_escaped() {
        let chart =
            BarChart { title: "a & b".into(), subtitle: "now".into(), series: vec![series()] };
        let svg = chart.svg();
        for part in ["a &amp; b", "&lt;nothing&gt;", "200 ms", "viewBox"] {
            assert!(svg.contains(part), "no {part:?} in {svg}");
        }
    }
}
