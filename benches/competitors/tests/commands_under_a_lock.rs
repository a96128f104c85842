//! Goal: what a command still writes after the next process was granted its lock, under
//! `gaggle run`, `etcdctl lock` and `flock`. Method: each tool runs a command that writes time
//! stamps; the tool is killed or stopped, or its server is; a second process of the tool waits for
//! the same lock and prints the time of its grant. `GAGGLE_KILL_RUNS` is the number of runs of each
//! row, and `GAGGLE` the path of the program `gaggle`. Needs `etcd` and `etcdctl`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    fmt::Debug,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use gaggle_fixtures::{RedisServer, free_port};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long a command may write on after the next grant, before the test ends it.
const WATCHED: Duration = Duration::from_secs(1);
/// How long the next process waits for its grant.
const PATIENCE: &str = "8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The tool is killed.
    Killed,
    /// The tool is stopped.
    Stopped,
    /// The server does not reply for 4 s.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Gaggle,
    Etcdctl,
    Flock,
    /// The command does not inherit the lock's file.
    FlockClose,
}

/// A server of the test's own, or none.
enum Server {
    Redis(RedisServer),
    Etcd(Child, String),
    None,
}

impl Server {
    fn start(tool: Tool, directory: &Path) -> Self {
        match tool {
            Tool::Gaggle => Self::Redis(RedisServer::start()),
            Tool::Etcdctl => {
                let [client, peer] = [0; 2].map(|_| format!("http://127.0.0.1:{}", free_port()));
                let mut command = Command::new("etcd");
                command.arg("--data-dir").arg(directory.join("etcd"));
                command.args(["--listen-client-urls", &client, "--listen-peer-urls", &peer]);
                command.args(["--advertise-client-urls", &client, "--log-level", "error"]);
                command.args(["--initial-advertise-peer-urls", &peer]);
                command.arg("--initial-cluster").arg(format!("default={peer}"));
                command.stdout(Stdio::null()).stderr(Stdio::null());
                Self::Etcd(command.spawn().unwrap(), client)
            }
            Tool::Flock | Tool::FlockClose => Self::None,
        }
    }

    fn signal(&self, signal: Signal) {
        match self {
            Self::Redis(redis) => send(redis.pid().unwrap(), signal),
            Self::Etcd(process, _) => send(process.id(), signal),
            Self::None => unreachable!("flock has no server"),
        }
    }

    /// The tool's command line, up to the job.
    fn lock(&self, tool: Tool, directory: &Path) -> Command {
        let program = gaggle();
        let lock = directory.join("lock");
        let words: &[&str] = match (tool, self) {
            (Tool::Gaggle, Self::Redis(redis)) => {
                let line = ["run", "--duration", "1s", "--max-wait", "20s", "k", "--"];
                let mut command = Command::new(program);
                command.args(line).env("GAGGLE_URL", redis.url());
                return command;
            }
            (Tool::Etcdctl, Self::Etcd(_, url)) => {
                let mut command = Command::new("etcdctl");
                command.args(["--endpoints", url, "lock", "--ttl", "1", "k", "--"]);
                command.env("ETCDCTL_API", "3");
                return command;
            }
            (Tool::FlockClose, _) => &["--close"],
            _ => &[],
        };
        let mut command = Command::new("flock");
        command.args(words).arg(lock);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Etcd(process, _) = self {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

/// The program of the workspace.
fn gaggle() -> PathBuf {
    let built = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/gaggle").into();
    std::env::var_os("GAGGLE").map_or_else(built, PathBuf::from)
}

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
}

fn micros(stamp: &str) -> Option<u64> {
    let (seconds, micros) = stamp.trim().split_once('.').filter(|(_, micros)| micros.len() == 6)?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?)
}

/// How long after the next grant the command still wrote, in microseconds; `None` if there was no
/// grant while the command lived.
fn overlap(tool: Tool, fault: Fault) -> Option<u64> {
    let directory = new_directory(&(tool, fault));
    let server = Server::start(tool, &directory);
    let log = directory.join("stamps");
    let stamps = "echo; trap '' TERM; exec >>\"$LOG\"; while :; do echo $EPOCHREALTIME; done";
    let mut job = server.lock(tool, &directory);
    job.args(["bash", "-c", stamps]).env("LOG", &log).env("LC_ALL", "C").process_group(0);
    let mut job = job.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut next = Command::new("timeout");
    let lock = server.lock(tool, &directory);
    next.arg(PATIENCE).arg(lock.get_program()).args(lock.get_args());
    next.envs(lock.get_envs().filter_map(|(name, value)| Some((name, value?))));
    next.args(["bash", "-c", "echo $EPOCHREALTIME; sleep 1"]).env("LC_ALL", "C");
    let next = next.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut next = next.spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    match fault {
        Fault::Killed => send(job.id(), Signal::KILL),
        Fault::Stopped => send(job.id(), Signal::STOP),
        Fault::Silent => {
            server.signal(Signal::STOP);
            thread::sleep(Duration::from_secs(4));
            server.signal(Signal::CONT);
        }
    }
    let mut granted = String::new();
    BufReader::new(next.stdout.take().unwrap()).read_line(&mut granted).unwrap();
    next.wait().unwrap();
    thread::sleep(WATCHED);
    let group = Pid::from_raw(job.id().try_into().unwrap()).unwrap();
    // Ends the rest of the job. A command of `gaggle run` has its own group, and is dead.
    let _ = kill_process_group(group, Signal::KILL);
    job.wait().unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let last = text.lines().filter_map(micros).max().unwrap();
    fs::remove_dir_all(directory).unwrap();
    // etcdctl prints the name of its key first.
    micros(&granted).map(|granted_at| last.saturating_sub(granted_at))
}

fn new_directory(name: &impl Debug) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("compared-{name:?}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
#[ignore = "takes minutes and needs etcd"]
fn only_gaggle_run_never_overlaps() {
    let runs: usize = std::env::var("GAGGLE_KILL_RUNS").map_or(3, |runs| runs.parse().unwrap());
    println!("tool, fault: runs with a grant beside the running command; its longest writing");
    for tool in [Tool::Gaggle, Tool::Etcdctl, Tool::Flock, Tool::FlockClose] {
        for fault in [Fault::Killed, Fault::Stopped, Fault::Silent] {
            if fault == Fault::Silent && matches!(tool, Tool::Flock | Tool::FlockClose) {
                continue;
            }
            let overlaps: Vec<_> = (0..runs).map(|_| overlap(tool, fault)).collect();
            let granted = overlaps.iter().flatten().count();
            let overlapped = overlaps.iter().flatten().filter(|overlap| **overlap > 0).count();
            let longest = Duration::from_micros(*overlaps.iter().flatten().max().unwrap_or(&0));
            println!(
                "{tool:?}, {fault:?}: {overlapped} of {runs} ({granted} granted); {longest:?}"
            );
            if tool == Tool::Gaggle {
                assert_eq!((granted, overlapped), (runs, 0));
            }
            if tool == Tool::Etcdctl && fault != Fault::Silent {
                assert!(overlapped > 0, "the harness sees an overlap");
            }
        }
    }
}
