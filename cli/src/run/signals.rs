//! The signals that `gaggle run` receives on behalf of its command.

use std::{future::poll_fn, io, task::Poll, thread};

use nix::sys::signal::{SigSet, Signal as RaisedSignal, raise};
use rustix::process::Signal;
use tokio::{
    signal::unix::{self, SignalKind},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use crate::stop::is_ignored;

/// Signals that are forwarded to the command, as SIGTSTP is. A command that is stopped stops
/// `gaggle run` too.
const FORWARDED: [Signal; 8] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
];

/// The signals that do not end a process by default.
const HARMLESS: [Signal; 3] = [Signal::WINCH, Signal::CONT, Signal::TSTP];

/// The signals that ask a command to end: afterwards no process of it runs on without the lock.
pub(super) const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// The forwarded signals, as a stream.
pub(super) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    stops: Option<UnboundedReceiver<()>>,
}

impl Signals {
    /// Receives signals from here on. A signal that is ignored at the start, as by `nohup`, stays
    /// ignored, also for the command.
    pub(super) fn new() -> io::Result<Self> {
        let is_received = |signal: &Signal| !is_ignored(*signal);
        if is_received(&Signal::XFSZ) {
            // A write beyond the limit is then an error. The command gets the default action.
            _ = receive(Signal::XFSZ)?;
        }
        let receive = |signal: Signal| Ok((signal, receive(signal)?));
        let streams = FORWARDED.into_iter().filter(is_received).map(receive);
        Ok(Self {
            streams: streams.collect::<io::Result<_>>()?,
            stops: is_received(&Signal::TSTP).then(receive_stops).transpose()?,
        })
    }

    /// The next signal. Dropping the future loses none.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            if let Some(stops) = &mut self.stops
                && let Poll::Ready(Some(())) = stops.poll_recv(context)
            {
                return Poll::Ready(Signal::TSTP);
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a process by default, while there is no command to forward it to.
    pub(super) async fn fatal(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => stop_self(Signal::TSTP),
                signal if HARMLESS.contains(&signal) => {}
                signal => return signal,
            }
        }
    }
}

/// The name of a signal, as `SIGTERM`.
pub(super) fn name(signal: Signal) -> &'static str {
    RaisedSignal::try_from(signal.as_raw()).map_or("unknown", RaisedSignal::as_str)
}

pub(super) fn receive(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// Receives SIGTSTP without a handler: it keeps its default action, for [`stop_self`].
fn receive_stops() -> io::Result<UnboundedReceiver<()>> {
    let stop = SigSet::from(RaisedSignal::SIGTSTP);
    stop.thread_block()?;
    let (sender, stops) = unbounded_channel();
    let wait = move || while stop.wait().is_ok() && sender.send(()).is_ok() {};
    thread::Builder::new().name("stops".into()).spawn(wait)?;
    Ok(stops)
}

/// Unblocks what the parent has blocked: a blocked SIGCHLD would hide the command's end.
pub(super) fn unblock_all() {
    let _ = SigSet::empty().thread_set_mask();
}

/// Stops this process with one of SIGTSTP, SIGTTIN and SIGTTOU, until SIGCONT. The system drops the
/// signal if no shell could resume the process.
pub(super) fn stop_self(signal: Signal) {
    let Ok(signal) = RaisedSignal::try_from(signal.as_raw()) else { return };
    let _ = raise(signal);
    let blocked = SigSet::from(signal);
    // A blocked signal is delivered between these lines.
    let _ = blocked.thread_unblock();
    let _ = blocked.thread_block();
}
