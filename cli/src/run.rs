//! `gaggle run`: runs a command while this process holds the lock of a key.

mod address;
mod args;
mod command;
mod event;
mod job;
mod lock;
mod processes;
mod signals;
mod stderr;
mod terminal;
mod watchdog;

use std::{process::ExitCode, time::Duration};

use gaggle::{BootClock, Clock as _, Guard, LossCause};
use tokio::runtime::Builder;

use self::{
    args::{LOST, Settings},
    command::{NOT_EXECUTABLE, NOT_FOUND},
    event::{Cause, Event, Fate, Reporter},
    job::{End, Loss},
    signals::Signals,
    stderr::Stderr,
};
use crate::{failure::Failure, output::ms, runtime, verbosity::Verbosity};

pub(crate) use self::{
    address::{Address, in_file},
    args::{Args, UrlArgs, checked_key},
    command::{STARTER, run_starter},
    watchdog::{WATCHDOG, run_watchdog},
};

/// The exit code of wrong use, as of `timeout` and `env`.
pub(crate) const WRONG_USE: u8 = 125;

/// Runs the command on this thread: its parent-death signal is bound to the thread that starts it.
pub(crate) fn run(args: Args) -> ExitCode {
    signals::unblock_all();
    let reporter = Reporter::new(args.json, args.quiet);
    run_checked(args).unwrap_or_else(|failure| {
        reporter.report(&Event::Failed { problem: failure.to_string() });
        // No signal handler is installed yet: a signal ends this wait by its default action.
        Stderr.settle(Duration::MAX);
        ExitCode::from(WRONG_USE)
    })
}

fn run_checked(mut args: Args) -> Result<ExitCode, Failure> {
    let server = std::mem::take(&mut args.server);
    let settings = Settings::try_from(args)?;
    let warn = |problem: String| settings.reporter.report(&Event::Warning { problem });
    if let Err(failure) = Verbosity::default().start_if_chosen(|| Stderr) {
        warn(format!("{failure}; nothing is logged"));
    }
    let address = Address::find(&server)?;
    address.warning().into_iter().for_each(|problem| warn(problem.into()));
    let runtime = runtime::build(&mut Builder::new_current_thread())?;
    runtime::run(runtime, async {
        // Received from here on: none is lost between the steps.
        let mut signals =
            Signals::new().map_err(|error| Failure::new("no signals").because(&error))?;
        let code = run_locked(&settings, &address, &mut signals).await;
        // No lock is held any more: the reader may take its time, until a signal.
        tokio::select! {
            () = Stderr.written() => {}
            _ = signals.fatal() => {}
        }
        Ok(ExitCode::from(code))
    })
}

async fn run_locked(settings: &Settings, address: &Address, signals: &mut Signals) -> u8 {
    let give_up_at = settings.max_wait.map(|max_wait| BootClock.now().after(max_wait));
    let locker = match lock::open(settings, address, signals, give_up_at).await {
        Ok(locker) => locker,
        Err(code) => return code,
    };
    let guard = match lock::acquire(settings, address, &locker, signals, give_up_at).await {
        Ok(guard) => guard,
        Err(code) => {
            lock::close(&locker).await;
            return code;
        }
    };
    let granted_at = BootClock.now();
    let at_least_until = granted_at.after(settings.at_least);
    settings.reporter.report(&Event::Granted {
        token: guard.fencing_token(),
        nonce: guard.nonce().to_string(),
        duration_ms: ms(settings.lease()),
        waited_ms: ms(settings.waited()),
    });
    let end = job::run(settings, address, &guard, granted_at, signals).await;
    let may_keep = !settings.free_on_failure || matches!(end, Ok(End::Code(0)));
    // The exit code, and whether the command has run.
    let (code, has_run) = match end {
        Ok(End::Lost(loss)) => {
            settings.reporter.report(&lost(settings, &guard, loss));
            (LOST, loss.0 != Fate::NotStarted)
        }
        Ok(End::Code(code)) => {
            settings.reporter.report(&Event::Ended { code });
            (code, !matches!(code, NOT_EXECUTABLE | NOT_FOUND))
        }
        Ok(End::NotStarted(code)) => (code, false),
        Ok(End::Survived { code, loss }) => {
            let lost = loss.map(|loss| lost(settings, &guard, loss));
            let ended = code.map(|code| Event::Ended { code });
            lost.or(ended).iter().for_each(|event| settings.reporter.report(event));
            let code = code.unwrap_or(LOST);
            if guard.is_valid() {
                let problem = "processes of the command could not be ended";
                let cure =
                    "if they run as another user, use `sudo gaggle run`, not `gaggle run … sudo`";
                let reason = format!("is not unlocked: {problem}; {cure}");
                settings.reporter.report(&Event::NotUnlocked { reason });
                // What runs on is covered until the lease ends.
                match BootClock.now() < at_least_until {
                    true => lock::keep(settings, guard, at_least_until, signals).await,
                    false => drop(guard.into_lock()),
                }
                return code;
            }
            (code, true)
        }
        Err(error) => {
            let problem = Failure::new("the command was not started").because(&error).to_string();
            settings.reporter.report(&Event::Failed { problem });
            (WRONG_USE, false)
        }
    };
    let is_lost = code == LOST && !guard.is_valid();
    if has_run && may_keep && !is_lost && BootClock.now() < at_least_until {
        lock::keep(settings, guard, at_least_until, signals).await;
    } else if is_lost {
        drop(guard);
        lock::close(&locker).await;
    } else {
        lock::unlock(settings, address, &locker, guard, signals).await;
    }
    code
}

/// The loss of a lock, or of the right to run under it.
fn lost(settings: &Settings, guard: &Guard, (command, cause): Loss) -> Event {
    let cause = cause.or_else(|| match guard.loss() {
        // SIGTERM precedes the deadline.
        None if command == Fate::Ended => None,
        None | Some(LossCause::Deadline) => Some(Cause::Deadline),
        Some(LossCause::Forced) => Some(Cause::Forced),
        Some(_) => Some(Cause::Ended),
    });
    let by = guard.loss_note().filter(|_| cause == Some(Cause::Forced));
    let by = by.map(|note| note.to_string());
    let extend_error = guard.extend_error().filter(|_| cause == Some(Cause::Deadline));
    let extend_error = extend_error.map(|it| it.to_string());
    Event::Lost { cause, by, extend_error, command, max_hold: settings.max_hold }
}
