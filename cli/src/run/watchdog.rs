//! The watchdog of a command: a separate process. It ends the command by the deadline of its lock
//! even if `gaggle run` is stopped or killed.

mod alarm;
mod plan;

use std::{io, process::ExitCode, time::Duration};

use gaggle::{BootClock, Clock as _, Instant, Nonce};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use self::{
    alarm::Alarm,
    plan::{Plan, SEARCH_EVERY, since_boot},
};
use super::{
    WRONG_USE,
    command::this_program,
    processes::{NONCE, Processes},
    signals,
};
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
/// The end of the orders without [`Order::Left`] is the end of `gaggle run`: the command is killed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Watch this process group under this deadline. The other times are how long before it SIGTERM
    /// and SIGKILL are due. Acknowledged: from here on the command may run.
    Watch { group: i32, nonce: Nonce, until: u64, term_before: u64, kill_before: u64 },
    /// The lock was extended: a later deadline.
    Until(u64),
    /// The lock is lost, and SIGTERM was sent: SIGKILL at this time.
    End(u64),
    /// The command has ended. SIGTERM to the rest of its group, and to the processes that left it
    /// if `with_others`; SIGKILL at this time; then end. Acknowledged.
    Left { at: u64, with_others: bool },
}

/// The signal that ended the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Untouched = 0,
    Terminated = 1,
    Killed = 2,
}

/// How many searches after SIGKILL find no process before the command has ended.
const PASSES: u32 = 3;

/// Added to a verdict if processes could not be ended.
const SURVIVED: u8 = 4;

/// How the watchdog ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) verdict: Verdict,
    /// Whether processes of the command live, or ended later by themselves.
    pub(super) survived: bool,
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
        // Not one of the processes that a `gaggle run` outside this one ends.
        command.arg0("gaggle").arg(WATCHDOG).process_group(0).env_remove(NONCE);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut process = command.stderr(std::process::Stdio::null()).spawn()?;
        let orders = process.stdin.take().expect("its standard input is piped");
        let output = process.stdout.take().expect("its standard output is piped");
        Ok(Self { process, orders, output })
    }

    /// The process of the watchdog, until it is reaped.
    pub(super) fn id(&self) -> Option<Pid> {
        self.process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?))
    }

    /// Completes when signals no longer end it, and after each order that it acknowledges.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        self.output.read_u8().await.map(drop)
    }

    /// Fails only if the watchdog has ended, which [`ended`](Self::ended) reports.
    pub(super) async fn order(&mut self, order: Order) -> io::Result<()> {
        let line = serde_json::to_string(&order)? + "\n";
        self.orders.write_all(line.as_bytes()).await
    }

    /// Completes when its process has ended. Dropping the future changes nothing.
    pub(super) async fn ended(&mut self) -> Option<Report> {
        let code = u8::try_from(self.process.wait().await.ok()?.code()?).ok()?;
        let verdicts = [Verdict::Untouched, Verdict::Terminated, Verdict::Killed];
        let verdict = verdicts.into_iter().find(|it| *it as u8 == code & !SURVIVED)?;
        Some(Report { verdict, survived: code & SURVIVED != 0 })
    }

    /// Kills a watchdog that does not respond.
    pub(super) async fn kill(&mut self) {
        let _ = self.process.kill().await;
    }
}

/// Watches until the command has ended, in the process of the watchdog.
pub(crate) fn run_watchdog() -> Result<ExitCode, Failure> {
    // Not the name of `gaggle run`, which `killall gaggle` then ends alone. At most 15 bytes.
    let _ = std::fs::write("/proc/self/comm", "gaggle-watchdog");
    // The exit code does not report on a command.
    watch().map_err(|error| Failure::new("the watchdog").because(&error).with_exit_code(WRONG_USE))
}

