//! Ctrl-C and SIGTERM, which end a run early.

use std::fs;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// Waits for Ctrl-C or SIGTERM. Returns the failure with which the command then ends.
pub(crate) async fn signal() -> Failure {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Failure::stopped("interrupted", 2),
        () = terminated() => Failure::stopped("terminated", 15),
    }
}

/// Whether this process ignores a signal: none where the system does not say.
pub(crate) fn ignored() -> impl Fn(Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    move |signal| mask & (1 << (signal.as_raw() - 1)) != 0
}

async fn terminated() {
    match unix::signal(SignalKind::terminate()) {
        Ok(mut terminated) => _ = terminated.recv().await,
        // Without a handler, SIGTERM ends the process as it does by default.
        Err(_) => std::future::pending().await,
    }
}
