//! The options of `gaggle run`, and the settings that they make together.

use std::{ffi::OsString, path::PathBuf, sync::LazyLock, time::Duration};

use gaggle::{BootClock, Clock as _, Instant, LockOptions, MaxWait};
use gaggle_strategies::{
    defaults,
    limits::{DURATION_MAX, KEY_BYTES_MAX, LABEL_BYTES_MAX},
};
use humantime::format_duration;

use super::event::Reporter;
use crate::{duration, failure::Failure, utf8::utf8};

/// The default of `--duration`, as the parser of options takes it.
static LEASE: LazyLock<String> = LazyLock::new(|| format_duration(defaults::LEASE).to_string());

/// The default of `--max-hold`.
const MAX_HOLD: &str = "24h";

/// The shortest lease: a command needs time to start.
const LEASE_MIN: Duration = Duration::from_millis(100);

/// The longest time between SIGTERM and SIGKILL that is chosen without `--kill-after`.
const KILL_AFTER_MAX: Duration = Duration::from_secs(5);

/// The exit code if the server cannot be used.
pub(super) const UNAVAILABLE: u8 = 122;

/// The exit code if the lock was lost and the command was ended.
pub(super) const LOST: u8 = 123;

/// The exit code if another process holds the key.
pub(super) const NOT_ACQUIRED: u8 = 124;

const MISSING_KEY: &str = "the key is missing: gaggle run <KEY> -- <COMMAND>, or gaggle run -- \
                           <KEY> -- <COMMAND> for a key that begins with -";

/// The options of `gaggle run`.
#[derive(clap::Args)]
#[command(override_usage = "gaggle run [OPTIONS] <KEY> -- <COMMAND>...")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) server: UrlArgs,
    /// Wait this long for the server and the key, as 500ms, at most 24h, or forever; 0 is --try
    /// [default: 5s; 1s with --try].
    #[arg(long, value_name = "DURATION", value_parser = duration::max_wait)]
    max_wait: Option<MaxWait>,
    /// Wait only for the server: run the command if the key is free now. Without it, each machine
    /// that starts a scheduled job waits for its turn and runs it.
    #[arg(long = "try")]
    try_now: bool,
    /// The lease, 100ms to 24h, which is extended while the command runs: after a crash of this
    /// machine the key is free after this long.
    #[arg(long, value_name = "DURATION", default_value = LEASE.as_str())]
    #[arg(value_parser = duration::between(LEASE_MIN, DURATION_MAX))]
    duration: Duration,
    /// End the command after this long, 100ms to 1year.
    #[arg(long, value_name = "DURATION", default_value = MAX_HOLD)]
    #[arg(value_parser = duration::between(LEASE_MIN, duration::YEAR))]
    max_hold: Duration,
    /// The time between SIGTERM and SIGKILL: at most half of --duration, and 1s after a sudden loss
    /// [default: a quarter of --duration, at most 5s].
    #[arg(long, value_name = "DURATION", value_parser = duration::between(Duration::ZERO, duration::YEAR))]
    kill_after: Option<Duration>,
    /// Keep the key for at least this long (at most 24h), and until its lease ends, also if the
    /// command ends earlier. With --try, machines whose clocks differ by less than this run a
    /// scheduled job once.
    #[arg(long, value_name = "DURATION")]
    #[arg(value_parser = duration::between(Duration::ZERO, DURATION_MAX))]
    at_least: Option<Duration>,
    /// Unlock the key at once if the command fails, also before --at-least has passed. A retry on
    /// any machine can then run it.
    #[arg(long)]
    free_on_failure: bool,
    /// A name that others see as the holder, with host and process id.
    #[arg(long, value_parser = utf8())]
    label: Option<String>,
    /// Print no warning, and nothing if another process holds the key.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print JSON to standard error, one object an event.
    #[arg(long)]
    pub(super) json: bool,
    /// The exit code if another process holds the key. The code is always 124 if the holder ran on
    /// this host and has ended: its job may have failed.
    #[arg(long, value_name = "N", default_value_t = NOT_ACQUIRED)]
    exit_not_acquired: u8,
    /// The key, 1 to 1024 bytes of UTF-8. A key that begins with `-` follows another
    /// `--`: gaggle run -- -KEY -- COMMAND.
    #[arg(required_unless_present = "command")]
    key: Option<OsString>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The lock server of a command. Without `Debug`, which would show a password.
#[derive(Default, clap::Args)]
pub(crate) struct UrlArgs {
    /// The lock server [env: GAGGLE_URL]: a Redis, as redis://[[user]:password@]host[:port][/db], or
    /// the nodes of a `gaggle serve`, as http://[:TOKEN@]host:port[,host:port...].
    #[arg(long, value_name = "URL", conflicts_with = "url_file")]
    pub(super) url: Option<String>,
    /// A file that contains the URL: a password in an argument is visible to other users.
    #[arg(long, value_name = "PATH")]
    pub(super) url_file: Option<PathBuf>,
}

