//! The processes of a command: its group, and others that left it but inherited its nonce.

use std::{cell::Cell, fs};

use gaggle::Nonce;
use rustix::{
    io::Errno,
    process::{Pid, Signal, getpgid, getpid, kill_process_group, test_kill_process_group},
};

/// The variable by which a process that left the group is found. A new environment exempts a
/// process, as `env -u GAGGLE_NONCE` makes it.
pub(super) const NONCE: &str = "GAGGLE_NONCE";

/// The processes of one command.
pub(super) struct Processes {
    group: Pid,
    /// The variable and its value, as an environment contains them.
    variable: Vec<u8>,
    /// Whether a signal was not permitted, as for a setuid program.
    denied: Cell<bool>,
}

impl Processes {
    /// The processes of this group, and all that inherited this nonce.
    pub(super) fn new(group: Pid, nonce: Nonce) -> Self {
        Self { group, variable: format!("{NONCE}={nonce}").into(), denied: Cell::new(false) }
    }

    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Whether a signal was not permitted.
    pub(super) fn denied(&self) -> bool {
        self.denied.get()
    }

    /// Sends a signal to the group. A group that has ended needs none.
    pub(super) fn signal_group(&self, signal: Signal) {
        self.note(kill_process_group(self.group, signal));
    }

    /// Ends the group, with its stopped processes, which take no SIGTERM.
    pub(super) fn end_group(&self, signal: Signal) {
        self.signal_group(signal);
        if signal == Signal::TERM {
            self.signal_group(Signal::CONT);
        }
    }

    /// Sends a signal to the processes that left the group, and SIGKILL to all. Returns whether
    /// there are any. A process may start another during this search: repeat it after SIGKILL.
    pub(super) fn end_others(&self, signal: Signal) -> bool {
        let mut found = false;
        for process in self.inheritors() {
            // Each gets one SIGTERM: a second may mean something else to a program.
            if signal != Signal::KILL && getpgid(Some(process)) == Ok(self.group) {
                continue;
            }
            found |= self.signal_inheritor(process, signal);
        }
        found
    }

    /// Whether any process inherited the nonce and lives, in the group or outside.
    pub(super) fn others_live(&self) -> bool {
        self.inheritors().next().is_some()
    }

    /// Whether the group is empty. A process that was not reaped is in it.
    pub(super) fn group_is_empty(&self) -> bool {
        test_kill_process_group(self.group) == Err(Errno::SRCH)
    }

    /// Whether no process of the group lives, by a search that takes milliseconds. Processes that
    /// have ended stay in their group until they are reaped, which some inits do late.
    pub(super) fn group_has_ended(&self) -> bool {
        let has_ended = |stat: Stat| stat.group != self.group || stat.has_ended;
        let mut stats = processes().filter_map(stat).peekable();
        self.group_is_empty() || stats.peek().is_some() && stats.all(has_ended)
    }

    /// The living processes that inherited the nonce, where the system lists environments.
    fn inheritors(&self) -> impl Iterator<Item = Pid> {
        processes().filter(|process| self.is_inherited_by(*process))
    }

    fn is_inherited_by(&self, process: Pid) -> bool {
        // That of a zombie is empty; that of another user cannot be read.
        let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero()));
        environment.is_ok_and(|it| it.split(|byte| *byte == 0).any(|it| it == self.variable))
    }

    /// Returns whether the process lives and still has the nonce.
    #[cfg(target_os = "linux")]
    fn signal_inheritor(&self, process: Pid, signal: Signal) -> bool {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return false };
        if !self.is_inherited_by(process) {
            return false;
        }
        self.note(pidfd_send_signal(&handle, signal));
        if signal == Signal::TERM {
            let _ = pidfd_send_signal(&handle, Signal::CONT);
        }
        true
    }

    #[cfg(not(target_os = "linux"))]
    fn signal_inheritor(&self, _: Pid, _: Signal) -> bool {
        false
    }

    fn note(&self, sent: Result<(), Errno>) {
        if sent == Err(Errno::PERM) {
            self.denied.set(true);
        }
    }
}

/// All processes, where the system lists them.
fn processes() -> impl Iterator<Item = Pid> {
    // A /proc of another PID namespace shows unrelated processes under the same ids.
    let own =
        fs::read_link("/proc/self").ok().and_then(|id| Pid::from_raw(id.to_str()?.parse().ok()?));
    let is_ours = cfg!(target_os = "linux") && own == Some(getpid());
    let listed = if is_ours { fs::read_dir("/proc").ok() } else { None };
    let entries = listed.into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw)
}

/// What the system shows of a process.
struct Stat {
    group: Pid,
    /// No thread of it is left.
    has_ended: bool,
}

/// See `proc_pid_stat(5)`.
fn stat(process: Pid) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name before may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    let (state, group, threads) = (fields.first()?, fields.get(2)?, fields.get(17)?);
    let group = Pid::from_raw(group.parse().ok()?)?;
    Some(Stat { group, has_ended: matches!(*state, "Z" | "X") && *threads <= "1" })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{os::unix::process::CommandExt as _, process::Command};

    use super::*;

    #[test]
    fn group_that_is_not_reaped_has_ended() {
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
        let group = Processes::new(id, Nonce::random());
        assert!(!group.group_is_empty() && !group.group_has_ended());
        child.kill().unwrap();
        while stat(id).is_some_and(|stat| !stat.has_ended) {}
        assert!(!group.group_is_empty() && group.group_has_ended());
        child.wait().unwrap();
        assert!(group.group_is_empty() && group.group_has_ended());
    }
}
