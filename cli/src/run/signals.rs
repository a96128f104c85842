//! The signals that `gaggle run` receives on behalf of its command.

use std::{fs, future::poll_fn, io, task::Poll};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Forwarded to the command. One that TSTP stops also stops `gaggle run`.
const FORWARDED: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    Signal::TSTP,
];

/// The signals that do not end a process by default.
const HARMLESS: [Signal; 3] = [Signal::WINCH, Signal::CONT, Signal::TSTP];

/// The signals that ask a command to end: afterwards no process of it runs on without the lock.
pub(super) const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// The forwarded signals, as a stream.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Receives signals from here on. A signal that is ignored at the start, as by `nohup`, stays
    /// ignored, also for the command.
    pub(super) fn new() -> io::Result<Self> {
        let ignored = ignored();
        let is_received = |signal: &Signal| ignored & (1 << (signal.as_raw() - 1)) == 0;
        let receive = |signal: Signal| Ok((signal, receive(signal)?));
        FORWARDED.into_iter().filter(is_received).map(receive).collect::<io::Result<_>>().map(Self)
    }

    /// The next signal. Dropping the future loses none.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a process by default, while there is no command to forward it to.
    pub(super) async fn fatal(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => stop_self(),
                signal if HARMLESS.contains(&signal) => {}
                signal => return signal,
            }
        }
    }
}

pub(super) fn receive(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// Stops this process as Ctrl-Z does, until SIGCONT.
pub(super) fn stop_self() {
    // It cannot fail: the process exists and is this one's own.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// The signals that this process ignores, one bit each; none where the system does not say.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
