//! Ctrl-C and SIGTERM, which end a run early.

use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// Waits for Ctrl-C or SIGTERM. Returns the failure with which the command then ends.
pub(crate) async fn signal() -> Failure {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Failure::stopped("interrupted", 2),
        () = terminated() => Failure::stopped("terminated", 15),
    }
}

async fn terminated() {
    match unix::signal(SignalKind::terminate()) {
        Ok(mut terminated) => _ = terminated.recv().await,
        // Without a handler, SIGTERM ends the process as it does by default.
        Err(_) => std::future::pending().await,
    }
}
