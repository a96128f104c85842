//! `gaggle`, mostly `gaggle run`, as a process, for its tests.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails by a panic")]

use std::{
    borrow::BorrowMut,
    fs::{self, File},
    io::{BufRead as _, BufReader, PipeWriter, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use gaggle_fixtures::{RedisServer, free_port};
use rustix::{
    fs::OFlags,
    process::{Pid, Signal, kill_process, test_kill_process},
};

pub(crate) fn gaggle(url: &str, arguments: &[&str]) -> Command {
    let mut command = tool(&["run"]);
    command.args(arguments).env("GAGGLE_URL", url);
    command
}

/// `gaggle` with these arguments, and without what it reads of the environment.
pub(crate) fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.args(arguments).stdin(Stdio::null());
    command.env_remove("RUST_LOG").env_remove("GAGGLE_REDIS").env_remove("GAGGLE_URL");
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The exit code, the standard output and the standard error.
pub(crate) fn finish(mut command: impl BorrowMut<Command>) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.borrow_mut().output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A run of `gaggle run`.
pub(crate) struct Running {
    pub(crate) process: Child,
    output: BufReader<ChildStdout>,
    /// What its command has printed first.
    pub(crate) first_line: String,
}

impl Running {
    /// Starts one, and returns when its command has printed a line.
    pub(crate) fn start(command: Command) -> Self {
        let mut running = Self::start_waiting(command);
        running.read_first_line();
        running
    }

    /// Starts one whose key is held.
    pub(crate) fn start_waiting(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        Self::start_with_output(command)
    }

    /// Starts one with a standard error of the test's own.
    pub(crate) fn start_with_output(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output, first_line: String::new() }
    }

    pub(crate) fn read_first_line(&mut self) {
        self.output.read_line(&mut self.first_line).unwrap();
        self.first_line.truncate(self.first_line.trim_end().len());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(&self.process.id().to_string()), signal).unwrap();
    }

    /// The exit code, and the output after the first line.
    pub(crate) fn finish(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.output.read_to_string(&mut out).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.process.wait().unwrap().code(), out, err)
    }
}

pub(crate) fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

/// The processes that any thread of this process has started.
pub(crate) fn children(parent: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).unwrap();
    let children = threads.map(|it| fs::read_to_string(it.unwrap().path().join("children")));
    let children: Vec<String> = children.filter_map(Result::ok).collect();
    children.iter().flat_map(|ids| ids.split_whitespace()).map(str::to_owned).collect()
}

/// Whether the process has ended; a zombie has.
pub(crate) fn has_ended(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.contains(") Z ") || test_kill_process(pid(process)).is_err()
}

pub(crate) fn is_stopped(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.contains(") T ")
}

/// Fills a pipe. Non-blocking without the process that shares this end.
pub(crate) fn fill(pipe: &PipeWriter) {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let flags = OFlags::NONBLOCK.bits().try_into().unwrap();
    let mut filler = File::options().write(true).custom_flags(flags).open(path).unwrap();
    while filler.write(&[b'\n'; 4096]).is_ok() {}
}

/// Ends the lock of the key `k` as an operator does. Returns whether it was held.
pub(crate) fn force_unlock(redis: &RedisServer, reason: &str) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.args(["unlock", "k", "--force", "--reason", reason]).env("GAGGLE_URL", redis.url());
    command.output().unwrap().status.success()
}

/// The one master of a Redis Cluster, and its URL.
pub(crate) fn start_cluster() -> (RedisServer, String) {
    let bus = free_port().to_string();
    let own = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let address = ["--cluster-announce-ip", "127.0.0.1"];
    let master = RedisServer::start_with(&[&own[..], &address].concat());
    let mut connection = redis::Client::open(master.url()).unwrap().get_connection().unwrap();
    let all = ["ADDSLOTSRANGE", "0", "16383"];
    redis::cmd("CLUSTER").arg(&all).exec(&mut connection).unwrap();
    wait_until(|| {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connection).unwrap();
        info.contains("cluster_state:ok")
    });
    let url = format!("redis+cluster://127.0.0.1:{}", master.port());
    (master, url)
}

/// Whether a second acquisition waits for the key.
pub(crate) fn is_queued(redis: &RedisServer, key: &str) -> bool {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("gaggle*").query(&mut connection).unwrap();
    keys.iter().any(|name| name.ends_with(&format!(":f:{key}")))
}

pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(5));
    }
    panic!("the condition is not met within 10 s");
}
