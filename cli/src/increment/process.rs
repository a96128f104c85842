//! A member in a process of its own. Parent and child speak in lines: the job, then `go` and `end`
//! down the child's standard input, and events, one JSON a line, up its standard output. The end of
//! the input ends the child, so that none outlives its parent.

use std::{
    io::{self, BufRead, Write},
    pin::pin,
    process::Stdio,
    thread,
};

use futures_util::future::{Either, select};
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdout, Command},
    sync::{mpsc, watch},
};

use super::{
    plan::Job,
    store::Memory,
    worker::{self, Event, Phase},
};
use crate::failure::Failure;

/// The parent's side of one member: as [`worker::work`], through a child.
pub(super) async fn work(job: Job, phase: watch::Receiver<Phase>, events: mpsc::Sender<Event>) {
    let member = job.member;
    if let Err(error) = attend(&job, phase, &events).await {
        let problem = Failure::new(format!("the process of member {member}")).because(&error);
        let _ = events.send(Event::Failed(problem.to_string())).await;
    }
}

async fn attend(
    job: &Job,
    mut phase: watch::Receiver<Phase>,
    events: &mpsc::Sender<Event>,
) -> io::Result<()> {
    let mut child = spawn()?;
    let mut input = child.stdin.take().expect("its standard input is piped");
    let output = child.stdout.take().expect("its standard output is piped");
    input.write_all(line(job)?.as_bytes()).await?;
    let speak = pin!(async {
        for (told, word) in [(Phase::Go, "go\n"), (Phase::End, "end\n")] {
            let over = phase.wait_for(|phase| *phase >= told).await.is_err();
            // A child that cannot be told has ended, and that is heard.
            if over || input.write_all(word.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    // Not one after the other: a child that fails early speaks before it is told to go.
    let ended = match select(pin!(listen(output, events)), speak).await {
        Either::Left((ended, _)) => ended?,
        Either::Right(((), listen)) => listen.await?,
    };
    let status = child.wait().await?;
    if ended { Ok(()) } else { Err(io::Error::other(format!("ended early ({status})"))) }
}

/// Passes events on until the child's output ends; whether the child had come to an end of its own.
async fn listen(output: ChildStdout, events: &mpsc::Sender<Event>) -> io::Result<bool> {
    let mut lines = BufReader::new(output).lines();
    let mut ended = false;
    while let Some(line) = lines.next_line().await? {
        let event: Event = serde_json::from_str(&line)?;
        ended |= matches!(event, Event::Finished | Event::Failed(_));
        if events.send(event).await.is_err() {
            break;
        }
    }
    Ok(ended)
}

fn spawn() -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("increment-worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// The child's side.
pub(super) async fn run_child() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new("a worker's job").because(&error);
    let mut job = String::new();
    io::stdin().read_line(&mut job).map_err(failed)?;
    let job: Job = serde_json::from_str(&job).map_err(|error| failed(error.into()))?;

    let (told, phase) = watch::channel(Phase::Open);
    // A thread, because a runtime cannot end while one of its own waits for standard input.
    thread::spawn(move || obey(&told));
    let (events, mut told) = mpsc::channel(1024);
    let tell = async {
        while let Some(event) = told.recv().await {
            let mut output = io::stdout().lock();
            let written = line(&event).and_then(|line| output.write_all(line.as_bytes()));
            written.and_then(|()| output.flush()).map_err(failed)?;
        }
        Ok(())
    };
    let work = worker::work(job, Memory::default(), None, phase, events);
    let ((), told) = tokio::join!(work, tell);
    told
}

/// Does as standard input says, and ends the process when it ends.
fn obey(phase: &watch::Sender<Phase>) {
    for line in io::stdin().lock().lines() {
        match line.as_deref() {
            Ok("go") => phase.send_replace(Phase::Go),
            Ok("end") => {
                phase.send_replace(Phase::End);
                return;
            }
            _ => break,
        };
    }
    std::process::exit(2);
}

fn line(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}
