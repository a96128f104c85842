use std::{sync::Arc, time::Duration};

use super::{
    Local, shards,
    signal::Signal,
    state::{News, State, instant, stamp},
};
use crate::{
    Error, Instant, Lock, LockOptions, MaxWait, Nonce, Owner, extended_deadline, granted_deadline,
    lock_table::{
        Bound, ClusterTime, Command, Effect, Ended, Grant, Known, LockRequest, ProcessId, Refusal,
        Seen, Wait,
    },
    wait::{found_deadline, lasts, refusal, wait_until, whole_ms},
};

/// How long a waiter that is not the head of its queue sleeps at the least. The head watches the
/// lease; the others look in case the head's future is alive but never polled.
const BACKSTOP: Duration = Duration::from_secs(1);

/// One call of `lock`.
pub(super) struct Call<'a> {
    local: &'a Local,
    key: Arc<str>,
    nonce: Nonce,
    /// The nonce came from the caller.
    given: bool,
    /// Of its LOCK, once it has asked: where the table lets it wait, its part's entry.
    number: u64,
    duration: Duration,
    /// `sent` and `until` are known.
    started: bool,
    /// Read before anything was asked of the table: once its mutex was taken, where nothing comes before.
    sent: Instant,
    /// When the call must end.
    until: Option<Instant>,
}

/// What a look at the table found.
enum Look {
    Granted(Lock),
    RanOut,
    /// Nothing yet, `now`: look again at this time at the latest.
    Wait {
        now: Instant,
        until: Instant,
    },
}

impl<'a> Call<'a> {
    /// A call that has not asked, and has read no clock.
    fn new(local: &'a Local, key: &str, options: &LockOptions) -> Self {
        Self {
            local,
            key: key.into(),
            nonce: Nonce::random(),
            given: false,
            number: 0,
            duration: Duration::from_millis(whole_ms(options.get_duration())),
            started: false,
            sent: Instant::default(),
            until: None,
        }
    }

