//! A worker process, seen from the parent.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, mpsc},
    time::Duration,
};

use crate::{
    mutex_log::MutexLog,
    protocol::{ASSIGNMENT, Assignment, Event, Order},
    worker::now,
};

/// The acquisitions of all processes of a scenario.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<MutexLog>>);

impl Log {
    pub(crate) fn lock(&self) -> MutexGuard<'_, MutexLog> {
        self.0.lock().unwrap()
    }
}

/// A running worker. Dropping it kills that process and no other.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) instance: u32,
    child: Child,
    orders: Option<ChildStdin>,
    replies: mpsc::Receiver<Event>,
    log: Log,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Process {
    /// Starts this binary again as a worker, in a network namespace where one is named.
    pub(crate) fn start(assignment: &Assignment, namespace: Option<&str>, log: &Log) -> Self {
        let this = std::env::current_exe().unwrap();
        let mut command = match namespace {
            // The shell replaces itself by the worker: the process id stays.
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(this);
                command
            }
            None => Command::new(this),
        };
        command.env(ASSIGNMENT, serde_json::to_string(assignment).unwrap());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts again");
        let (sender, replies) = mpsc::channel();
        let (out, log, instance) = (child.stdout.take().unwrap(), log.clone(), assignment.instance);
        let reader = std::thread::spawn({
            let log = log.clone();
            move || {
                for line in BufReader::new(out).lines() {
                    // The last line of a killed process may be cut short.
                    let Ok(event) = serde_json::from_str(&line.unwrap_or_default()) else { return };
                    log.lock().note(instance, &event);
                    let _ = sender.send(event);
                }
            }
        });
        Self {
            name: assignment.name.clone(),
            instance,
            orders: child.stdin.take(),
            child,
            replies,
            log,
            reader: Some(reader),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn order(&mut self, order: &Order) {
        let mut line = serde_json::to_vec(order).unwrap();
        line.push(b'\n');
        // A write to a dead process is ignored: the wait for its reply fails.
        if let Some(orders) = &mut self.orders {
            let _ = orders.write_all(&line);
        }
    }

    /// Waits for an event that `pick` takes; the others are in the log already.
    pub(crate) fn wait<T>(
        &self,
        bound: Duration,
        pick: impl Fn(Event) -> Option<T>,
    ) -> Result<T, String> {
        let until = now() + u64::try_from(bound.as_nanos()).unwrap();
        loop {
            let left = Duration::from_nanos(until.saturating_sub(now()));
            match self.replies.recv_timeout(left) {
                Ok(event) => {
                    if let Some(picked) = pick(event) {
                        return Ok(picked);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!("{} does not reply within {bound:?}", self.name));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(format!("{} has ended", self.name));
                }
            }
        }
    }

    /// `kill -9`, and waits for its end; returns its status.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        let at = now();
        let _ = self.child.kill();
        self.killed(at)
    }

    /// Waits for a process that was killed at `at`.
    pub(crate) fn killed(&mut self, at: u64) -> ExitStatus {
        let status = self.reap();
        self.log.lock().died(self.instance, at);
        status
    }

    /// Orders it to close, and waits for a clean exit.
    pub(crate) fn close(&mut self, bound: Duration) -> Result<(), String> {
        self.order(&Order::Close);
        self.wait(bound, |event| matches!(event, Event::Closed).then_some(()))?;
        let status = self.reap();
        if status.success() { Ok(()) } else { Err(format!("{} ends by {status}", self.name)) }
    }

    /// Takes in its last events before its death.
    fn reap(&mut self) -> ExitStatus {
        self.orders = None;
        let status = self.child.wait().unwrap();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Also where it stands: SIGKILL needs no SIGCONT.
        let _ = self.child.kill();
        self.reap();
    }
}
