//! The time in which the command runs: its signals, its deadline and its end.

use std::{fmt, io};

use gaggle::{BootClock, Clock as _, Guard, Instant};
use rustix::process::Signal;
use tokio::{
    signal::unix,
    time::{Interval, MissedTickBehavior},
};

use super::{
    address::Address,
    args::Settings,
    command::{Command, State},
    signals::{self, Signals},
    span,
    terminal::Terminal,
    watchdog::{Order, Verdict, Watchdog},
};

/// How often in each lease the watchdog learns the deadline: soon after each extension, which is
/// made at a third of the lease, and before half of it has passed.
const REPORTS_PER_LEASE: u32 = 12;

/// How the command ended.
pub(super) enum End {
    /// With this exit code.
    Code(u8),
    /// It was ended, or ran on without the lock.
    Lost(Reason),
}

/// Why the command was ended, as the rest of a sentence that begins with the key.
pub(super) enum Reason {
    NotStarted,
    MaxHold(String),
    Verdict(Verdict),
    NoWatchdog,
}

/// Runs the command under its watchdog, until no process of its group is left.
pub(super) async fn run(
    settings: &Settings,
    address: &Address,
    guard: &Guard,
    signals: &mut Signals,
) -> io::Result<End> {
    let children = signals::receive(Signal::CHILD)?;
    let watchdog = Watchdog::start()?;
    let command = Command::start(settings, guard, address)?;
    let hold_until = BootClock.now().after(settings.max_hold);
    let terminal = Terminal::default();
    let mut job = Job { settings, guard, children, watchdog, command, hold_until, terminal };
    let prepared = tokio::select! {
        biased;
        signal = signals.fatal() => Some(End::Code(super::lock::exit_code(signal))),
        () = guard.lost() => Some(End::Lost(Reason::NotStarted)),
        started = job.start() => started?,
    };
    match prepared {
        Some(end) => {
            job.kill().await;
            Ok(end)
        }
        None => job.watch(signals).await,
    }
}

struct Job<'a> {
    settings: &'a Settings,
    guard: &'a Guard,
    /// Completes when a child stopped or ended.
    children: unix::Signal,
    watchdog: Watchdog,
    command: Command,
    hold_until: Instant,
    terminal: Terminal,
}

impl Job<'_> {
    /// Waits until the command's process has stopped itself, has it watched, and lets it run.
    async fn start(&mut self) -> io::Result<Option<End>> {
        self.watchdog.ready().await?;
        loop {
            match self.command.state()? {
                State::Running => _ = self.children.recv().await,
                State::Stopped(_) => break,
                State::Ended(code) => return Ok(Some(End::Code(code))),
            }
        }
        let group = self.command.group().as_raw_nonzero().get();
        let kill_after = nanos(Instant::from_origin(self.settings.kill_after));
        let until = nanos(self.deadline());
        self.watchdog.order(Order::Watch { group, until, kill_after }).await?;
        self.command.resume();
        Ok(None)
    }

    async fn watch(mut self, signals: &mut Signals) -> io::Result<End> {
        let mut reports = interval(self.settings);
        let (mut until, mut is_lost) = (self.deadline(), false);
        let code = loop {
            match self.command.state()? {
                State::Running => {}
                State::Stopped(signal) => self.stopped(signal),
                State::Ended(code) => break code,
            }
            self.command.reap_orphans(self.watchdog.id());
            tokio::select! {
                biased;
                _ = self.children.recv() => {}
                signal = signals.next() => self.command.signal(signal),
                _ = self.watchdog.ended() => {
                    self.kill().await;
                    return Ok(End::Lost(Reason::NoWatchdog));
                }
                () = self.guard.lost(), if !is_lost => {
                    is_lost = true;
                    self.order(Order::End(self.grace())).await;
                }
                _ = reports.tick() => {
                    let deadline = self.deadline();
                    if deadline > until && !is_lost {
                        until = deadline;
                        self.order(Order::Until(nanos(until))).await;
                    }
                }
            }
        };
        let verdict = self.leave().await;
        // The last extension reaches to the end of the hold, less the drift of clocks.
        let reached = self.deadline().after(self.settings.lease() / 8) >= self.hold_until;
        Ok(match verdict {
            Some(Verdict::Untouched) if !is_lost => End::Code(code),
            None => End::Lost(Reason::NoWatchdog),
            Some(_) if reached => End::Lost(Reason::MaxHold(span::show(self.settings.max_hold))),
            Some(verdict) => End::Lost(Reason::Verdict(verdict)),
        })
    }

    /// Has the watchdog end the rest of the command's group, and reaps the command.
    async fn leave(&mut self) -> Option<Verdict> {
        // Before the command is reaped: until then no other group has its number.
        self.order(Order::Left(self.grace())).await;
        loop {
            self.command.reap();
            self.command.reap_orphans(self.watchdog.id());
            tokio::select! {
                _ = self.children.recv() => {}
                verdict = self.watchdog.ended() => return verdict,
            }
        }
    }

    /// Kills the command, and returns when it is reaped.
    async fn kill(&mut self) {
        self.command.signal(Signal::KILL);
        while !matches!(self.command.state(), Ok(State::Ended(_)) | Err(_)) {
            self.children.recv().await;
        }
        self.command.reap();
    }

    /// Lends the terminal to a command that was stopped for want of it. Where that is not possible,
    /// or the user stopped the command, this process stops as well, for the shell to see.
    fn stopped(&mut self, signal: Signal) {
        let wants_terminal = matches!(signal, Signal::TTIN | Signal::TTOU);
        if !wants_terminal && signal != Signal::TSTP {
            return;
        }
        let group = self.command.group();
        if !(wants_terminal && self.terminal.lend(group)) {
            let was_lent = self.terminal.take_back();
            signals::stop_self();
            if wants_terminal || was_lent {
                self.terminal.lend(group);
            }
        }
        self.command.resume();
    }

    /// A watchdog that has ended takes no order; its end is seen elsewhere.
    async fn order(&mut self, order: Order) {
        let _ = self.watchdog.order(order).await;
    }

    /// When SIGKILL follows a SIGTERM of now.
    fn grace(&self) -> u64 {
        nanos(BootClock.now().after(self.settings.kill_after))
    }

    /// A lock that was granted here has a deadline.
    fn deadline(&self) -> Instant {
        self.guard.lock().deadline().unwrap_or_default()
    }
}

fn interval(settings: &Settings) -> Interval {
    let mut interval = tokio::time::interval(settings.lease() / REPORTS_PER_LEASE);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

fn nanos(at: Instant) -> u64 {
    u64::try_from(at.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("was lost before the command started; not run"),
            Self::MaxHold(limit) => {
                write!(f, "was held for --max-hold {limit}; the command was ended")
            }
            Self::Verdict(Verdict::Untouched) => {
                f.write_str("was lost as the command ended; its last work may be unprotected")
            }
            Self::Verdict(Verdict::Terminated) => {
                f.write_str("was lost; the command was ended with SIGTERM")
            }
            Self::Verdict(Verdict::Killed) => {
                f.write_str("was lost; the command was ended with SIGKILL")
            }
            Self::NoWatchdog => f.write_str(
                "lost its watchdog, which another process ended; the command was killed",
            ),
        }
    }
}