    /// Asks the table. Without a wait there is no await between the grant and its return, so
    /// nothing can be left behind.
    pub(super) fn begin(
        local: &'a Local,
        key: &str,
        options: &LockOptions,
    ) -> Result<Begun<'a>, Error> {
        local.telling(|news| Self::begin_noting(local, key, options, news))
    }

    fn begin_noting(
        local: &'a Local,
        key: &str,
        options: &LockOptions,
        news: &mut News,
    ) -> Result<Begun<'a>, Error> {
        let call = Self::new(local, key, options);
        let mut asked = call.ask(key, options, news)?;
        loop {
            match asked {
                Asked::Begun(begun) => return Ok(begun),
                Asked::Full(call, bound) if local.gather(key, bound, news) => {
                    asked = call.ask(key, options, news)?;
                }
                Asked::Full(_, bound) => return Err(local.limit(bound)),
            }
        }
    }

    fn starts(&mut self, now: Instant, options: &LockOptions) {
        (self.sent, self.until) = (now, wait_until(now, options.get_max_wait()));
        self.started = true;
    }

    fn ask(
        mut self,
        key: &str,
        options: &LockOptions,
        news: &mut News,
    ) -> Result<Asked<'a>, Error> {
        self.local.with_open_state(key, news, |state, now| {
            if !self.started {
                self.starts(now, options);
            }
            let (mut found, mut known) = (false, None);
            if self.given {
                // What has ended by now has no LOCK any more. Those of one acquisition have one number, also where
                // its nonce was drawn at first.
                state.step(now, &Command::Noop);
                found = state.table.knows(self.nonce) == Some(Known::Holds);
                known = state.table.request(self.nonce);
            }
            self.number = known.unwrap_or_else(|| state.reserve());
            let request = Command::Lock(self.request(options, &state.owner));
            state.step(now, &request);
            let effect = state.effects.pop().expect("a LOCK is answered");
            let waits = matches!(effect, Effect::Queued { .. });
            if known.is_none() && !waits {
                state.calls.give_back(self.number);
            }
            match effect {
                Effect::Granted(grant) => {
                    self.note(state);
                    let taken = self.take(state, &grant, now);
                    // While others wait with this nonce, the last of them to leave withdraws it.
                    let others = || state.calls.get(self.number, self.nonce).is_some();
                    if taken.is_err() && !found && !others() {
                        state.end(now, &self.key, self.nonce, self.given);
                    }
                    taken.map(|lock| Asked::Begun(Begun::Granted(lock)))
                }
                Effect::Queued { .. }
                    if options.get_max_wait() == MaxWait::AtMost(Duration::ZERO) =>
                {
                    // Another call waits with this nonce; this one does not wait.
                    Err(Error::Held)
                }
                Effect::Queued { .. } => {
                    self.note(state);
                    let look = self.next_look(state, now);
                    let signal = state.join(self.number, self.nonce, look);
                    let seat = signal.seat();
                    let look = Some((now, look));
                    let place = Place { call: self, signal, seat, look, left: false };
                    Ok(Asked::Begun(Begun::Queued(place)))
                }
                Effect::Refused { reason: Refusal::Limit { what, .. }, .. }
                    if shards::moves(what) =>
                {
                    Ok(Asked::Full(self, what))
                }
                Effect::Refused { reason, .. } => {
                    Err(refusal(reason).expect("a LOCK of now is never stale"))
                }
                other => unreachable!("a LOCK is answered by {other:?}"),
            }
        })
    }

    fn request(&self, options: &LockOptions, owner: &Arc<Owner>) -> LockRequest {
        LockRequest {
            key: self.key.clone(),
            nonce: self.nonce,
            process: ProcessId(0),
            request: self.number,
            duration_ms: whole_ms(self.duration),
            wait: table_wait(self.sent, options.get_max_wait()),
            seen: Seen::Now,
            owner: match options.get_label() {
                None => owner.clone(),
                Some(label) => Arc::new(Owner { label: Some(label.into()), ..(**owner).clone() }),
            },
        }
    }

    fn note(&self, state: &mut State) {
        if self.given {
            state.note_given(self.nonce);
        }
    }

    /// Makes the lock of a nonce that holds, extending the lease first if less than half of it
    /// remains.
    fn take(&self, state: &mut State, hold: &Grant, now: Instant) -> Result<Lock, Error> {
        let mut deadline = self.deadline(hold, now);
        // A call that does not wait extends in the step in which it asks.
        let in_time = |until| now <= until || until == self.sent;
        if !lasts(deadline, now, self.duration) && self.until.is_none_or(in_time) {
            state.step(now, &self.extend());
            deadline = extended_deadline(Some(deadline), now, self.duration, self.local.drift);
        }
        if lasts(deadline, now, self.duration) {
            if let Some(calls) = state.calls.get_mut(hold.request, self.nonce) {
                calls.taken = true;
            }
            return Ok(Lock::new(self.key.clone(), self.nonce, hold.token, Some(deadline)));
        }
        Err(Error::TimedOut)
    }

    /// By the arithmetic of a fresh grant. Of a nonce that came from the caller another call may have sent the
    /// LOCK that took the place: then the earlier of this and of what holds whoever sent it.
    fn deadline(&self, hold: &Grant, now: Instant) -> Instant {
        let drift = self.local.drift;
        let waited = Duration::from_millis(hold.granted_at.since(hold.asked_at));
        let deadline = granted_deadline(self.sent, now, waited, self.duration, drift);
        if !self.given {
            return deadline;
        }
        let remaining = Duration::from_millis(hold.expires_at.since(stamp(now)));
        deadline.min(found_deadline(now, remaining, drift))
    }

    /// When a call that waits looks again although nobody tells it to: the head of a queue at the
    /// end of the lease before it, and each at its own end.
    fn next_look(&self, state: &State, now: Instant) -> Instant {
        let (head, _, lease_end) =
            state.table.next_grant(&self.key).expect("it waits for this key");
        let lease_end = instant(lease_end);
        let look = if head == self.nonce { lease_end } else { lease_end.max(now.after(BACKSTOP)) };
        self.until.map_or(look, |until| until.min(look))
    }

    fn extend(&self) -> Command {
        Command::Extend {
            key: self.key.clone(),
            nonce: self.nonce,
            process: ProcessId(0),
            request: 0,
            duration_ms: whole_ms(self.duration),
        }
    }
}

