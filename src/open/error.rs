//! Why a URL was not opened.

use std::fmt;

use gaggle_channels::ChannelError;
use gaggle_strategies::Error;

use super::scheme::SCHEMES;

/// Why a URL was not opened, with a valid example.
///
/// The error shows names and values of options, and paths of unusable files. It shows no other part
/// of the URL, which may belong to a password. After an option that holds a password, it shows only
/// names of known options. `Debug` prints the same sentence, as a `main` that returns the error
/// shows it.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum OpenError {
    /// The text is not a URL, a part of it has no meaning here, or an option is unknown, missing,
    /// malformed or beyond its limit. Nothing was opened.
    #[error("{problem}; for example: {example}")]
    InvalidUrl {
        /// The part or the option, and the reason.
        problem: String,
        /// A valid URL.
        example: &'static str,
    },

    /// No strategy has this scheme. Nothing was opened.
    #[error("unknown scheme, known are {}; for example: {example}", schemes())]
    UnknownScheme {
        /// A valid URL.
        example: &'static str,
    },

    /// This program was built without a feature that the scheme needs. Nothing was opened.
    #[error("built without {scheme}: enable the feature {feature:?} of the crate gaggle")]
    FeatureOff {
        /// The scheme, or its part after the plus sign.
        scheme: &'static str,
        /// The feature to enable.
        feature: &'static str,
    },

    /// The URL is valid, and the strategy could not be opened.
    #[error(transparent)]
    Strategy(#[from] Error),

    /// The URL is valid, and the channel could not be opened.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn schemes() -> String {
    SCHEMES.iter().map(|scheme| scheme.name).collect::<Vec<_>>().join(", ")
}
