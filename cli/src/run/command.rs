//! The command of `gaggle run`: a process group that starts stopped, and is watched before it runs.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::Read as _,
    io::{self, ErrorKind},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command as Process, ExitCode},
    time::Duration,
};

use gaggle::Guard;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, getppid, kill_process, waitid,
};

use super::{
    WRONG_USE,
    address::Address,
    args::Settings,
    event::{Event, Reporter},
    processes::{NONCE, Processes},
    signals,
    stderr::Stderr,
};

const ENDED: WaitIdOptions = WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG);

/// The first argument of the process that becomes the command.
pub(crate) const STARTER: &str = "run-command";

/// The third argument of the starter, the form of its event.
const JSON: &str = "json";
const TEXT: &str = "text";

pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;

/// The latest state of a process group.
pub(super) enum State {
    Running,
    /// The first process was stopped, and resumed.
    Resumed,
    /// The first process was stopped by this signal.
    Stopped(Signal),
    /// The first process has ended with this exit code.
    Ended(u8),
}

/// The command, and the processes that it starts.
pub(super) struct Command {
    pub(super) processes: Processes,
}

impl Command {
    /// Starts a process that stops itself before it becomes the command. Its parent-death signal is
    /// bound to the calling thread, which is therefore the main thread.
    pub(super) fn start(settings: &Settings, guard: &Guard, address: &Address) -> io::Result<Self> {
        let child = Process::new(this_program()?)
            .arg0("gaggle")
            .arg(STARTER)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(if settings.reporter.is_json() { JSON } else { TEXT })
            .args(&settings.command)
            .env("GAGGLE_KEY", &settings.key)
            .env("GAGGLE_FENCING_TOKEN", guard.fencing_token().to_string())
            .env(NONCE, guard.nonce().to_string())
            .env("GAGGLE_URL", address.url().to_string())
            .process_group(0)
            .spawn()?;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = id.expect("a child has a process id");
        Ok(Self { processes: Processes::new(group, guard.nonce()) })
    }

    pub(super) fn group(&self) -> Pid {
        self.processes.group()
    }

    /// The state of its first process, which is not reaped: the number of the group stays taken.
    pub(super) fn state(&self) -> io::Result<State> {
        let changes = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED;
        let looks = WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.group()), changes | looks)?;
        Ok(match status {
            None => State::Running,
            Some(status) if status.continued() => State::Resumed,
            Some(status) => match status.stopping_signal().and_then(Signal::from_named_raw) {
                Some(signal) => State::Stopped(signal),
                None => State::Ended(exit_code(&status)),
            },
        })
    }

    /// Lets it run, once it has stopped itself.
    pub(super) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends a signal to the group.
    pub(super) fn signal(&self, signal: Signal) {
        self.processes.signal_group(signal);
    }

    /// Sends SIGTERM or SIGKILL to all of its processes, before it is reaped.
    pub(super) fn end(&self, signal: Signal) {
        self.processes.end_group(signal);
        self.processes.end_others(signal);
    }

    /// Reaps the ended processes of the group that are children of this process: its first one,
    /// and others where this process is the init of a container.
    pub(super) fn reap(&self) {
        while let Ok(Some(_)) = waitid(WaitId::Pgid(Some(self.group())), ENDED) {}
    }

    /// In the init of a container: reaps ended processes that left the group and lost their
    /// parents. `watchdog` is reaped elsewhere.
    pub(super) fn reap_orphans(&self, watchdog: Option<Pid>) {
        if !getpid().is_init() {
            return;
        }
        // A system that does not list them leaves them to its own end.
        let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let children = children.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?));
        for orphan in children.filter(|child| *child != self.group() && Some(*child) != watchdog) {
            let _ = waitid(WaitId::Pid(orphan), ENDED);
        }
    }
}

/// The exit code, or 128 and the number of the signal.
fn exit_code(status: &WaitIdStatus) -> u8 {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The program of this process, also after its file was replaced.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let program = PathBuf::from("/proc/self/exe");
    if program.exists() { Ok(program) } else { env::current_exe() }
}

/// Stops this process until it is watched, and then becomes the command.
pub(crate) fn run_starter() -> ExitCode {
    let mut arguments = env::args_os().skip(2);
    let parent = arguments.next().and_then(|id| id.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let is_json = arguments.next().is_some_and(|form| form == JSON);
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // A parent that ended before the line above sends no signal.
    let (Some(program), true) = (arguments.next(), parent.is_some() && getppid() == parent) else {
        return ExitCode::from(WRONG_USE);
    };
    let _ = kill_process(getpid(), Signal::STOP);
    // `gaggle run` blocks SIGTSTP.
    signals::unblock_all();
    let error = Process::new(&program).args(arguments).exec();
    let reporter =
        Reporter::new(is_json, false).with_key(env::var("GAGGLE_KEY").unwrap_or_default());
    let reason = why(&program, &error);
    let program = program.display().to_string();
    reporter.report(&Event::NotExecuted { program, reason });
    Stderr.settle(Duration::MAX);
    let is_not_found = error.kind() == ErrorKind::NotFound;
    ExitCode::from(if is_not_found { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Why a program was not executed. The system says of a program that is there that it is not, if
/// its interpreter is not.
fn why(program: &OsStr, error: &io::Error) -> String {
    let found = if error.kind() == ErrorKind::NotFound { file_of(program) } else { None };
    let Some(found) = found else { return error.to_string() };
    // The system reads only this part.
    let mut first = Vec::new();
    let _ = fs::File::open(found).and_then(|it| it.take(256).read_to_end(&mut first));
    let text = String::from_utf8_lossy(&first);
    let line = text.split('\n').next().and_then(|line| line.strip_prefix("#!"));
    match line.and_then(|line| line.split([' ', '\t']).find(|word| !word.is_empty())) {
        Some(interpreter) => format!("bad interpreter {interpreter:?}: {error}"),
        None => format!("the loader that it needs is missing: {error}"),
    }
}

/// The file of this name, by a search in `PATH` if the name is not a path.
fn file_of(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if program.as_encoded_bytes().contains(&b'/') {
        return path.is_file().then(|| path.to_owned());
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(path)).find(|it| it.is_file())
}
