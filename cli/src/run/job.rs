//! The time in which the command runs: its signals, its deadline and its end.

use std::{io, time::Duration};

use gaggle::{BootClock, Clock as _, Guard, Instant, LossCause};
use rustix::process::Signal;
use tokio::{
    signal::unix,
    time::{Interval, MissedTickBehavior, timeout},
};

use super::{
    address::Address,
    args::Settings,
    command::{Command, State},
    event::{Cause, Event, Fate},
    signals::{self, ENDING, Signals},
    terminal::Terminal,
    watchdog::{Order, Report, Verdict, Watchdog},
};

/// How often in each lease the watchdog learns the deadline. An extension is made at a third of the
/// lease: the watchdog learns of it before half of the lease has passed. An extension after an
/// outage of the server may come shortly before SIGTERM is due.
const REPORTS_PER_LEASE: u32 = 48;

/// How much earlier than the deadline SIGKILL is sent, because it takes a moment to arrive: at
/// least this, and a fiftieth of the lease.
const EARLY_MIN: Duration = Duration::from_millis(5);
/// The longest time from SIGTERM to SIGKILL after a loss: another process may hold the key already.
const GRACE_WITHOUT_LOCK: Duration = Duration::from_secs(1);
/// How long the watchdog may take to reply, before it is killed.
const RESPONSE: Duration = Duration::from_secs(2);

const NOT_STARTED: End = End::Lost((Fate::NotStarted, None));

/// How the command ended.
pub(super) enum End {
    /// The command ended with this exit code.
    Code(u8),
    /// The run ends with this exit code, and the command never started.
    NotStarted(u8),
    /// The command ended, but processes of it could not be ended. `code` is its exit code if the
    /// lock was held. A loss that was reported is left out.
    Survived { code: Option<u8>, loss: Option<Loss> },
    /// The command was ended, or ran on without the lock.
    Lost(Loss),
}

/// What became of the command, and a cause that its guard does not know.
pub(super) type Loss = (Fate, Option<Cause>);

