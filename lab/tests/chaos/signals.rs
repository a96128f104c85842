//! Signals to processes that this test started, by id.

use std::time::Duration;

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// Sends a signal; a process that has ended is no error.
pub(crate) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Stops a process, and returns when all of it stands.
pub(crate) fn stop(pid: u32) {
    send(pid, Signal::STOP);
    for _ in 0..1000 {
        if is_stopped(pid) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the kernel says that it stands.
pub(crate) fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}
