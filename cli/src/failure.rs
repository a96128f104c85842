//! The failure of a command: one line of text and an exit code.

use std::{error::Error, fmt, process::ExitCode};

pub(crate) const BUILT_WITHOUT_TLS: &str = "this gaggle was built without TLS: install it by \
                                           `cargo install --path cli --features tls`";

/// Why a command failed, in one line for the user.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    exit_code: u8,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit_code: Self::EXIT_CODE }
    }

    /// The failure that an error and its sources state.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let failure = Self::new(error.to_string());
        match error.source() {
            Some(source) => failure.because(source),
            None => failure,
        }
    }

    /// A signal stopped the command. Shells expect 128 and the signal's number.
    pub(crate) fn stopped(text: &str, signal: u8) -> Self {
        Self { text: text.into(), exit_code: 128 + signal }
    }

    /// The same failure with another exit code.
    pub(crate) fn with_exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }

    /// 1 is reserved for a lost update.
    const EXIT_CODE: u8 = 2;

    /// Appends the cause and its sources. A text that the line already ends with is not repeated.
    pub(crate) fn because(mut self, cause: &(dyn Error + 'static)) -> Self {
        let mut next = Some(cause);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !self.text.ends_with(&text) {
                self.text.push_str(": ");
                self.text.push_str(&text);
            }
            next = cause.source();
        }
        self
    }

    /// Prefixes the name of the run that failed, except after a signal.
    pub(crate) fn during(mut self, run: &str) -> Self {
        if self.exit_code == Self::EXIT_CODE {
            self.text = format!("{run}: {}", self.text);
        }
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_code)
    }
}

impl Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
