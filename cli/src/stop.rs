//! Ctrl-C, SIGTERM and SIGHUP, which end a run early.

use std::fs;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::{failure::Failure, output::say};

/// Waits for Ctrl-C, SIGTERM or SIGHUP, unless it is ignored: SIGINT after `&` in a script, SIGHUP
/// after `nohup`. Returns the failure with which the command then ends.
pub(crate) async fn signal() -> Failure {
    tokio::select! {
        () = received(SignalKind::interrupt()), if !is_ignored(Signal::INT) => {
            Failure::stopped("interrupted", 2)
        }
        () = received(SignalKind::terminate()) => Failure::stopped("terminated", 15),
        () = received(SignalKind::hangup()), if !is_ignored(Signal::HUP) => {
            Failure::stopped("hung up", 1)
        }
    }
}

/// Prints a text after a run. The run's signal handlers stay installed, so a signal ends the wait
/// for a stalled reader here.
pub(crate) async fn say_unless_stopped(text: String) -> Result<(), Failure> {
    tokio::select! {
        shown = tokio::task::spawn_blocking(|| say(text)) => shown.expect("it does not panic"),
        stopped = signal() => Err(stopped),
    }
}

/// Whether this process ignores the signal; false where the system does not say.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

async fn received(signal: SignalKind) {
    match unix::signal(signal) {
        Ok(mut signals) => _ = signals.recv().await,
        // A signal without a handler ends the process, as it does by default.
        Err(_) => std::future::pending().await,
    }
}
