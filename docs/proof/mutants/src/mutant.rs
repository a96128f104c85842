//! The mutants, as `cargo mutants --list --json` prints them.

use std::{ops::Range, path::PathBuf};

use serde::Deserialize;

/// One small change of one file.
#[derive(Debug, Deserialize)]
pub(crate) struct Mutant {
    /// Counted from 1; 0 means none.
    #[serde(skip)]
    pub(crate) id: usize,
    pub(crate) name: String,
    /// From the root of the workspace.
    pub(crate) file: PathBuf,
    pub(crate) genre: Genre,
    pub(crate) replacement: String,
    #[serde(default)]
    pub(crate) function: Option<Function>,
    span: Span,
}

/// What is changed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum Genre {
    /// The function returns a value at once.
    FnValue,
    BinaryOperator,
    UnaryOperator,
    /// The arm never matches.
    MatchArm,
    /// The guard is true, or false.
    MatchArmGuard,
    /// The field keeps the value of the struct's base.
    StructField,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Function {
    pub(crate) return_type: String,
}

#[derive(Debug, Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

/// Both count from 1; columns are characters.
#[derive(Debug, Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

impl Mutant {
    /// What the replacement takes the place of.
    pub(crate) fn range(&self, source: &str) -> Range<usize> {
        self.span.start.offset(source)..self.span.end.offset(source)
    }

    /// Line and column of its beginning.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.span.start.line, self.span.start.column)
    }

    /// A function of an opaque type: another value of another type cannot be returned beside its own.
    pub(crate) fn is_opaque(&self) -> bool {
        self.genre == Genre::FnValue
            && self.function.as_ref().is_some_and(|function| function.return_type.contains("impl "))
    }
}

impl Place {
    fn offset(&self, source: &str) -> usize {
        let line: usize = source.split_inclusive('\n').take(self.line - 1).map(str::len).sum();
        let column = source[line..].char_indices().nth(self.column - 1);
        column.map_or(source.len(), |(offset, _)| line + offset)
    }
}
