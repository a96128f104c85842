//! The URL of `gaggle run`: where it comes from, and how it is shown without its password.

use std::{env, fmt, path::Path};

use gaggle::{Url, channels::internal::private_file};

use super::{args::UrlArgs, processes::NONCE};
use crate::{
    failure::Failure,
    server_url::{self, EXAMPLE, HTTP, REDIS},
};

const URL_FILE_BYTES_MAX: u64 = 64 * 1024;

/// The lock server of a run.
pub(crate) struct Address {
    url: Url,
    /// The server, for messages.
    shown: String,
    source: Source,
}

/// The place where a URL was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Argument,
    File,
    Variable,
    /// A variable that a `gaggle run` has set for its command.
    Run,
}

impl Source {
    fn explain(self, mut reason: String) -> String {
        if self == Self::Run && reason.contains("password") {
            reason += "; gaggle run leaves the password out of the GAGGLE_URL of its command: give \
                       --url-file";
        }
        reason
    }
}

const PASSWORD_IN_ARGUMENT: &str = "--url contains a password, which every user of this machine \
                                    can see: set GAGGLE_URL, or give --url-file";

impl Address {
    /// Finds the URL in the options or in `GAGGLE_URL`, before any request is sent.
    pub(crate) fn find(args: &UrlArgs) -> Result<Self, Failure> {
        if let Some(url) = &args.url {
            return Self::parse(url.trim(), Source::Argument);
        }
        if let Some(path) = &args.url_file {
            return in_file(path, |text| Self::parse(text, Source::File), |it| &it.url);
        }
        match env::var("GAGGLE_URL") {
            Ok(url) if !url.trim().is_empty() => {
                let is_from_run = env::var_os(NONCE).is_some();
                let source = if is_from_run { Source::Run } else { Source::Variable };
                Self::parse(url.trim(), source)
            }
            Err(env::VarError::NotUnicode(_)) => Err(Failure::new("GAGGLE_URL is not UTF-8")),
            _ => {
                let sources = "set GAGGLE_URL, or give --url or --url-file";
                Err(Failure::new(format!("no lock server is given: {sources}; {EXAMPLE}")))
            }
        }
    }

    /// Refuses URLs of members and of strategies of one process. No message shows the URL.
    fn parse(text: &str, source: Source) -> Result<Self, Failure> {
        let wrong = |problem: &str| Failure::new(format!("{problem}; {EXAMPLE}"));
        if text.is_empty() {
            return Err(wrong("the URL is empty: give that of a lock server"));
        }
        if text.contains(['\n', '\r']) {
            return Err(wrong("more than one line is given: give one URL, and nothing else"));
        }
        if text.starts_with(['\'', '"', '\u{feff}']) {
            let problem = "the URL begins with a quotation mark or a byte order mark: leave it out";
            return Err(wrong(problem));
        }
        if text.split(':').next().unwrap_or_default().contains('=') {
            return Err(wrong("more than a URL is given: leave out what precedes it"));
        }
        let url = server_url::parse(text, &[REDIS, HTTP]);
        let url = url.map_err(|problem| Failure::new(source.explain(problem)))?;
        let shown = url.address();
        Ok(Self { url, shown, source })
    }

    /// What to say of it before it is used.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        let is_shown = self.source == Source::Argument && self.url.has_password();
        is_shown.then_some(PASSWORD_IN_ARGUMENT)
    }

    /// The URL to open.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The server, for messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The reason of a failure, and the remedy for a password that `gaggle run` has left out.
    pub(crate) fn explain(&self, reason: String) -> String {
        self.source.explain(reason)
    }
}

/// Parses the URL in a file, which only this user may read if it has a password.
pub(crate) fn in_file<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, Failure>,
    url: impl FnOnce(&T) -> &Url,
) -> Result<T, Failure> {
    let name = path.display();
    let failed = |problem: &dyn fmt::Display| Failure::new(format!("--url-file {name}: {problem}"));
    let text = private_file::read(path, URL_FILE_BYTES_MAX).map_err(|problem| failed(&problem))?;
    let parsed = parse(text.trim()).map_err(|failure| failed(&failure))?;
    if url(&parsed).has_password() {
        private_file::check(path)
            .map_err(|problem| failed(&format!("it contains a password, and {problem}")))?;
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_more_or_less_than_a_url_is_named() {
        for (text, problem) in [
            ("", "the URL is empty"),
            ("redis://u:p@h\nredis://u:q@i", "more than one line"),
            ("# my redis\nredis://h", "more than one line"),
            ("gaggle+memory://d?name=a&members=a", "of a voting member"),
            ("localhost", "the scheme is missing"),
            ("GAGGLE_URL=redis://h", "more than a URL"),
            ("export X=redis://h", "more than a URL"),
            ("'redis://h'", "begins with a quotation mark"),
            ("\"redis://h\"", "begins with a quotation mark"),
            ("\u{feff}redis://h", "or a byte order mark: leave it out"),
        ] {
            let failure = Address::parse(text, Source::Variable).err().unwrap().to_string();
            assert!(failure.contains(problem), "{text:?}: {failure}");
        }
    }
}