/// Runs the command under its watchdog, until no process of its group is left.
pub(super) async fn run(
    settings: &Settings,
    address: &Address,
    guard: &Guard,
    granted_at: Instant,
    signals: &mut Signals,
) -> io::Result<End> {
    if guard.remaining() < settings.lease() * 5 / 6 {
        tokio::select! {
            biased;
            signal = signals.fatal() => {
                return Ok(End::NotStarted(super::lock::interrupted(settings, signal)));
            }
            // A long wait has left less of the lease. If this fails, the deadline ends the command.
            _ = guard.extend(settings.lease()) => {}
        }
    }
    let children = signals::receive(Signal::CHILD)?;
    let watchdog = Watchdog::start()?;
    let command = Command::start(settings, guard, address)?;
    let lease = settings.lease();
    let kill_before = EARLY_MIN.max(lease / 50);
    let mut job = Job {
        settings,
        guard,
        children,
        watchdog,
        command,
        // A lock that was granted here has a deadline.
        until: guard.lock().deadline().unwrap_or_default(),
        // Before an extension is reported, at half of the lease, none is due.
        term_before: (settings.kill_after + kill_before).min(lease / 2),
        kill_before,
        hold_until: granted_at.after(settings.max_hold),
        terminal: Terminal::default(),
    };
    let not_started = tokio::select! {
        biased;
        signal = signals.fatal() => {
            Ok(Some(End::NotStarted(super::lock::interrupted(settings, signal))))
        }
        () = guard.lost() => Ok(Some(NOT_STARTED)),
        prepared = job.prepare() => prepared,
    };
    match not_started.transpose() {
        Some(end) => {
            job.kill().await;
            end
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
    /// The deadline that the watchdog knows.
    until: Instant,
    /// How long before a deadline SIGTERM and SIGKILL are due.
    term_before: Duration,
    kill_before: Duration,
    hold_until: Instant,
    terminal: Terminal,
}

impl Job<'_> {
    /// Waits until the command's process has stopped itself, and has it watched.
    async fn prepare(&mut self) -> io::Result<Option<End>> {
        self.watchdog.ready().await?;
        loop {
            match self.command.state()? {
                State::Running => _ = self.children.recv().await,
                // By another process, before this one.
                State::Stopped(_) | State::Resumed => break,
                State::Ended(code) => return Ok(Some(End::NotStarted(code))),
            }
        }
        let order = Order::Watch {
            group: self.command.group().as_raw_nonzero().get(),
            nonce: self.guard.nonce(),
            until: nanos(self.until),
            term_before: span_nanos(self.term_before),
            kill_before: span_nanos(self.kill_before),
        };
        self.watchdog.order(order).await?;
        self.watchdog.ready().await?;
        // A deadline that passed while this process was suspended is noticed late elsewhere.
        Ok((!self.guard.is_valid()).then_some(NOT_STARTED))
    }

    /// Lets the command run, which it has not before, and returns when it has ended.
    async fn watch(mut self, signals: &mut Signals) -> io::Result<End> {
        self.command.resume();
        let mut reports = interval(self.settings);
        let (mut kill_at, mut is_killed, mut is_denied) = (None, false, false);
        let mut is_reported = false;
        // Whether processes that left the group are not to run on.
        let mut is_ended = false;
        let code = loop {
            match self.command.state()? {
                State::Running | State::Resumed => {}
                State::Stopped(signal) => self.stopped(signal),
                State::Ended(code) => {
                    // By a signal that this process did not get: of the terminal, or of another.
                    is_ended |= ENDING.iter().any(|it| i32::from(code) == 128 + it.as_raw());
                    break code;
                }
            }
            self.command.reap_orphans(self.watchdog.id());
            if self.command.processes.denied() && !std::mem::replace(&mut is_denied, true) {
                self.settings.reporter.report(&Event::NotPermitted);
            }
            // The command may run on for long.
            if is_killed && is_denied && !std::mem::replace(&mut is_reported, true) {
                let loss = self.loss(Fate::Running);
                self.settings.reporter.report(&super::lost(self.settings, self.guard, loss));
            }
            tokio::select! {
                biased;
                _ = self.children.recv() => {}
                signal = signals.next() => {
                    is_ended |= ENDING.contains(&signal);
                    self.command.signal(signal);
                    if ENDING.contains(&signal) {
                        // A stopped command takes no other.
                        self.command.resume();
                    }
                    let name = signals::name(signal);
                    self.settings.reporter.report(&Event::Signalled { signal: name });
                    // SIGCONT, with the terminal that it waits for, would discard this stop.
                    if signal == Signal::TSTP
                        && let State::Stopped(Signal::TTIN | Signal::TTOU) = self.command.state()?
                    {
                        self.stopped(signal);
                    }
                }
                _ = self.watchdog.ended() => {
                    self.kill().await;
                    return Ok(End::Lost((Fate::Killed, Some(Cause::Watchdog))));
                }
                () = self.guard.lost(), if kill_at.is_none() => {
                    kill_at = Some(self.end().await);
                }
                () = BootClock.sleep_until(kill_at.unwrap_or_default()),
                    if kill_at.is_some() && !is_killed =>
                {
                    is_killed = true;
                    self.command.end(Signal::KILL);
                }
                _ = reports.tick() => {
                    let deadline = self.deadline();
                    if deadline > self.until && kill_at.is_none() {
                        self.until = deadline;
                        self.order(Order::Until(nanos(deadline))).await;
                    }
                }
            }
        };
        let is_lost = kill_at.is_some();
        let Some(report) = self.leave(is_ended || is_lost, signals).await else {
            if is_lost || !self.guard.is_valid() {
                let fate = match (is_lost, is_killed) {
                    (false, _) => Fate::Ended,
                    (true, false) => Fate::Terminated,
                    (true, true) => Fate::Killed,
                };
                return Ok(End::Lost(self.loss(fate)));
            }
            self.settings.reporter.report(&Event::Unwatched);
            return Ok(End::Code(code));
        };
        let is_kept = report.verdict == Verdict::Untouched && !is_lost;
        Ok(if report.survived || self.command.processes.denied() && !is_kept {
            let is_open = !is_kept && !is_reported;
            let loss = is_open.then(|| self.loss(Fate::Running));
            End::Survived { code: is_kept.then_some(code), loss }
        } else if is_kept {
            End::Code(code)
        } else {
            End::Lost(self.loss(fate(report.verdict)))
        })
    }

    /// Why the command ran on without its lock, or was ended.
    fn loss(&self, fate: Fate) -> Loss {
        // The last extension reaches to the end of the hold, less the drift of clocks.
        let reached = self.deadline().after(self.settings.lease() / 8) >= self.hold_until;
        let by_hold = reached && matches!(self.guard.loss(), None | Some(LossCause::Deadline));
        (fate, by_hold.then_some(Cause::MaxHold))
    }

    /// Ends the command after a loss. Returns when SIGKILL is due: it is sent here as well, because
    /// the watchdog may be stopped.
    async fn end(&mut self) -> Instant {
        let now = BootClock.now();
        // Later, the watchdog has sent it.
        if now < self.until.before(self.term_before) {
            self.command.end(Signal::TERM);
        }
        let grace = self.settings.kill_after.min(GRACE_WITHOUT_LOCK);
        let kill_at = now.after(grace).min(self.until.before(self.kill_before));
        self.order(Order::End(nanos(kill_at))).await;
        kill_at
    }

    /// Has the watchdog end the rest of the command, and reaps it.
    async fn leave(&mut self, with_others: bool, signals: &mut Signals) -> Option<Report> {
        let mut at = BootClock.now().after(self.settings.kill_after);
        self.order(Order::Left { at: nanos(at), with_others }).await;
        let mut is_lost = false;
        // No other group has its number before it is reaped.
        if timeout(RESPONSE, self.watchdog.ready()).await.is_err() {
            self.watchdog.kill().await;
            self.kill().await;
        }
        loop {
            self.command.reap();
            self.command.reap_orphans(self.watchdog.id());
            tokio::select! {
                biased;
                report = self.watchdog.ended() => {
                    if report.is_none() {
                        self.kill_others().await;
                    }
                    return report;
                }
                _ = self.children.recv() => {}
                () = self.guard.lost(), if !is_lost => {
                    is_lost = true;
                    let grace = self.settings.kill_after.min(GRACE_WITHOUT_LOCK);
                    at = at.min(BootClock.now().after(grace));
                    self.order(Order::Left { at: nanos(at), with_others }).await;
                }
                signal = signals.fatal() => {
                    if ENDING.contains(&signal) {
                        let at = nanos(BootClock.now());
                        self.order(Order::Left { at, with_others: true }).await;
                    }
                }
                () = BootClock.sleep_until(at.after(RESPONSE)) => self.watchdog.kill().await,
            }
        }
    }

    /// Kills the command without the watchdog, and returns when it is reaped.
    async fn kill(&mut self) {
        self.command.end(Signal::KILL);
        while !matches!(self.command.state(), Ok(State::Ended(_)) | Err(_)) {
            self.children.recv().await;
        }
        self.command.reap();
        self.kill_others().await;
    }

    async fn kill_others(&self) {
        let until = BootClock.now().after(RESPONSE);
        while self.command.processes.end_others(Signal::KILL) && BootClock.now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lends the terminal to a command that was stopped for want of it. Where that is not possible,
    /// or the user stopped the command, this process stops as well, for the shell to see.
    fn stopped(&mut self, signal: Signal) {
        let wants_terminal = matches!(signal, Signal::TTIN | Signal::TTOU);
        if !wants_terminal && signal != Signal::TSTP {
            return;
        }
        let group = self.command.group();
        let mut is_lent = wants_terminal && self.terminal.lend(group);
        if !is_lent {
            let was_lent = self.terminal.take_back();
            signals::stop_self(signal);
            is_lent = (wants_terminal || was_lent) && self.terminal.lend(group);
        }
        // A command that wants the terminal would only be stopped again without it: a shell's
        // SIGCONT is forwarded.
        if is_lent || !wants_terminal {
            self.command.resume();
        }
    }

    /// A watchdog that has ended takes no order, and a stopped one is killed; its end is seen
    /// elsewhere.
    async fn order(&mut self, order: Order) {
        if timeout(RESPONSE, self.watchdog.order(order)).await.is_err() {
            self.watchdog.kill().await;
        }
    }

    fn deadline(&self) -> Instant {
        self.guard.lock().deadline().unwrap_or_default()
    }
}

fn fate(verdict: Verdict) -> Fate {
    match verdict {
        Verdict::Untouched => Fate::Ended,
        Verdict::Terminated => Fate::Terminated,
        Verdict::Killed => Fate::Killed,
    }
}

fn interval(settings: &Settings) -> Interval {
    let mut interval = tokio::time::interval(settings.lease() / REPORTS_PER_LEASE);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

fn nanos(at: Instant) -> u64 {
    span_nanos(at.since_origin())
}

fn span_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
