//! The actions on one key, with the time in which each took effect.

use std::time::Duration;

use gaggle_strategies::Drift;

use super::{Call, Operation, Outcome, Refusal, acquisition::Key, model::Action};

/// The events of one key, as the search takes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// In order of invocation.
    pub(super) steps: Vec<Step>,
    /// Whether tokens give the order of the grants: they do (contract, rule 5) unless two nonces
    /// have one token, or tokens contradict real time.
    pub(super) by_token: bool,
}

/// An action with the time in which it took effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    /// Not before.
    pub(super) from: Duration,
    /// Not after; `None` may be at any time from then on, or never.
    pub(super) to: Option<Duration>,
    /// The token that gives its place among the grants.
    pub(super) token: Option<u64>,
}

impl Timeline {
    /// The timeline of a key. Nothing after `until` is known: later calls are left out, later
    /// replies unknown.
    pub(super) fn of(key: &Key<'_>, until: Duration, drift: Drift) -> Self {
        let mut timeline = Self::default();
        let mut calls = Vec::new();
        for (number, operations) in (0..).zip(key.acquisitions()) {
            calls.clear();
            calls.extend(operations.filter_map(|operation| Seen::of(operation, until)));
            timeline.take_in(number, &calls, drift);
        }
        timeline.steps.sort_by_key(|step| step.from);
        timeline.by_token = tokens_order(&timeline.steps);
        timeline
    }

    /// Takes in the calls of one acquisition, in order of invocation.
    ///
    /// A ghost that no call found holding is left out. Every legal order is legal without it: a
    /// hold that it ended may end later as well. Each would double the work of a search that fails
    /// late.
    fn take_in(&mut self, acquisition: u32, calls: &[Seen<'_>], drift: Drift) {
        let nonce = Nonce::of(calls);
        let unlocks = self.steps.len();
        let released = self.take_in_endings(acquisition, calls, nonce.done);
        let unlocks = u32::try_from(self.steps.len() - unlocks).unwrap_or(u32::MAX);
        let finds = nonce.finds.saturating_add(unlocks);
        if let Some(ghost) = nonce.ghost.filter(|_| finds > 0) {
            let (token, repeated) = (nonce.token, nonce.locks > 1);
            let action = Action::Ghost { acquisition, token, released, finds, repeated };
            self.steps.push(Step { action, from: ghost, to: None, token });
        }
        for call in calls {
            let from = call.operation.invoked;
            let Some(to) = call.completed else { continue };
            let action = match (call.operation.call, call.outcome) {
                (_, Outcome::Granted { token, until }) => Action::Grant {
                    acquisition,
                    token,
                    until: certain(to, until, drift),
                    asked: nonce.asked.unwrap_or(from),
                    queued: call.operation.queued,
                    released,
                    // One grant is the first and not found by another.
                    finds: finds - 1,
                    repeated: nonce.locks > 1,
                },
                (_, Outcome::Extended { until }) => {
                    Action::Extend { acquisition, until: certain(to, until, drift) }
                }
                (_, Outcome::Refused(Refusal::NotHolder)) => Action::NotHolder { acquisition },
                // From the deadline on, the caller's own clock says this without asking.
                (_, Outcome::Refused(Refusal::Expired))
                    if nonce.first_until.is_some_and(|until| to < certain(from, until, drift)) =>
                {
                    Action::NotHolder { acquisition }
                }
                _ => continue,
            };
            let token = match call.outcome {
                Outcome::Granted { token, .. } => Some(token),
                _ => None,
            };
            self.steps.push(Step { action, from, to: Some(to), token });
        }
    }

    /// Unlocks. An unlock that follows one without a reply may report the effect of that one, so
    /// they are one action with the time of both; the same for several at once. Without any success
    /// they are no action: the hold may end from the first on.
    fn take_in_endings(
        &mut self,
        acquisition: u32,
        calls: &[Seen<'_>],
        done: Option<Duration>,
    ) -> Option<Duration> {
        let action = Action::Unlock { acquisition };
        let mut first = None;
        for call in calls {
            let from = call.operation.invoked;
            match (call.operation.call, call.outcome) {
                (Call::Unlock, Outcome::Unknown) => {
                    first.get_or_insert(from);
                }
                // A failed LOCK withdraws its nonce, also if another call of it was granted: but
                // not a given one, on which another process may rely.
                (Call::Lock { .. }, _) if call.is_ghost() && !call.operation.nonce.is_given() => {
                    first.get_or_insert(from);
                }
                (Call::Unlock, Outcome::Done) => {
                    if done.is_some_and(|done| from > done) {
                        let to = call.completed;
                        self.steps.push(Step { action, from, to, token: None });
                    } else {
                        first.get_or_insert(from);
                    }
                }
                _ => {}
            }
        }
        if let (Some(from), to @ Some(_)) = (first, done) {
            self.steps.push(Step { action, from, to, token: None });
            return None;
        }
        first
    }
}

/// Whether no two nonces have one token, none has two, and no token contradicts real time. By
/// `from`, each grant comes after all that had ended by then.
fn tokens_order(steps: &[Step]) -> bool {
    let mut grants: Vec<(u64, u32, Duration, Duration)> = steps
        .iter()
        .filter_map(|step| match step.action {
            Action::Grant { acquisition, token, asked, .. } => {
                Some((token, acquisition, asked, step.to?))
            }
            _ => None,
        })
        .collect();
    grants.sort_unstable();
    // From the last one back: no grant was known before one with a smaller token was asked for.
    let mut earliest = Duration::MAX;
    let mut ordered = true;
    for &(_, _, asked, to) in grants.iter().rev() {
        ordered &= asked <= earliest;
        earliest = earliest.min(to);
    }
    let one_each = grants.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].1 == pair[1].1);
    grants.sort_unstable_by_key(|grant| grant.1);
    let one_token = grants.windows(2).all(|pair| pair[0].1 != pair[1].1 || pair[0].0 == pair[1].0);
    ordered && one_each && one_token
}

