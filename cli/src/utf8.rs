//! The parser of arguments that are text.

use clap::builder::{OsStringValueParser, TypedValueParser};

/// Names the option if its text is not UTF-8, which that of clap does not.
pub(crate) fn utf8() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|text| text.into_string().map_err(|_| "it is not UTF-8"))
}