fn watch() -> io::Result<ExitCode> {
    // Only its handlers are used, which make these signals harmless.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let _handlers =
        WITHOUT_EFFECT.into_iter().map(signals::receive).collect::<io::Result<Vec<_>>>()?;
    let (clock, input) = (BootClock, io::stdin());
    let (mut alarm, mut watched, mut pending) = (Alarm::new()?, None::<Watched>, Vec::new());
    acknowledge();
    loop {
        let mut is_acknowledged = false;
        if alarm.wait(&input, watched.as_ref().and_then(|it| it.plan.due()))? {
            let mut bytes = [0; 4096];
            let count = match rustix::io::read(&input, &mut bytes) {
                Err(rustix::io::Errno::INTR) => continue,
                read => read?,
            };
            match &mut watched {
                None if count == 0 => return Ok(ExitCode::SUCCESS),
                Some(Watched { plan, .. }) if count == 0 => {
                    plan.abandon(clock.now());
                    // The input stays readable.
                    std::thread::sleep(plan.pause());
                }
                _ => {}
            }
            pending.extend_from_slice(&bytes[..count]);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = pending.drain(..=end).collect();
                let order = serde_json::from_slice(&line)?;
                is_acknowledged |= matches!(order, Order::Watch { .. } | Order::Left { .. });
                match &mut watched {
                    None => watched = Watched::begin(order),
                    Some(Watched { plan, .. }) => plan.obey(order, clock.now()),
                }
            }
        }
        let Some(watched) = &mut watched else { continue };
        watched.act(clock);
        if is_acknowledged {
            acknowledge();
        }
        if let Some(code) = watched.check(clock.now()) {
            return Ok(ExitCode::from(code));
        }
    }
}

/// A write fails if `gaggle run` has ended.
fn acknowledge() {
    let _ = rustix::io::write(io::stdout(), b"\n");
}

/// The command and its plan.
struct Watched {
    processes: Processes,
    plan: Plan,
    /// When to search for living processes of the group, unless it is empty before.
    search_at: Option<Instant>,
}

impl Watched {
    fn begin(order: Order) -> Option<Self> {
        let Order::Watch { group, nonce, until, term_before, kill_before } = order else {
            return None;
        };
        let [term_before, kill_before] = [term_before, kill_before].map(Duration::from_nanos);
        let plan = Plan::new(since_boot(until), term_before, kill_before);
        let processes = Processes::new(Pid::from_raw(group)?, nonce);
        Some(Self { processes, plan, search_at: None })
    }

    /// Sends the signals that are due: first to the group, which takes no search.
    fn act(&mut self, clock: BootClock) {
        let Self { processes, plan, .. } = self;
        while let Some(signal) = plan.act(clock.now()) {
            // After its command, a group's number is its own only while it has processes.
            if !(plan.is_leaving() && processes.group_is_empty()) {
                processes.end_group(signal);
            }
            if plan.with_others() {
                processes.end_others(signal);
            }
        }
    }

    /// Returns the exit code if nothing is left to do.
    fn check(&mut self, now: Instant) -> Option<u8> {
        let Self { processes, plan, .. } = self;
        if !plan.is_check_due(now) {
            return None;
        }
        let search_at = self.search_at.get_or_insert_with(|| now.after(SEARCH_EVERY));
        let group_has_ended = if now < *search_at {
            processes.group_is_empty()
        } else {
            *search_at = now.after(SEARCH_EVERY);
            processes.group_has_ended()
        };
        let group_lives = plan.is_leaving() && !group_has_ended;
        let others_live = plan.with_others()
            && if plan.was_killed() {
                // A process may start another between the listing and its turn.
                (0..PASSES).any(|_| processes.end_others(Signal::KILL))
            } else {
                !group_lives && processes.others_live()
            };
        let denied = processes.denied() && plan.verdict() != Verdict::Untouched;
        let survived = if group_lives || others_live || denied { SURVIVED } else { 0 };
        let is_done = plan.checked(now, group_lives, others_live);
        is_done.then_some(plan.verdict() as u8 | survived)
    }
}
