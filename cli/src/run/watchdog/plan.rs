//! When the watchdog sends which signal: a function of its orders and the time.

use std::time::Duration;

use gaggle::Instant;
use rustix::process::{Pid, Signal};

use super::{Order, Verdict};

/// How much earlier than the deadline SIGKILL is sent, because it takes a moment to arrive.
const EARLY: Duration = Duration::from_millis(2);
/// How often an ended command's group is checked for processes that it left.
const CHECK_EVERY: Duration = Duration::from_millis(1);
/// How long processes may take to end after SIGKILL, before they are given up.
const GIVE_UP_AFTER: Duration = Duration::from_millis(200);

/// The watchdog's state.
#[derive(Debug, Default)]
pub(super) struct Plan {
    watched: Option<Watched>,
    /// No further orders come.
    is_abandoned: bool,
}

#[derive(Debug)]
struct Watched {
    group: Pid,
    until: Instant,
    kill_after: Duration,
    /// The signal that was sent last.
    sent: Option<Signal>,
    verdict: Verdict,
    /// When the command ended, or when its group was last checked.
    left_at: Option<Instant>,
}

impl Plan {
    pub(super) fn group(&self) -> Option<Pid> {
        self.watched.as_ref().map(|watched| watched.group)
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.watched.as_ref().map_or(Verdict::Untouched, |watched| watched.verdict)
    }

    pub(super) fn obey(&mut self, order: Order, now: Instant) {
        match (order, &mut self.watched) {
            (Order::Watch { group, until, kill_after }, watched) => {
                *watched = Pid::from_raw(group).map(|group| Watched {
                    group,
                    until: since_boot(until),
                    kill_after: Duration::from_nanos(kill_after),
                    sent: None,
                    verdict: Verdict::Untouched,
                    left_at: None,
                });
            }
            (_, None) => {}
            // A command that was asked to end is not kept by an extension.
            (Order::Until(until), Some(watched)) if watched.sent.is_none() => {
                watched.until = watched.until.max(since_boot(until));
            }
            (Order::Until(_), Some(_)) => {}
            (Order::End(at), Some(watched)) => watched.end(since_boot(at)),
            (Order::Left(at), Some(watched)) => {
                watched.end(since_boot(at));
                watched.left_at = Some(now);
            }
        }
    }

    /// `gaggle run` has ended without a word: SIGKILL now.
    pub(super) fn abandon(&mut self) {
        self.is_abandoned = true;
        if let Some(watched) = &mut self.watched {
            watched.end(Instant::default());
        }
    }

    /// When [`act`](Self::act) or [`has_ended`](Self::has_ended) is to be called next.
    pub(super) fn due(&self) -> Option<Instant> {
        let watched = self.watched.as_ref()?;
        let check_at = watched.left_at.map(|at| at.after(CHECK_EVERY));
        match (watched.next(), check_at) {
            (Some((at, _)), Some(check_at)) => Some(at.min(check_at)),
            (next, check_at) => next.map(|(at, _)| at).or(check_at),
        }
    }

    /// The next signal that is due.
    pub(super) fn act(&mut self, now: Instant) -> Option<Signal> {
        let watched = self.watched.as_mut()?;
        let (_, signal) = watched.next().filter(|(at, _)| *at <= now)?;
        watched.sent = Some(signal);
        if watched.left_at.is_none() {
            let killed = signal == Signal::KILL;
            watched.verdict = if killed { Verdict::Killed } else { Verdict::Terminated };
        }
        Some(signal)
    }

    /// Whether nothing is left to watch.
    pub(super) fn has_ended(&mut self, now: Instant, is_empty: impl Fn() -> bool) -> bool {
        let Some(watched) = &mut self.watched else { return self.is_abandoned };
        if watched.left_at.is_some() {
            watched.left_at = Some(now);
            let given_up = watched.next().is_none() && now >= watched.until.after(GIVE_UP_AFTER);
            return is_empty() || given_up;
        }
        self.is_abandoned
    }
}

