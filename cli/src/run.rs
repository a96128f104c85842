//! `gaggle run`: runs a command while this process holds the lock of a key.

mod address;
mod args;
mod command;
mod job;
mod lock;
mod processes;
mod signals;
mod span;
mod terminal;
mod watchdog;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use gaggle::{BootClock, Clock as _, Guard, LossCause};

use self::{
    args::Settings,
    command::{NOT_EXECUTABLE, NOT_FOUND},
    job::{End, Reason},
    signals::Signals,
    watchdog::Verdict,
};
use crate::{failure::Failure, verbosity::Verbosity};

pub(crate) use self::{
    address::Address,
    args::{Args, UrlArgs, checked_key},
    command::{STARTER, run_starter},
    watchdog::{WATCHDOG, run_watchdog},
};

/// The exit code of wrong use, as of `timeout` and `env`.
pub(crate) const WRONG_USE: u8 = 125;

/// Runs the command on this thread: its parent-death signal is bound to the thread that starts it.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    signals::unblock_all();
    if let Err(failure) = Verbosity::default().start_if_chosen()
        && !args.quiet
    {
        notice(&format!("{failure}; nothing is logged"));
    }
    let address = Address::find(&args.server, args.quiet)?;
    let settings = Settings::try_from(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("no runtime", &error))?;
    runtime.block_on(run_locked(&settings, &address)).map(ExitCode::from)
}

async fn run_locked(settings: &Settings, address: &Address) -> Result<u8, Failure> {
    // Received from here on: none is lost between the steps.
    let mut signals = Signals::new().map_err(|error| failed("no signals", &error))?;
    let give_up_at = settings.max_wait.map(|max_wait| BootClock.now().after(max_wait));
    let locker = match lock::open(settings, address, &mut signals, give_up_at).await {
        Ok(locker) => locker,
        Err(code) => return Ok(code),
    };
    let guard = match lock::acquire(settings, address, &locker, &mut signals, give_up_at).await {
        Ok(guard) => guard,
        Err(code) => {
            lock::close(&locker).await;
            return Ok(code);
        }
    };
    let at_least_until = BootClock.now().after(settings.at_least);
    let end = job::run(settings, address, &guard, &mut signals).await;
    // The exit code, and whether the command has run.
    let (code, has_run) = match end.map_err(|error| failed("the command was not started", &error)) {
        Ok(End::Lost(reason)) => {
            notice(&format!("{:?} {reason}{}", settings.key, cause(&guard, &reason)));
            (settings.exit_lost, !matches!(reason, Reason::NotStarted))
        }
        Ok(End::Code(code)) => (code, !matches!(code, NOT_EXECUTABLE | NOT_FOUND)),
        Ok(End::NotStarted(code)) => (code, false),
        Ok(End::Survived(code)) => {
            let problem = "processes of the command could not be ended";
            let cure =
                "if they run as another user, use `sudo gaggle run`, not `gaggle run … sudo`";
            notice(&format!("{:?} is not unlocked: {problem}; {cure}", settings.key));
            // What runs on is covered until the lease ends.
            lock::keep(guard, at_least_until, &mut signals).await;
            return Ok(code.unwrap_or(settings.exit_lost));
        }
        Err(failure) => {
            notice(&failure.to_string());
            (WRONG_USE, false)
        }
    };
    let is_lost = code == settings.exit_lost && !guard.is_valid();
    if has_run && !is_lost && BootClock.now() < at_least_until {
        lock::keep(guard, at_least_until, &mut signals).await;
    } else if is_lost {
        drop(guard);
        lock::close(&locker).await;
    } else {
        lock::unlock(settings, address, &locker, guard).await;
    }
    Ok(code)
}

/// Why the lock was lost, as the end of the sentence that says so.
fn cause(guard: &Guard, reason: &Reason) -> String {
    if matches!(reason, Reason::MaxHold(_) | Reason::NoWatchdog) {
        return String::new();
    }
    match guard.loss() {
        // SIGTERM precedes the deadline.
        None if matches!(reason, Reason::Verdict(Verdict::Untouched)) => String::new(),
        Some(LossCause::Forced) => {
            let note = guard.loss_note().unwrap_or_else(|| "another process".into());
            // Both are of another process.
            format!(": force-unlocked by {}", note.escape_debug())
        }
        None | Some(LossCause::Deadline) => ": its lease was not extended in time".into(),
        Some(_) => ": the Redis does not have it any more".into(),
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(what).because(error).with_exit_code(WRONG_USE)
}

/// Prints a line to standard error. One that is closed or full is no reason to fail.
pub(crate) fn notice(text: &str) {
    let _ = writeln!(io::stderr(), "gaggle: {text}");
}
