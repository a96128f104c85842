//! Worker processes, which exchange JSON with the parent, one value a line.

use std::{
    io::{self, BufRead as _, Write as _},
    process::{ExitStatus, Stdio},
    thread,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
};

use crate::verbosity::Verbosity;

/// A worker process, as its parent sees it. Dropping it kills the process.
///
/// Orders travel over its standard input, so that no password shows in a list of processes. The end
/// of that input ends the process: a worker never outlives its parent.
pub(crate) struct Worker {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts this program again, with the command of a worker.
    pub(crate) fn start(command: &str, verbosity: Verbosity) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(command)
            .env("RUST_LOG", verbosity.directives())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A terminal's Ctrl-C goes to the parent alone, which ends its workers.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().expect("its standard input is piped");
        let output = process.stdout.take().expect("its standard output is piped");
        Ok(Self { process, input, output: BufReader::new(output).lines() })
    }

    pub(crate) async fn send(&mut self, order: &impl Serialize) -> io::Result<()> {
        self.input.write_all(line(order)?.as_bytes()).await
    }

    /// The next reply; `None` at the end of the output. Dropping the future loses no reply.
    pub(crate) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let line = self.output.next_line().await?;
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }

    /// Waits until the process has ended.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }
}

/// In a worker: the parent's orders, each first seen by `look`. The end of standard input drops
/// `look` and ends the process.
pub(crate) fn orders<T: DeserializeOwned + Send + 'static>(
    mut look: impl FnMut(&T) + Send + 'static,
) -> mpsc::Receiver<T> {
    let (sender, orders) = mpsc::channel(1);
    // A thread, because a runtime waits at its end for a task that reads standard input.
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(order) = line.and_then(|line| Ok(serde_json::from_str(&line)?)) else { break };
            look(&order);
            if sender.blocking_send(order).is_err() {
                return;
            }
        }
        drop(look);
        std::process::exit(2);
    });
    orders
}

/// In a worker: replies to the parent.
pub(crate) fn reply(value: &impl Serialize) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(line(value)?.as_bytes())?;
    output.flush()
}

fn line(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}
