//! The options after the question mark of a URL, by name and by type.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use percent_encoding::percent_decode_str;

use super::{
    duration::parse_duration,
    scheme::{Kind, Scheme},
};
use crate::OpenError;

/// The longest name or value of an option that an error shows.
const SHOWN_BYTES_MAX: usize = 32;

/// The options of one URL, percent-decoded, each known to the scheme and given once.
pub(super) struct Options {
    pub(super) scheme: &'static Scheme,
    values: BTreeMap<&'static str, String>,
    /// Whether errors show names and values.
    is_shown: bool,
}

impl Options {
    /// Splits `a=1&b=2`. A plus sign is a plus sign.
    pub(super) fn parse(scheme: &'static Scheme, query: &str) -> Result<Self, OpenError> {
        let (mut values, mut is_shown) = (BTreeMap::new(), true);
        for (number, pair) in (1..).zip(query.split('&').filter(|pair| !pair.is_empty())) {
            let (_, value) = pair.split_once('=').unwrap_or((pair, ""));
            let problem = "the name of an option is not valid UTF-8";
            let name = option_name(pair).ok_or_else(|| scheme.invalid_url(problem))?;
            if name == "replicate" && matches!(scheme.kind, Kind::Member(..)) {
                let problem = "was removed: leave it out, a leader replicates at once";
                return Err(scheme.invalid("replicate", problem));
            }
            let Some(option) = scheme.options.iter().find(|option| **option == name) else {
                let is_shown = is_shown && pair.contains('=') && is_word(&name);
                return Err(scheme.unknown_option(&name, number, is_shown));
            };
            // What follows a password may be the rest of it.
            is_shown &= !is_secret(option);
            let value = decode(value).ok_or_else(|| scheme.invalid(option, "not valid UTF-8"))?;
            if values.insert(*option, value.into_owned()).is_some() {
                return Err(scheme.invalid(option, "given twice"));
            }
        }
        Ok(Self { scheme, values, is_shown })
    }

    /// The error for a value, which is shown if it is a word.
    pub(super) fn unexpected(&self, option: &'static str, expected: &str) -> OpenError {
        let value = self.text(option).filter(|value| self.is_shown && is_word(value));
        let not = value.map(|value| format!(", not {value:?}")).unwrap_or_default();
        self.scheme.invalid(option, format!("expected {expected}{not}"))
    }

    pub(super) fn text(&self, option: &'static str) -> Option<&str> {
        self.values.get(option).map(String::as_str)
    }

    /// The text, if the option is given, which is not empty.
    pub(super) fn filled(&self, option: &'static str) -> Result<Option<&str>, OpenError> {
        match self.text(option) {
            Some("") => Err(self.scheme.invalid(option, "expected a text that is not empty")),
            text => Ok(text),
        }
    }

    /// The text, which is not empty.
    pub(super) fn required(&self, option: &'static str) -> Result<&str, OpenError> {
        self.filled(option)?.ok_or_else(|| self.scheme.missing(option))
    }

    /// `true` or `false`; false by default.
    pub(super) fn flag(&self, option: &'static str) -> Result<bool, OpenError> {
        self.one_of(option, &[("false", false), ("true", true)])
    }

    /// The value of the option's word; that of the first word by default.
    pub(super) fn one_of<T: Copy>(
        &self,
        option: &'static str,
        words: &[(&'static str, T)],
    ) -> Result<T, OpenError> {
        let Some(text) = self.text(option) else { return Ok(words[0].1) };
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let (last, others) = words.split_last().expect("there is a default");
            let others = others.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            let words = format!("{others} or {}", last.0);
            self.unexpected(option, &words)
        })
    }

    /// An integer from 1 to `most`.
    pub(super) fn number(&self, option: &'static str, most: u32) -> Result<Option<u32>, OpenError> {
        let Some(text) = self.text(option) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
            _ => Err(self.unexpected(option, &format!("an integer from 1 to {most}"))),
        }
    }

    /// Names between commas and spaces, each once.
    pub(super) fn names(&self, option: &'static str) -> Result<Option<Vec<&str>>, OpenError> {
        let Some(text) = self.text(option) else { return Ok(None) };
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() {
                return Err(self.scheme.invalid(option, "one of the names is empty"));
            }
            if names[..index].contains(name) {
                return Err(self.scheme.invalid(option, "a name is given twice"));
            }
        }
        Ok(Some(names))
    }

    /// A duration of more than zero, as [`parse_duration`] reads it.
    pub(super) fn duration(&self, option: &'static str) -> Result<Option<Duration>, OpenError> {
        let Some(text) = self.text(option) else { return Ok(None) };
        let expected = "a duration of more than 0, such as 500ms, 2s or 5m";
        duration(text).map(Some).ok_or_else(|| self.unexpected(option, expected))
    }

    /// `150ms..300ms`, the first not longer than the second.
    pub(super) fn range(
        &self,
        option: &'static str,
    ) -> Result<Option<(Duration, Duration)>, OpenError> {
        let Some(text) = self.text(option) else { return Ok(None) };
        let range =
            text.split_once("..").and_then(|(from, to)| Some((duration(from)?, duration(to)?)));
        match range {
            Some((from, to)) if from <= to => Ok(Some((from, to))),
            _ => Err(self.unexpected(option, "a range of durations such as 150ms..300ms")),
        }
    }
}

/// `it` with the value, if there is one.
pub(super) fn set<T, V>(it: T, value: Option<V>, set: impl FnOnce(T, V) -> T) -> T {
    match value {
        Some(value) => set(it, value),
        None => it,
    }
}

pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}

/// The name in `name=value`, decoded.
pub(super) fn option_name(pair: &str) -> Option<Cow<'_, str>> {
    decode(pair.split_once('=').map_or(pair, |(name, _)| name))
}

/// Whether the option holds a password.
pub(super) fn is_secret(option: &str) -> bool {
    matches!(option, "pass" | "sentinel_password")
}

/// Whether it looks like a name, a number or a duration.
fn is_word(text: &str) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=SHOWN_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_word)
}

fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).filter(|duration| !duration.is_zero())
}
