//! When the watchdog sends which signal: a function of its orders and the time.

use std::time::Duration;

use gaggle::Instant;
use rustix::process::Signal;

use super::{Order, Verdict};

/// How often a group is checked for processes that the command left.
const CHECK_EVERY: Duration = Duration::from_millis(1);
/// How often processes are searched for, which takes longer.
pub(super) const SEARCH_EVERY: Duration = Duration::from_millis(20);
/// How long processes may take to end after SIGKILL, before they are given up.
const GIVE_UP_AFTER: Duration = Duration::from_millis(200);

/// The signals that are due for one command, and their times.
#[derive(Debug)]
pub(super) struct Plan {
    /// How long before the deadline SIGTERM is due.
    term_before: Duration,
    /// The same of SIGKILL, which takes a moment to arrive.
    kill_before: Duration,
    term_at: Option<Instant>,
    kill_at: Option<Instant>,
    verdict: Verdict,
    /// No order follows that the command survives: it has ended, or `gaggle run` has.
    is_leaving: bool,
    /// Whether processes that left the group are to end.
    with_others: bool,
    /// When SIGKILL was sent, or later when the command was reported to have ended.
    killed_at: Option<Instant>,
    check_at: Option<Instant>,
}

impl Plan {
    pub(super) fn new(until: Instant, term_before: Duration, kill_before: Duration) -> Self {
        Self {
            term_before,
            kill_before,
            term_at: Some(until.before(term_before)),
            kill_at: Some(until.before(kill_before)),
            verdict: Verdict::Untouched,
            is_leaving: false,
            with_others: false,
            killed_at: None,
            check_at: None,
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether signals are also for processes that left the group.
    pub(super) fn with_others(&self) -> bool {
        self.with_others
    }

    pub(super) fn was_killed(&self) -> bool {
        self.killed_at.is_some()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    pub(super) fn obey(&mut self, order: Order, now: Instant) {
        match order {
            Order::Watch { .. } => {}
            Order::Until(until) => {
                let until = since_boot(until);
                // A command that was asked to end is not kept by an extension.
                if let (Some(term_at), Some(kill_at)) = (&mut self.term_at, &mut self.kill_at) {
                    *term_at = until.before(self.term_before).max(*term_at);
                    *kill_at = until.before(self.kill_before).max(*kill_at);
                }
            }
            Order::End(at) => {
                self.term_at = self.term_at.filter(|at| *at <= now);
                self.touch(Verdict::Terminated);
                self.kill_by(since_boot(at));
            }
            Order::Left { at, with_others } => {
                if !self.is_leaving {
                    self.term_at = self.term_at.map(|_| now);
                    self.is_leaving = true;
                    self.check_at = Some(now);
                    // The group is not empty before its leader is reaped. This order precedes that.
                    self.killed_at = self.killed_at.map(|_| now);
                }
                self.with_others |= with_others;
                self.kill_by(since_boot(at));
            }
        }
    }

    /// `gaggle run` has ended without a word: SIGKILL now.
    pub(super) fn abandon(&mut self, now: Instant) {
        self.touch(Verdict::Killed);
        self.kill_by(now);
        self.is_leaving = true;
        self.check_at = Some(now);
    }

    /// How long to wait for the next check, where no alarm does.
    pub(super) fn pause(&self) -> Duration {
        if self.was_killed() { CHECK_EVERY } else { Duration::ZERO }
    }

    /// The time of the next call of [`act`](Self::act) or [`is_check_due`](Self::is_check_due).
    pub(super) fn due(&self) -> Option<Instant> {
        [self.term_at, self.kill_at, self.check_at].into_iter().flatten().min()
    }

    /// The next signal that is due.
    pub(super) fn act(&mut self, now: Instant) -> Option<Signal> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.kill_at) {
            (self.term_at, self.kill_at) = (None, None);
            self.killed_at = Some(now);
            self.touch(Verdict::Killed);
            self.check_at = Some(now.after(CHECK_EVERY));
            return Some(Signal::KILL);
        }
        if is_due(self.term_at) {
            self.term_at = None;
            self.touch(Verdict::Terminated);
            return Some(Signal::TERM);
        }
        None
    }

    pub(super) fn is_check_due(&self, now: Instant) -> bool {
        self.check_at.is_some_and(|at| at <= now)
    }

    /// Records a check, which found that something lives or that nothing does. Returns whether
    /// nothing is left to do.
    pub(super) fn checked(&mut self, now: Instant, group_lives: bool, others_live: bool) -> bool {
        let given_up = self.killed_at.is_some_and(|at| now >= at.after(GIVE_UP_AFTER));
        let ended = given_up || !(group_lives || others_live);
        let every = if group_lives || self.was_killed() { CHECK_EVERY } else { SEARCH_EVERY };
        self.check_at = (!ended).then(|| now.after(every));
        ended && self.is_leaving
    }

    /// The command is ended: the verdict, unless it has ended before.
    fn touch(&mut self, verdict: Verdict) {
        if !self.is_leaving {
            self.verdict = verdict;
            self.with_others = true;
        }
    }

    /// SIGKILL at `at`, unless it is due earlier or was sent.
    fn kill_by(&mut self, at: Instant) {
        self.kill_at = self.kill_at.map(|kill_at| kill_at.min(at));
    }
}

pub(super) const fn since_boot(nanos: u64) -> Instant {
    Instant::from_origin(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        since_boot(ms * MS)
    }

    /// A deadline at 100 ms, with SIGTERM 30 ms and SIGKILL 5 ms earlier.
    fn watching() -> Plan {
        Plan::new(at(100), Duration::from_millis(30), Duration::from_millis(5))
    }

    fn left(ms: u64, with_others: bool) -> Order {
        Order::Left { at: ms * MS, with_others }
    }

    #[test]
    fn sigkill_at_the_deadline_follows_sigterm() {
        let mut plan = watching();
        assert_eq!((plan.due(), plan.act(at(69))), (Some(at(70)), None));
        assert_eq!(plan.act(at(70)), Some(Signal::TERM));
        assert_eq!((plan.act(at(94)), plan.due()), (None, Some(at(95))));
        assert_eq!(plan.act(at(95)), Some(Signal::KILL));
        assert!(plan.with_others() && !plan.checked(at(96), false, true));
        assert_eq!(plan.due(), Some(at(97)));
        assert!(!plan.checked(at(97), false, false));
        assert_eq!((plan.due(), plan.act(at(999))), (None, None));
        assert_eq!(plan.verdict(), Verdict::Killed);
    }

    #[test]
    fn sigkill_that_is_due_waits_for_no_sigterm() {
        let mut plan = watching();
        assert_eq!((plan.act(at(95)), plan.act(at(999))), (Some(Signal::KILL), None));
        let mut late = watching();
        assert_eq!((late.act(at(70)), late.act(at(71))), (Some(Signal::TERM), None));
    }

    #[test]
    fn extend_moves_signals_until_sigterm() {
        let mut plan = watching();
        plan.obey(Order::Until(200 * MS), at(50));
        plan.obey(Order::Until(150 * MS), at(50));
        assert_eq!((plan.act(at(169)), plan.due()), (None, Some(at(170))));
        assert_eq!(plan.act(at(170)), Some(Signal::TERM));
        plan.obey(Order::Until(400 * MS), at(171));
        assert_eq!(plan.due(), Some(at(195)));
    }

    #[test]
    fn loss_brings_sigkill_forward() {
        let mut plan = watching();
        plan.obey(Order::End(20 * MS), at(5));
        assert_eq!((plan.act(at(5)), plan.due()), (None, Some(at(20))));
        assert_eq!((plan.act(at(20)), plan.verdict()), (Some(Signal::KILL), Verdict::Killed));
        let mut plan = watching();
        plan.obey(Order::End(500 * MS), at(71));
        assert_eq!((plan.act(at(71)), plan.due()), (Some(Signal::TERM), Some(at(95))));
    }

    #[test]
    fn end_of_the_orders_kills_at_once() {
        let mut plan = watching();
        plan.abandon(at(1));
        assert_eq!((plan.act(at(1)), plan.act(at(1))), (Some(Signal::KILL), None));
        assert!(plan.with_others() && !plan.checked(at(1), true, false));
        assert!(plan.checked(at(2), false, false));
    }

    #[test]
    fn leftovers_do_not_change_the_verdict() {
        let mut plan = watching();
        plan.obey(left(30, false), at(10));
        assert_eq!((plan.act(at(10)), plan.act(at(10))), (Some(Signal::TERM), None));
        assert!(plan.is_check_due(at(10)) && !plan.checked(at(10), true, false));
        assert_eq!(plan.due(), Some(at(11)));
        assert_eq!((plan.act(at(29)), plan.act(at(30))), (None, Some(Signal::KILL)));
        assert!(!plan.checked(at(229), true, false) && plan.checked(at(230), true, false));
        assert_eq!((plan.verdict(), plan.with_others()), (Verdict::Untouched, false));
    }

    #[test]
    fn late_report_of_a_killed_command_leaves_time_to_reap() {
        let mut plan = watching();
        assert_eq!(plan.act(at(95)), Some(Signal::KILL));
        plan.obey(left(500, true), at(400));
        assert!(!plan.checked(at(400), true, false));
        assert!(plan.checked(at(401), false, false));
    }

    #[test]
    fn others_end_with_a_command_that_was_ended() {
        let mut plan = watching();
        plan.obey(left(30, true), at(10));
        assert_eq!((plan.act(at(10)), plan.with_others()), (Some(Signal::TERM), true));
        assert!(!plan.checked(at(10), false, true));
        assert_eq!(plan.due(), Some(at(30)));
        assert!(plan.checked(at(30), false, false));
        let mut plan = watching();
        plan.obey(Order::End(90 * MS), at(5));
        plan.obey(left(90, false), at(10));
        assert!(plan.with_others());
    }
}
