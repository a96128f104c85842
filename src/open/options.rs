//! The options after the question mark of a URL, by name and by type.

use std::{collections::BTreeMap, time::Duration};

#[cfg(all(feature = "tls", any(feature = "http", feature = "redis")))]
use gaggle_channels::tls::{TlsFiles, is_server_name};
use url::Url;

use super::{
    parse_duration,
    scheme::{SCHEMES, Scheme},
    url::{decode, is_secret, option_name},
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
    pub(super) fn parse(scheme: &'static Scheme, url: &Url) -> Result<Self, OpenError> {
        let (known, query) = (scheme.options(), url.query().unwrap_or_default());
        let (mut values, mut is_shown) = (BTreeMap::new(), true);
        for (number, pair) in (1..).zip(query.split('&').filter(|pair| !pair.is_empty())) {
            let (_, value) = pair.split_once('=').unwrap_or((pair, ""));
            let problem = "the name of an option is not valid UTF-8";
            let name = option_name(pair).ok_or_else(|| scheme.invalid_url(problem))?;
            let Some(option) = known.iter().find(|option| **option == name) else {
                let is_shown = is_shown && pair.contains('=') && is_word(&name);
                return Err(unknown(scheme, &name, number, is_shown));
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
    pub(super) fn unexpected(&self, option: &str, expected: &str) -> OpenError {
        let value = self.text(option).filter(|value| self.is_shown && is_word(value));
        let not = value.map(|value| format!(", not {value:?}")).unwrap_or_default();
        self.scheme.invalid(option, format!("expected {expected}{not}"))
    }

    /// The error for an option that the others need.
    #[cfg(any(feature = "raft", feature = "redis"))]
    pub(super) fn missing(&self, option: &str) -> OpenError {
        let problem = format!("{} needs the option {option}", self.scheme.name);
        self.scheme.problem_of(option, problem)
    }

    pub(super) fn text(&self, option: &str) -> Option<&str> {
        self.values.get(option).map(String::as_str)
    }

    /// The text, if the option is given, which is not empty.
    pub(super) fn filled(&self, option: &str) -> Result<Option<&str>, OpenError> {
        match self.text(option) {
            Some("") => Err(self.scheme.invalid(option, "expected a text that is not empty")),
            text => Ok(text),
        }
    }

    /// A duration of more than zero, as [`parse_duration`] reads it.
    pub(super) fn duration(&self, option: &str) -> Result<Option<Duration>, OpenError> {
        let expected = "a duration of more than 0, such as 500ms, 2s or 5m";
        self.read(option, expected, duration)
    }

    /// The value that `read` makes of the text, if the option is given.
    fn read<T>(
        &self,
        option: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, OpenError> {
        let Some(text) = self.text(option) else { return Ok(None) };
        read(text).map(Some).ok_or_else(|| self.unexpected(option, expected))
    }
}

#[cfg(any(feature = "redis", feature = "tcp"))]
impl Options {
    /// `true` or `false`; false by default.
    pub(super) fn flag(&self, option: &str) -> Result<bool, OpenError> {
        let value = self.read(option, "false or true", |text| text.parse().ok())?;
        Ok(value.unwrap_or_default())
    }
}

#[cfg(feature = "redis")]
impl Options {
    /// `fifo` or `none`; the default of the strategy without the option.
    pub(super) fn queue(&self) -> Result<gaggle_strategies::Queue, OpenError> {
        use gaggle_strategies::Queue;
        let queue = self.read("queue", "fifo or none", |text| match text {
            "fifo" => Some(Queue::Fifo),
            "none" => Some(Queue::None),
            _ => None,
        })?;
        Ok(queue.unwrap_or_default())
    }

    /// An integer from 1 to `most`.
    pub(super) fn number(&self, option: &str, most: u32) -> Result<Option<u32>, OpenError> {
        let in_range = |number: &u32| (1..=most).contains(number);
        self.read(option, &format!("an integer from 1 to {most}"), |text| {
            text.parse().ok().filter(in_range)
        })
    }
}

#[cfg(all(feature = "tls", any(feature = "http", feature = "redis")))]
impl Options {
    /// The files of TLS, and the name in the server's certificate.
    pub(super) fn tls(&self) -> Result<(TlsFiles, Option<&str>), OpenError> {
        let files = set(TlsFiles::default(), self.text("tls_ca"), |files, ca| files.ca(ca));
        let needed = |option, by| self.scheme.invalid(option, format!("{by} needs this option"));
        let files = match (self.text("tls_cert"), self.text("tls_key")) {
            (Some(cert), Some(key)) => files.cert(cert, key),
            (Some(_), None) => return Err(needed("tls_key", "tls_cert")),
            (None, Some(_)) => return Err(needed("tls_cert", "tls_key")),
            (None, None) => files,
        };
        let name = self.filled("tls_name")?;
        if name.is_some_and(|name| !is_server_name(name)) {
            return Err(self.unexpected("tls_name", "a DNS name or an IP address"));
        }
        Ok((files, name))
    }
}

#[cfg(feature = "raft")]
impl Options {
    /// The text, which is not empty.
    pub(super) fn required(&self, option: &str) -> Result<&str, OpenError> {
        self.filled(option)?.ok_or_else(|| self.missing(option))
    }

    /// Names between commas and spaces, each once.
    pub(super) fn names(&self, option: &str) -> Result<Vec<&str>, OpenError> {
        let text = self.text(option).ok_or_else(|| self.missing(option))?;
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() {
                return Err(self.scheme.invalid(option, "one of the names is empty"));
            }
            if names[..index].contains(name) {
                return Err(self.scheme.invalid(option, "a name is given twice"));
            }
        }
        Ok(names)
    }

    /// `150ms..300ms`, the first not longer than the second.
    pub(super) fn range(&self, option: &str) -> Result<Option<(Duration, Duration)>, OpenError> {
        self.read(option, "a range of durations such as 150ms..300ms", |text| {
            let (from, to) = text.split_once("..")?;
            let (from, to) = (duration(from)?, duration(to)?);
            (from <= to).then_some((from, to))
        })
    }
}

/// The error for the option with this number in the URL. Its name is shown if another scheme has
/// it, or if it cannot be a part of a password.
fn unknown(scheme: &Scheme, name: &str, number: usize, is_shown: bool) -> OpenError {
    let is_known = SCHEMES.iter().any(|scheme| scheme.options().contains(&name));
    let shown = match is_known || is_shown {
        true => name.to_owned(),
        false => format!("number {number} of the URL"),
    };
    let known = scheme.options().join(", ");
    scheme.problem_of(name, format!("unknown option {shown}: {} has {known}", scheme.name))
}

/// `it` with the value, if there is one.
pub(super) fn set<T, V>(it: T, value: Option<V>, set: impl FnOnce(T, V) -> T) -> T {
    match value {
        Some(value) => set(it, value),
        None => it,
    }
}

/// Whether it looks like a name, a number or a duration.
fn is_word(text: &str) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=SHOWN_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_word)
}

fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).filter(|duration| !duration.is_zero())
}
