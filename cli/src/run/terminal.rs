//! The terminal of `gaggle run`, which its command gets when it asks for it.

use std::fs::File;

use nix::sys::signal::{SigSet, Signal};
use rustix::{
    process::{Pid, getpgrp},
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The controlling terminal, whose foreground is lent to the command's process group.
#[derive(Default)]
pub(super) struct Terminal {
    lent: Option<File>,
}

impl Terminal {
    /// Makes the group the foreground, if this process's own group is. Returns whether it is now.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        // The open fails if the process has no terminal.
        let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else {
            return false;
        };
        let own = tcgetpgrp(&terminal).is_ok_and(|foreground| foreground == getpgrp());
        if own && tcsetpgrp(&terminal, group).is_ok() {
            self.lent = Some(terminal);
        }
        own
    }

    /// Makes this process's own group the foreground again. Returns whether it was lent.
    pub(super) fn take_back(&mut self) -> bool {
        let Some(terminal) = self.lent.take() else { return false };
        // From the background this call is allowed only while SIGTTOU is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let _ = blocked.thread_block();
        // A terminal that was closed has no foreground.
        let _ = tcsetpgrp(&terminal, getpgrp());
        let _ = blocked.thread_unblock();
        true
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