impl Watched {
    /// The next signal, and when it is due.
    fn next(&self) -> Option<(Instant, Signal)> {
        match self.sent {
            None => Some((self.until.before(self.kill_after), Signal::TERM)),
            Some(Signal::TERM) => Some((self.until.before(EARLY), Signal::KILL)),
            Some(_) => None,
        }
    }

    /// SIGTERM now, unless it was sent, and SIGKILL at `at`, unless the deadline is earlier.
    fn end(&mut self, at: Instant) {
        self.until = self.until.min(at);
        self.kill_after = Duration::MAX;
    }
}

const fn since_boot(nanos: u64) -> Instant {
    Instant::from_origin(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        since_boot(ms * MS)
    }

    /// A deadline at 100 ms, with SIGTERM 30 ms earlier.
    fn watching() -> Plan {
        let mut plan = Plan::default();
        plan.obey(Order::Watch { group: 7, until: 100 * MS, kill_after: 30 * MS }, at(0));
        plan
    }

    #[test]
    fn sigkill_at_the_deadline_follows_sigterm() {
        let mut plan = watching();
        assert_eq!((plan.due(), plan.act(at(69))), (Some(at(70)), None));
        assert_eq!(plan.act(at(70)), Some(Signal::TERM));
        assert_eq!((plan.act(at(97)), plan.due()), (None, Some(at(98))));
        assert_eq!(plan.act(at(98)), Some(Signal::KILL));
        assert_eq!((plan.due(), plan.act(at(999))), (None, None));
        assert_eq!(plan.verdict(), Verdict::Killed);
    }

    #[test]
    fn extend_moves_signals_until_sigterm() {
        let mut plan = watching();
        plan.obey(Order::Until(200 * MS), at(50));
        plan.obey(Order::Until(150 * MS), at(50));
        assert_eq!((plan.act(at(169)), plan.due()), (None, Some(at(170))));
        assert_eq!(plan.act(at(170)), Some(Signal::TERM));
        plan.obey(Order::Until(400 * MS), at(171));
        assert_eq!(plan.due(), Some(at(198)));
    }

    #[test]
    fn loss_sends_sigterm_and_delays_nothing() {
        let mut plan = watching();
        plan.obey(Order::End(20 * MS), at(5));
        assert_eq!((plan.act(at(5)), plan.due()), (Some(Signal::TERM), Some(at(18))));
        let mut plan = watching();
        plan.obey(Order::End(500 * MS), at(5));
        assert_eq!((plan.act(at(5)), plan.due()), (Some(Signal::TERM), Some(at(98))));
    }

    #[test]
    fn end_of_the_orders_kills_at_once() {
        let mut plan = watching();
        plan.abandon();
        let sent: Vec<_> = std::iter::from_fn(|| plan.act(at(1))).collect();
        assert_eq!(sent, [Signal::TERM, Signal::KILL]);
        assert!(plan.has_ended(at(1), || false));
        let mut unused = Plan::default();
        assert!(!unused.has_ended(at(1), || true));
        unused.abandon();
        assert!(unused.has_ended(at(1), || true));
    }

    #[test]
    fn leftovers_do_not_change_the_verdict() {
        let mut plan = watching();
        plan.obey(Order::Left(30 * MS), at(10));
        assert_eq!((plan.act(at(10)), plan.act(at(10))), (Some(Signal::TERM), None));
        assert!(!plan.has_ended(at(10), || false));
        assert_eq!(plan.due(), Some(at(11)));
        assert!(plan.has_ended(at(11), || true));
        assert_eq!(plan.act(at(28)), Some(Signal::KILL));
        assert!(!plan.has_ended(at(229), || false) && plan.has_ended(at(230), || false));
        assert_eq!(plan.verdict(), Verdict::Untouched);
    }
}