/// What the part of the table in which the key is had to say.
enum Asked<'a> {
    Begun(Begun<'a>),
    /// It has no room; others may.
    Full(Call<'a>, Bound),
}

/// What the table answered at once.
pub(super) enum Begun<'a> {
    Granted(Lock),
    Queued(Place<'a>),
}

/// How a wait ended, other than by an error.
pub(super) enum Outcome {
    Granted(Lock),
    /// The nonce was granted and its lease ran out before this future was polled again: the call
    /// may ask with another nonce, until this time.
    RanOut {
        until: Option<Instant>,
    },
}

/// A place in a queue. Dropping it gives the place up, and passes on a lock that was granted to it
/// meanwhile, unless another call with the same nonce still waits or has returned the lock.
pub(super) struct Place<'a> {
    call: Call<'a>,
    signal: Arc<Signal>,
    seat: u32,
    /// When it asked, and when to look first: the call looked when it asked.
    look: Option<(Instant, Instant)>,
    /// It was granted, and gives nothing up when it is dropped.
    left: bool,
}

impl Place<'_> {
    /// Waits for the grant.
    pub(super) async fn outcome(mut self) -> Result<Outcome, Error> {
        let local = self.call.local;
        loop {
            // Heard before the look: what comes from here on is not missed, polled or not.
            let (seen, granted) = self.signal.heard();
            if let Some(lock) = granted.and_then(|grant| self.handed(grant)) {
                return Ok(Outcome::Granted(lock));
            }
            let look = match self.look.take().filter(|_| seen == 0) {
                Some((now, until)) => Look::Wait { now, until },
                None => {
                    let key = self.call.key.clone();
                    local.with_state(&key, |state, now| self.look(state, now))?
                }
            };
            match look {
                Look::Granted(lock) => return Ok(Outcome::Granted(lock)),
                Look::RanOut => return Ok(Outcome::RanOut { until: self.call.until }),
                Look::Wait { now, until } => tokio::select! {
                    biased;
                    () = self.signal.stirred(self.seat, seen) => {}
                    () = local.clock.sleep_from(now, until) => self.signal.leave(self.seat),
                },
            }
        }
    }

    /// The lock, if at least half of the lease remains: then there is nothing to ask the table.
    fn handed(&mut self, grant: Grant) -> Option<Lock> {
        let now = self.call.local.clock.now();
        let deadline = self.call.deadline(&grant, now);
        if !lasts(deadline, now, self.call.duration) {
            return None;
        }
        self.left = true;
        Some(Lock::new(grant.key, grant.nonce, grant.token, Some(deadline)))
    }

    fn look(&mut self, state: &mut State, now: Instant) -> Result<Look, Error> {
        let Call { key, nonce, number, until, .. } = &self.call;
        let waits =
            self.signal.ended().is_none() && state.table.knows(*nonce) == Some(Known::Waits);
        if waits && until.is_some_and(|until| until <= now) {
            return Err(Error::TimedOut);
        }
        state.step(now, &Command::Noop);
        match self.signal.ended() {
            Some(Ended::Waited) => return Err(Error::TimedOut),
            // It expired, or was unlocked by its nonce, before this call saw it.
            Some(_) => return Ok(Look::RanOut),
            None => {}
        }
        let hold = state.table.grant(key).expect("what has not ended holds its key or waits");
        if hold.nonce == *nonce {
            let lock = self.call.take(state, &hold, now)?;
            state.leave(*number, *nonce, &self.signal);
            self.left = true;
            return Ok(Look::Granted(lock));
        }
        let look = self.call.next_look(state, now);
        state.looks_again(*number, *nonce, look);
        Ok(Look::Wait { now, until: look })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let Call { local, key, nonce, given, number, .. } = &self.call;
        local.with_any_state(key, |state, now| {
            let orphaned = state.leave(*number, *nonce, &self.signal);
            // A nonce that the caller knows is remembered as withdrawn even where the table has
            // dropped it by its deadline: one outcome, whichever came first.
            let dropped = self.signal.ended() == Some(Ended::Waited);
            let withdrawn = dropped && *given && state.table.knows(*nonce).is_none();
            if orphaned || withdrawn && !state.closed {
                state.end(now, key, *nonce, *given);
            }
        });
        self.signal.leave(self.seat);
    }
}

/// How long the table lets a call wait: to the first whole millisecond that is not before the
/// call's own end, which therefore decides.
fn table_wait(sent: Instant, max_wait: MaxWait) -> Wait {
    match max_wait {
        MaxWait::AtMost(Duration::ZERO) => Wait::No,
        MaxWait::AtMost(wait) => {
            let end = ClusterTime(sent.after(wait).whole_ms_up());
            Wait::Ms(end.since(stamp(sent)))
        }
        MaxWait::Forever => Wait::Forever,
    }
}
