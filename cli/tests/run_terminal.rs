//! Goal: under a shell with job control, a command of `gaggle run` reads the terminal, gets Ctrl-C,
//! and is stopped by Ctrl-Z until `fg`; as the init of a container it leaves no zombie.
//! Method: an interactive bash on a terminal that `script` makes, typed into line by line; a PID
//! namespace that `unshare` makes.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::disallowed_methods, reason = "real processes need the real clock")]

mod run_support;

use std::{
    fs,
    io::{Read as _, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use gaggle_fixtures::RedisServer;

use run_support::wait_until;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// An interactive shell, and what its terminal shows.
struct Shell {
    process: Child,
    keys: ChildStdin,
    shown: Receiver<String>,
    unread: String,
}

impl Shell {
    fn start(url: &str) -> Self {
        let mut shell = Self::on_terminal("bash --norc --noprofile -i", url);
        shell.enter("PS1='shell''> '\n");
        shell.expect("shell> ");
        shell
    }

    /// A program that is the first process of its terminal.
    fn on_terminal(program: &str, url: &str) -> Self {
        let mut command = Command::new("script");
        command.args(["-qfec", program, "/dev/null"]);
        command.env("GAGGLE_URL", url).env("TERM", "dumb");
        command.env("run", format!("{} run k --", env!("CARGO_BIN_EXE_gaggle")));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let keys = process.stdin.take().unwrap();
        let mut output = process.stdout.take().unwrap();
        let (sender, shown) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Self { process, keys, shown, unread: String::new() }
    }

    fn enter(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Reads until the terminal shows this.
    fn expect(&mut self, text: &str) {
        self.read_until(text);
    }

    /// Enters these keys again and again until the terminal shows this.
    fn enter_until(&mut self, keys: &str, text: &str) {
        let until = Instant::now() + Duration::from_secs(10);
        while !self.unread.contains(text) {
            assert!(Instant::now() < until, "{text:?} is not shown: {:?}", self.unread);
            self.enter(keys);
            self.unread.extend(self.shown.recv_timeout(Duration::from_millis(50)));
        }
        self.expect(text);
    }

    /// What the terminal shows before this.
    fn read_until(&mut self, text: &str) -> String {
        while !self.unread.contains(text) {
            let Ok(more) = self.shown.recv_timeout(Duration::from_secs(10)) else {
                panic!("{text:?} is not shown: {:?}", self.unread);
            };
            self.unread += &more;
        }
        let (before, after) = self.unread.split_once(text).unwrap();
        let (before, after) = (before.to_owned(), after.to_owned());
        self.unread = after;
        before
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The terminal closes with `script`, which ends the shell and its jobs.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until the first process of a group sleeps in the foreground of its terminal, as one that
/// reads. Ctrl-Z after the terminal is lent to the group and before SIGCONT has no effect.
fn wait_until_reading(process: &str) {
    wait_until(|| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<_> = fields.split(' ').collect();
        // See `proc_pid_stat(5)`: state, and the foreground group of the terminal.
        fields[0] == "S" && fields[5] == process
    });
}

#[test]
fn command_reads_the_terminal() {
    let redis = RedisServer::start();
    let mut shell = Shell::start(&redis.url());
    shell.enter("$run sh -c 'read a; echo \"<$a>\"; read b; echo \"<$b>\"'; echo \"code $?\"\n");
    shell.enter("one\n");
    shell.expect("<one>");
    shell.enter("two\n");
    shell.expect("<two>");
    shell.expect("code 0");
    // The shell has its terminal again.
    shell.expect("shell> ");
    shell.enter("echo a''b\n");
    shell.expect("ab");
}

#[test]
fn ctrl_c_reaches_the_command() {
    let redis = RedisServer::start();
    let mut shell = Shell::start(&redis.url());
    for read in ["", "read a; echo go\"\"t;"] {
        let job = format!("trap \"echo int; exit 7\" INT; echo re''ady; {read}");
        shell
            .enter(&format!("$run sh -c '{job} while :; do sleep 0.02; done'; echo \"code $?\"\n"));
        shell.expect("ready");
        if !read.is_empty() {
            // Read before Ctrl-C, which empties the terminal's input.
            shell.enter("\n");
            shell.expect("got");
        }
        shell.enter(CTRL_C);
        shell.expect("code 7");
        shell.expect("shell> ");
    }
}

#[test]
fn ctrl_z_stops_the_job_until_fg() {
    let redis = RedisServer::start();
    let mut shell = Shell::start(&redis.url());
    shell.enter("go=$(mktemp -u); mkfifo $go; exec 9<>$go; rm $go\n");
    // The command asks for the terminal only after `fg`, when it reads, or has it.
    for before in ["read go <&9;", "", "read b; echo go''t;"] {
        shell.enter(&format!("$run sh -c 'echo re''ady $$.; {before} read a; echo \"<$a>\"'\n"));
        shell.expect("ready ");
        let command = shell.read_until(".");
        if before.contains("read b") {
            // Read before Ctrl-Z, which empties the terminal's input.
            shell.enter("first\n");
            shell.expect("got");
        } else if before.is_empty() {
            wait_until_reading(&command);
        }
        shell.enter(CTRL_Z);
        shell.expect("Stopped");
        shell.expect("shell> ");
        shell.enter("echo a''b\n");
        shell.expect("ab");
        shell.enter("echo >&9; fg\n");
        shell.enter("line\n");
        shell.expect("<line>");
        shell.expect("shell> ");
    }
}

#[test]
fn background_job_waits_for_fg_to_read() {
    let redis = RedisServer::start();
    let mut shell = Shell::start(&redis.url());
    shell.enter("$run sh -c 'read a; echo \"<$a>\"' &\n");
    shell.expect("shell> ");
    // The shell reports it before its next prompt.
    shell.enter_until("\n", "Stopped");
    shell.enter("fg\n");
    shell.enter("line\n");
    shell.expect("<line>");
}

#[test]
fn run_within_run_reads_the_terminal() {
    let redis = RedisServer::start();
    let mut shell = Shell::start(&redis.url());
    shell.enter("${run/ k / outer } $run sh -c 'echo re''ady $$.; read a; echo \"<$a>\"'\n");
    shell.expect("ready ");
    wait_until_reading(&shell.read_until("."));
    shell.enter(CTRL_Z);
    shell.expect("Stopped");
    shell.expect("shell> ");
    shell.enter("fg\n");
    shell.enter("line\n");
    shell.expect("<line>");
    shell.expect("shell> ");
}

#[test]
fn ctrl_z_without_a_shell_has_no_effect() {
    let redis = RedisServer::start();
    let job = "$run sh -c 'echo re\"\"ady; read a; echo \"<$a>\"'";
    let mut terminal = Shell::on_terminal(&format!("exec {job}"), &redis.url());
    terminal.expect("ready");
    terminal.enter(CTRL_Z);
    thread::sleep(Duration::from_millis(200));
    terminal.enter("line\n");
    terminal.expect("<line>");
}

#[test]
fn init_of_a_container_reaps_orphans() {
    let redis = RedisServer::start();
    let count = "grep -l ^State:.Z /proc/[0-9]*/status | wc -l";
    // Ten daemons leave the group, lose the parents and end.
    let leave = "for i in 1 2 3 4 5 6 7 8 9 10; do (setsid sleep 0.05 &) ; done";
    let job = format!("echo $PPID; {leave}; sleep 0.5; {count}");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_gaggle"), "run", "k"]);
    command.args(["--", "sh", "-c", &job]).env("GAGGLE_URL", redis.url());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "1\n0\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}
