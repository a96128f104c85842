//! Why a URL was not opened.

use gaggle_channels::ChannelError;
use gaggle_strategies::Error;

/// Why a URL was not opened: what is wrong with it, and a right example.
///
/// No part of the URL is in here but the names of known options: whatever a URL that is not understood
/// holds may be a part of a password.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is no URL, or a part of it makes no sense here. Nothing was opened.
    #[error("invalid URL: {problem}; for example: {example}")]
    InvalidUrl {
        /// What is wrong.
        problem: String,
        /// One that is valid.
        example: &'static str,
    },

    /// No strategy has this scheme. Nothing was opened.
    #[error(
        "unknown scheme, known are local, noop, redis, redis+unix, and raft or gaggle with +memory, \
         +redis or +tcp; for example: {example}"
    )]
    UnknownScheme {
        /// One that is valid.
        example: &'static str,
    },

    /// The URL is right, and this program was built without what its scheme needs. Nothing was opened.
    #[error("built without {scheme}: enable the feature {feature:?} of the crate gaggle")]
    FeatureOff {
        /// The scheme, or its part behind the plus sign.
        scheme: &'static str,
        /// The feature to enable.
        feature: &'static str,
    },

    /// The scheme has no such option. Nothing was opened.
    #[error("unknown option {option}: {scheme} {}; for example: {example}", known(allowed))]
    UnknownOption {
        /// The scheme.
        scheme: &'static str,
        /// Its name, where another scheme has an option of that name; else its number in the URL.
        option: String,
        /// The options that the scheme has.
        allowed: &'static [&'static str],
        /// One that is valid.
        example: &'static str,
    },

    /// An option's value is not understood or out of bounds. Nothing was opened.
    #[error("option {option}: {problem}; for example: {example}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// What is wrong, without the value.
        problem: String,
        /// One that is valid.
        example: &'static str,
    },

    /// An option that the scheme needs is not there. Nothing was opened.
    #[error("{scheme} needs the option {option}; for example: {example}")]
    MissingOption {
        /// The scheme.
        scheme: &'static str,
        /// The option.
        option: &'static str,
        /// One that is valid.
        example: &'static str,
    },

    /// The URL is right, and the strategy could not be opened.
    #[error("the strategy did not open")]
    Strategy(#[source] Error),

    /// The URL is right, and the channel could not be opened.
    #[error("the channel did not open")]
    Channel(#[source] ChannelError),
}

fn known(allowed: &[&str]) -> String {
    match allowed {
        [] => "has none".into(),
        allowed => format!("has {}", allowed.join(", ")),
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Strategy(error)
    }
}

impl From<ChannelError> for OpenError {
    fn from(error: ChannelError) -> Self {
        Self::Channel(error)
    }
}
