//! The watchdog of a command: a process of its own, so that the command is dead by the deadline of
//! its lock also when `gaggle run` is stopped or killed.

mod alarm;
mod plan;

use std::{io, process::ExitCode};

use gaggle::{BootClock, Clock as _};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use self::{alarm::Alarm, plan::Plan};
use super::{command::this_program, signals};
use crate::failure::Failure;

/// The first argument of the watchdog's process.
pub(crate) const WATCHDOG: &str = "run-watchdog";

/// Signals that would end or stop the watchdog, which systemd and others send to all processes.
const WITHOUT_EFFECT: [Signal; 7] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
];

/// An order to the watchdog, as one line of JSON. Times are nanoseconds since boot.
///
/// The end of the orders without [`Order::Left`] is the end of `gaggle run`: the group is killed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Watch this process group, under this deadline.
    Watch { group: i32, until: u64, kill_after: u64 },
    /// The lock was extended: a later deadline.
    Until(u64),
    /// The lock is lost: SIGTERM now, SIGKILL at this time.
    End(u64),
    /// The command has ended: the same for the rest of its group, then end.
    Left(u64),
}

/// The signal that the watchdog had sent to the command before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Untouched = 0,
    Terminated = 1,
    Killed = 2,
}

/// The watchdog's process, as `gaggle run` sees it.
pub(super) struct Watchdog {
    process: Child,
    orders: ChildStdin,
    output: ChildStdout,
}

impl Watchdog {
    pub(super) fn start() -> io::Result<Self> {
        let mut command = Command::new(this_program()?);
        command.arg0("gaggle").arg(WATCHDOG).process_group(0);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut process = command.stderr(std::process::Stdio::null()).spawn()?;
        let orders = process.stdin.take().expect("its standard input is piped");
        let output = process.stdout.take().expect("its standard output is piped");
        Ok(Self { process, orders, output })
    }

    /// Its process, until that is reaped.
    pub(super) fn id(&self) -> Option<Pid> {
        self.process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?))
    }

    /// Completes when signals no longer end it.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        self.output.read_u8().await.map(drop)
    }

    /// Fails only if the watchdog has ended, which [`ended`](Self::ended) reports.
    pub(super) async fn order(&mut self, order: Order) -> io::Result<()> {
        let line = serde_json::to_string(&order)? + "\n";
        self.orders.write_all(line.as_bytes()).await
    }

    /// Completes when its process has ended. Dropping the future changes nothing.
    pub(super) async fn ended(&mut self) -> Option<Verdict> {
        let verdicts = [Verdict::Untouched, Verdict::Terminated, Verdict::Killed];
        let code = self.process.wait().await.ok()?.code()?;
        verdicts.into_iter().find(|verdict| *verdict as i32 == code)
    }
}

/// In the watchdog: watches until the command has ended.
pub(crate) fn run_watchdog() -> Result<ExitCode, Failure> {
    watch().map_err(|error| Failure::new("the watchdog").because(&error))
}

fn watch() -> io::Result<ExitCode> {
    // Only its handlers are used, which make these signals harmless.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let _handlers =
        WITHOUT_EFFECT.into_iter().map(signals::receive).collect::<io::Result<Vec<_>>>()?;
    let (clock, input) = (BootClock, io::stdin());
    let (mut alarm, mut plan, mut pending) = (Alarm::new()?, Plan::default(), Vec::new());
    rustix::io::write(io::stdout(), b"\n")?;
    loop {
        if alarm.wait(&input, plan.due())? {
            let mut bytes = [0; 4096];
            let count = match rustix::io::read(&input, &mut bytes) {
                Err(rustix::io::Errno::INTR) => continue,
                read => read?,
            };
            if count == 0 {
                plan.abandon();
            }
            pending.extend_from_slice(&bytes[..count]);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = pending.drain(..=end).collect();
                plan.obey(serde_json::from_slice(&line)?, clock.now());
            }
        }
        while let Some(signal) = plan.act(clock.now()) {
            send(plan.group(), signal);
        }
        let group = plan.group();
        if plan.has_ended(clock.now(), || is_empty(group)) {
            return Ok(ExitCode::from(plan.verdict() as u8));
        }
    }
}

fn send(group: Option<Pid>, signal: Signal) {
    let Some(group) = group else { return };
    // A group that has ended needs no signal.
    let _ = kill_process_group(group, signal);
    if signal == Signal::TERM {
        // A stopped process takes no SIGTERM.
        let _ = kill_process_group(group, Signal::CONT);
    }
}

fn is_empty(group: Option<Pid>) -> bool {
    group.is_none_or(|group| test_kill_process_group(group) == Err(rustix::io::Errno::SRCH))
}
