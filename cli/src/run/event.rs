//! What `gaggle run` reports: each event is a line of text, or a JSON object with `--json`.

use std::{io::Write as _, time::Duration};

use gaggle::Owner;
use humantime::format_duration;
use serde::Serialize;

use super::stderr::Stderr;
use crate::output::{json, printable};

/// How long most events may delay what follows.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// How long a grant may delay the start of its command. No signal is handled meanwhile.
const GRANT_DELAY_MAX: Duration = Duration::from_millis(500);

/// An event of one run. Fields that are skipped are for the text alone.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// Something that changes nothing.
    Warning {
        #[serde(skip)]
        problem: String,
    },
    /// The server cannot be used yet.
    Waiting {
        kind: String,
        #[serde(skip)]
        reason: String,
    },
    /// This signal ended the run before the command started.
    Interrupted { signal: &'static str },
    /// Another process holds the key, and `--try` waits for none.
    Held {
        holder: Option<Owner>,
        #[serde(skip)]
        reason: String,
    },
    /// Another process held the key for `--max-wait`.
    TimedOut {
        holder: Option<Owner>,
        waited_ms: u64,
        #[serde(skip)]
        reason: String,
    },
    /// The server cannot be used.
    Unavailable {
        kind: String,
        server: String,
        #[serde(skip)]
        reason: String,
    },
    /// Wrong use, or the system gives no process or file.
    Failed {
        #[serde(skip)]
        problem: String,
    },
    /// The wait includes connecting.
    Granted { token: u64, nonce: String, duration_ms: u64, waited_ms: u64 },
    /// The command's program cannot be executed.
    NotExecuted {
        program: String,
        #[serde(skip)]
        reason: String,
    },
    /// This signal was forwarded to the command.
    Signalled { signal: &'static str },
    /// The command takes no signal.
    NotPermitted,
    /// Another process ended the watchdog, which its command outlived.
    Unwatched,
    /// The command ended, under its lock.
    Ended { code: u8 },
    /// The command ran, or would have run, without its lock.
    Lost {
        cause: Option<Cause>,
        /// Who force-unlocked the key, and why.
        by: Option<String>,
        /// Why the lease was not extended.
        extend_error: Option<String>,
        command: Fate,
        #[serde(skip)]
        max_hold: Duration,
    },
    /// The key is free, or the next waiter's.
    Unlocked,
    /// The key is not unlocked: its lease ends later, or has ended.
    NotUnlocked {
        #[serde(skip)]
        reason: String,
    },
    /// The key is left to its lease, for `--at-least`: it is free after this time.
    Kept { for_ms: u64 },
    /// The key is not known to be kept: it can be free earlier than `--at-least`.
    NotKept {
        #[serde(skip)]
        reason: String,
    },
}

/// Why a run has no lock any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// The lease was not extended in time.
    Deadline,
    /// The server does not have the lock any more.
    Ended,
    /// Another process unlocked it.
    Forced,
    /// `--max-hold` was reached.
    MaxHold,
    /// The watchdog has ended, without which no command runs.
    Watchdog,
}

/// What became of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fate {
    NotStarted,
    /// The command ended without a signal of this program.
    Ended,
    /// SIGTERM ended it.
    Terminated,
    /// SIGKILL ended it.
    Killed,
    /// The command takes no signal.
    Running,
}

const NOT_PERMITTED: &str = "the command runs as another user and takes no signal, also when its \
                             lock is lost; use `sudo gaggle run`, not `gaggle run … sudo`";
const RUNS_ON: &str = "the command runs on, it takes no signal";
const UNWATCHED: &str =
    "the watchdog was stopped or ended: processes that the command left were killed";

impl Event {
    /// How long it may delay what follows, so that the output of the command comes after it. No
    /// command runs yet when the lock is granted, and the lease is new.
    fn delay_max(&self) -> Duration {
        match self {
            Self::Granted { duration_ms, .. } => {
                Duration::from_millis(duration_ms / 20).clamp(DELAY_MAX, GRANT_DELAY_MAX)
            }
            _ => DELAY_MAX,
        }
    }

