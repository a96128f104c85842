//! Text of other processes, made safe for terminals and logs.

use std::fmt::{self, Write as _};

/// Shows a text with escapes for characters that control a terminal or reorder text.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|it| {
            if is_unsafe(it) { write!(f, "{}", it.escape_default()) } else { f.write_char(it) }
        })
    }
}

/// Whether a terminal may obey the character, or show what follows in another place.
pub(crate) fn is_unsafe(character: char) -> bool {
    const MARKS: [char; 3] = ['\u{61c}', '\u{200e}', '\u{200f}'];
    const LINES_AND_EMBEDDINGS: std::ops::RangeInclusive<char> = '\u{2028}'..='\u{202e}';
    const ISOLATES: std::ops::RangeInclusive<char> = '\u{2066}'..='\u{2069}';
    character.is_control()
        || MARKS.contains(&character)
        || LINES_AND_EMBEDDINGS.contains(&character)
        || ISOLATES.contains(&character)
}
