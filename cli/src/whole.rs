//! Whole numbers of options, refused with their limits.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use clap::builder::TypedValueParser;

/// A parser of whole numbers from `limits.start()` to `limits.end()`.
pub(crate) fn whole<T>(limits: RangeInclusive<T>) -> impl TypedValueParser<Value = T>
where
    T: Clone + Display + FromStr + PartialOrd + Send + Sync + 'static,
{
    move |text: &str| {
        let number = text.parse().ok().filter(|number| limits.contains(number));
        number.ok_or_else(|| format!("give a whole number, {} to {}", limits.start(), limits.end()))
    }
}