    /// The line without `--json`; `None` for an event that only JSON shows.
    fn text(&self, key: &str) -> Option<String> {
        Some(match self {
            Self::Warning { problem } | Self::Failed { problem } => problem.clone(),
            Self::Waiting { reason, .. } => format!("waiting for the server: {reason}"),
            Self::Held { reason, .. } | Self::TimedOut { reason, .. } => {
                format!("{reason}; not run")
            }
            // Most reasons have the address.
            Self::Unavailable { server, reason, .. } if !reason.contains(server) => {
                format!("{key:?} was not locked at {server}: {reason}; not run")
            }
            Self::Unavailable { reason, .. } => {
                format!("{key:?} was not locked: {reason}; not run")
            }
            Self::NotExecuted { program, reason } => {
                format!("{program:?} cannot be executed: {reason}")
            }
            Self::NotPermitted => NOT_PERMITTED.into(),
            Self::Unwatched => UNWATCHED.into(),
            Self::Lost { cause, by, extend_error, command, max_hold } => {
                let what = lost(*cause, *command, *max_hold);
                format!("{key:?} {what}{}", because(*cause, by.as_deref(), extend_error.as_deref()))
            }
            Self::NotUnlocked { reason } => format!("{key:?} {reason}"),
            Self::NotKept { reason } => format!("{key:?} is not kept for --at-least: {reason}"),
            Self::Interrupted { .. }
            | Self::Granted { .. }
            | Self::Signalled { .. }
            | Self::Ended { .. }
            | Self::Unlocked
            | Self::Kept { .. } => return None,
        })
    }

    fn is_hidden_by_quiet(&self) -> bool {
        matches!(
            self,
            Self::Warning { .. } | Self::Waiting { .. } | Self::Held { .. } | Self::TimedOut { .. }
        )
    }
}

/// The rest of a sentence that begins with the key.
fn lost(cause: Option<Cause>, command: Fate, max_hold: Duration) -> String {
    match (cause, command) {
        (Some(Cause::MaxHold), Fate::Running) => {
            format!("reached --max-hold {}; {RUNS_ON}", format_duration(max_hold))
        }
        (Some(Cause::MaxHold), _) => {
            format!("reached --max-hold {}; the command was ended", format_duration(max_hold))
        }
        (Some(Cause::Watchdog), _) => {
            let by = "which another process stopped or ended; the command was killed";
            format!("lost its watchdog, {by}")
        }
        (_, Fate::NotStarted) => "was lost before the command started; not run".into(),
        (_, Fate::Ended) => {
            "was lost as the command ended; its last work may be unprotected".into()
        }
        (_, Fate::Terminated) => "was lost; the command was ended with SIGTERM".into(),
        (_, Fate::Killed) => "was lost; the command was ended with SIGKILL".into(),
        (_, Fate::Running) => format!("was lost; {RUNS_ON}"),
    }
}

/// The end of that sentence.
fn because(cause: Option<Cause>, by: Option<&str>, extend_error: Option<&str>) -> String {
    match cause {
        Some(Cause::Deadline) => {
            let extend_error =
                extend_error.map(|it| format!(": {}", printable(it))).unwrap_or_default();
            format!(": its lease was not extended in time{extend_error}")
        }
        Some(Cause::Ended) => ": the server does not have it any more".into(),
        Some(Cause::Forced) => {
            format!(": force-unlocked by {}", printable(by.unwrap_or("another process")))
        }
        Some(Cause::MaxHold | Cause::Watchdog) | None => String::new(),
    }
}

/// Prints events to standard error. A closed or full standard error is not a failure.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    /// Empty until it is checked.
    key: String,
    is_json: bool,
    is_quiet: bool,
}

impl Reporter {
    pub(super) fn new(is_json: bool, is_quiet: bool) -> Self {
        Self { key: String::new(), is_json, is_quiet }
    }