/// An operation as it is known at the timeline's end.
#[derive(Clone, Copy)]
struct Seen<'h> {
    operation: &'h Operation,
    completed: Option<Duration>,
    outcome: Outcome,
}

impl<'h> Seen<'h> {
    fn of(operation: &'h Operation, until: Duration) -> Option<Self> {
        if operation.invoked > until {
            return None;
        }
        let completed = operation.completed.filter(|completed| *completed <= until);
        let outcome = if completed.is_some() { operation.outcome } else { Outcome::Unknown };
        Some(Self { operation, completed, outcome })
    }

    /// A LOCK that may have taken effect although its caller was not granted.
    fn is_ghost(&self) -> bool {
        self.operation.call.is_lock()
            && matches!(
                self.outcome,
                Outcome::Unknown | Outcome::Refused(Refusal::TimedOut | Refusal::Withdrawn)
            )
    }
}

/// The conclusions from all calls of one nonce.
#[derive(Clone, Copy, Default)]
struct Nonce {
    asked: Option<Duration>,
    /// The first call that may have taken effect without a grant.
    ghost: Option<Duration>,
    token: Option<u64>,
    first_until: Option<Duration>,
    /// When its unlock was first known.
    done: Option<Duration>,
    /// How many actions could take the key for it.
    locks: u32,
    /// How many grants and extensions must find it holding.
    finds: u32,
}

impl Nonce {
    fn of(calls: &[Seen<'_>]) -> Self {
        let mut nonce = Self::default();
        for call in calls {
            let from = call.operation.invoked;
            match call.outcome {
                Outcome::Granted { token, until } => {
                    nonce.asked.get_or_insert(from);
                    nonce.token.get_or_insert(token);
                    nonce.first_until =
                        Some(nonce.first_until.map_or(until, |first| first.min(until)));
                    nonce.locks += 1;
                    nonce.finds += 1;
                }
                Outcome::Done => {
                    nonce.done = nonce.done.map_or(call.completed, |done| {
                        call.completed.map(|completed| completed.min(done))
                    });
                }
                Outcome::Extended { .. } => nonce.finds += 1,
                _ if call.is_ghost() => {
                    nonce.asked.get_or_insert(from);
                    if nonce.ghost.is_none() {
                        nonce.ghost = Some(from);
                        nonce.locks += 1;
                    }
                }
                _ => {}
            }
        }
        nonce
    }
}

/// How much of a lease that ends at `until`, known at `completed`, is certain if the clock of the
/// history and that of the holder drift apart.
fn certain(completed: Duration, until: Duration, drift: Drift) -> Duration {
    until.saturating_sub(drift.over(until.saturating_sub(completed)))
}