/// The checked options of one run.
pub(super) struct Settings {
    pub(super) key: String,
    pub(super) command: Vec<OsString>,
    /// The options but the wait, a part of which connecting may take.
    pub(super) lock: LockOptions,
    /// Do not wait for the key.
    pub(super) try_now: bool,
    /// The longest wait for the server and the key; `None` is unbounded.
    pub(super) max_wait: Option<Duration>,
    pub(super) max_hold: Duration,
    pub(super) kill_after: Duration,
    pub(super) at_least: Duration,
    pub(super) free_on_failure: bool,
    pub(super) reporter: Reporter,
    pub(super) started: Instant,
    pub(super) exit_not_acquired: u8,
}

impl Settings {
    pub(super) fn lease(&self) -> Duration {
        self.lock.get_duration()
    }

    /// The time since the start.
    pub(super) fn waited(&self) -> Duration {
        BootClock.now().since(self.started)
    }
}

/// The key of an argument.
pub(crate) fn checked_key(key: OsString) -> Result<String, Failure> {
    let Ok(key) = key.into_string() else {
        return Err(Failure::new("the key is not UTF-8: choose another"));
    };
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let bytes = key.len();
        return Err(Failure::new(format!("the key has {bytes} bytes: give 1 to {KEY_BYTES_MAX}")));
    }
    Ok(key)
}

/// The parser takes all behind the first `--` for the command, also a key that begins with `-`.
fn key_and_command(
    key: Option<OsString>,
    mut command: Vec<OsString>,
) -> Result<(OsString, Vec<OsString>), Failure> {
    if let Some(key) = key {
        return Ok((key, command));
    }
    let begins_with_dash = command[0].as_encoded_bytes().starts_with(b"-");
    if begins_with_dash && command.len() > 2 && command[1] == "--" {
        let rest = command.split_off(2);
        return Ok((command.swap_remove(0), rest));
    }
    Err(Failure::new(MISSING_KEY))
}

impl TryFrom<Args> for Settings {
    type Error = Failure;

    fn try_from(args: Args) -> Result<Self, Failure> {
        let wrong = |problem: String| Err(Failure::new(problem));
        let (key, command) = key_and_command(args.key, args.command)?;
        let key = checked_key(key)?;
        let label_bytes = args.label.as_ref().map_or(0, String::len);
        if label_bytes > LABEL_BYTES_MAX {
            return wrong(format!(
                "--label has {label_bytes} bytes: give at most {LABEL_BYTES_MAX}"
            ));
        }
        let (lease, max_hold) = (args.duration, args.max_hold);
        // The first extension is at a third of the lease: an earlier SIGTERM would always come.
        let kill_after = args.kill_after.unwrap_or_else(|| (lease / 4).min(KILL_AFTER_MAX));
        if kill_after > lease / 2 {
            let (given, limit) = (format_duration(kill_after), format_duration(lease / 2));
            return wrong(format!(
                "--kill-after {given}: the limit is half of --duration, {limit}; give a longer \
                 --duration or a shorter --kill-after"
            ));
        }
        if max_hold < lease {
            let (given, limit) = (format_duration(max_hold), format_duration(lease));
            return wrong(format!(
                "--max-hold {given}: it is at least --duration, {limit}; give a shorter --duration \
                 or a longer --max-hold"
            ));
        }
        let try_now = args.try_now || args.max_wait == Some(MaxWait::AtMost(Duration::ZERO));
        let max_wait = match args.max_wait {
            Some(MaxWait::Forever) => None,
            Some(MaxWait::AtMost(max_wait)) if !max_wait.is_zero() => Some(max_wait),
            _ if try_now => Some(defaults::REQUEST_TIMEOUT),
            _ => Some(defaults::MAX_WAIT),
        };
        let mut lock = LockOptions::default().duration(lease);
        if let Some(label) = args.label {
            lock = lock.label(label);
        }
        Ok(Self {
            started: BootClock.now(),
            reporter: Reporter::new(args.json, args.quiet).with_key(key.clone()),
            key,
            command,
            lock,
            try_now,
            max_wait,
            max_hold,
            kill_after,
            at_least: args.at_least.unwrap_or_default(),
            free_on_failure: args.free_on_failure,
            exit_not_acquired: args.exit_not_acquired,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    /// `tests/defaults.rs` of the library has the others.
    #[test]
    fn page_and_help_state_the_defaults() {
        let help = Args::augment_args(clap::Command::new("run")).render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let page = include_str!("../../../docs/scheduled-jobs.md");
        let (lease, kill_after) = (LEASE.as_str(), format_duration(KILL_AFTER_MAX).to_string());
        for part in [
            format!("[default: {lease}]"),
            format!("[default: {MAX_HOLD}]"),
            format!("[default: a quarter of --duration, at most {kill_after}]"),
        ] {
            assert!(help.contains(&part), "{part}: {help}");
        }
        let spaced = |text: &str| text.replace('s', " s").replace('h', " h");
        for part in [
            format!("| `--max-hold` | {} |", spaced(MAX_HOLD)),
            format!("a quarter of `--duration`, at most {} |", spaced(&kill_after)),
        ] {
            assert!(page.contains(&part), "{part}");
        }
    }
}