    pub(super) fn with_key(self, key: String) -> Self {
        Self { key, ..self }
    }

    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }

    pub(super) fn report(&self, event: &Event) {
        if self.is_quiet && event.is_hidden_by_quiet() {
            return;
        }
        if let Some(line) = self.line(event) {
            let _ = Stderr.write_all(format!("{line}\n").as_bytes());
            Stderr.settle(event.delay_max());
        }
    }

    fn line(&self, event: &Event) -> Option<String> {
        let text = event.text(&self.key);
        if !self.is_json {
            return text.map(|text| format!("gaggle: {text}"));
        }
        let mut object = serde_json::to_value(event).expect("its keys are strings");
        if !self.key.is_empty() {
            object["key"] = self.key.as_str().into();
        }
        if let Some(text) = text {
            object["text"] = text.into();
        }
        Some(json(&object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_text_and_its_own_fields() {
        let owner = Owner { host: "h".into(), pid: 7, label: Some("nightly".into()) };
        let reason = "\"k\" is held by h, pid 7 (nightly)".to_owned();
        let held = Event::Held { holder: Some(owner), reason };
        let reporter = Reporter::new(false, false).with_key("k".into());
        let text = reporter.line(&held).unwrap();
        assert_eq!(text, "gaggle: \"k\" is held by h, pid 7 (nightly); not run");
        let reporter = Reporter::new(true, false).with_key("k".into());
        let object: serde_json::Value =
            serde_json::from_str(&reporter.line(&held).unwrap()).unwrap();
        assert_eq!(
            object,
            serde_json::json!({
                "event": "held",
                "key": "k",
                "holder": { "host": "h", "pid": 7, "label": "nightly" },
                "text": text.strip_prefix("gaggle: ").unwrap(),
            })
        );
    }

    #[test]
    fn event_without_text_is_shown_by_json_alone() {
        let ended = Event::Ended { code: 7 };
        let (text, json) = (Reporter::new(false, false), Reporter::new(true, false));
        assert_eq!(text.line(&ended), None);
        assert_eq!(json.line(&ended).unwrap(), r#"{"code":7,"event":"ended"}"#);
    }

    #[test]
    fn stalled_reader_delays_the_command_half_a_second() {
        let delay_ms = |duration_ms| {
            let (nonce, token, waited_ms) = (String::new(), 1, 0);
            Event::Granted { token, nonce, duration_ms, waited_ms }.delay_max().as_millis()
        };
        assert_eq!([100, 2_000, 10_000, 86_400_000].map(delay_ms), [20, 100, 500, 500]);
    }

    #[test]
    fn loss_is_one_sentence_with_its_cause() {
        let lost = |cause, command| {
            let by = Some("h, pid 7: alice: it's stuck\u{1b}".into());
            let (extend_error, max_hold) = (Some("refused\n".into()), Duration::from_secs(86_400));
            Event::Lost { cause, by, extend_error, command, max_hold }.text("k").unwrap()
        };
        for (cause, command, text) in [
            (None, Fate::Ended, "was lost as the command ended; its last work may be unprotected"),
            (Some(Cause::MaxHold), Fate::Killed, "reached --max-hold 1day; the command was ended"),
            (
                Some(Cause::MaxHold),
                Fate::Running,
                "reached --max-hold 1day; the command runs on, it takes no signal",
            ),
            (
                Some(Cause::Ended),
                Fate::Running,
                "was lost; the command runs on, it takes no signal: the server does not have it any \
                 more",
            ),
            (
                Some(Cause::Deadline),
                Fate::Killed,
                "was lost; the command was ended with SIGKILL: its lease was not extended in time: \
                 refused\\n",
            ),
            (
                Some(Cause::Forced),
                Fate::NotStarted,
                "was lost before the command started; not run: force-unlocked by h, pid 7: alice: \
                 it's stuck\\u{1b}",
            ),
        ] {
            assert_eq!(lost(cause, command), format!("\"k\" {text}"));
        }
    }
}
