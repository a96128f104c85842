//! What the user gives as text: arguments, and the temporary directory.

use std::{env, path::PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::failure::Failure;

/// Names the option if its text is not UTF-8, which that of clap does not.
pub(crate) fn utf8() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|text| text.into_string().map_err(|_| "it is not UTF-8"))
}

/// The temporary directory, for paths that become a part of a URL or of an order.
pub(crate) fn temporary_directory() -> Result<PathBuf, Failure> {
    let path = env::temp_dir();
    if path.to_str().is_none() {
        let cure = "set it to another directory";
        return Err(Failure::new(format!("TMPDIR {path:?} is not UTF-8: {cure}")));
    }
    Ok(path)
}
