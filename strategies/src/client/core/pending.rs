//! The pending requests of a handle: when each is sent, checked, or over for its callers.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Caller, Due, Op, Request,
    timers::{Timer, TimerQueue, earlier},
};
use crate::{
    client::{
        backoff::doubled,
        calls::{CallId, RequestId},
        commands::{Command, Copies},
    },
    clock::Instant,
    random::Ids,
};

/// Checks that are scheduled within this part of a check's own interval are sent together.
const CHECKED_TOGETHER: u32 = 4;

/// How long after the expected end of the holder's lease a waiter is checked.
const CHECK_AFTER: Duration = Duration::from_millis(1);

const PENDING: &str = "a scheduled request is in `by_id`";

/// The pending requests by their ids, with the timers of each.
#[derive(Debug, Default)]
pub(super) struct Pending {
    // Boxed: an entry that comes or goes moves its neighbours.
    by_id: BTreeMap<RequestId, Box<Request>>,
    /// When requests are sent.
    sends: TimerQueue<Due>,
    /// When waiters are checked.
    checks: TimerQueue<Due>,
    /// When callers stop waiting.
    ends: TimerQueue<Caller>,
    /// How many of the requests the granting side has queued.
    queued: usize,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many are in flight: without a reply, and not queued.
    pub(super) fn in_flight(&self) -> usize {
        self.by_id.len() - self.queued
    }

    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn get(&mut self, id: RequestId) -> Option<&mut Request> {
        self.by_id.get_mut(&id).map(|request| &mut **request)
    }

    /// The ids of all requests for which `which` holds.
    pub(super) fn ids(&self, which: impl Fn(&Request) -> bool) -> Vec<RequestId> {
        self.by_id.iter().filter(|(_, request)| which(request)).map(|(id, _)| *id).collect()
    }

    /// The request, which is added and sent at once if it was not pending.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        id: RequestId,
        op: impl FnOnce() -> Op,
    ) -> &mut Request {
        let request = self.by_id.entry(id).or_insert_with(|| Box::new(Request::new(id, op())));
        if request.sends.count() == 0 {
            self.sends.set(&mut request.due, now);
        }
        request
    }

    /// Adds a caller that waits until `limit`.
    pub(super) fn add_caller(&mut self, id: RequestId, caller: CallId, limit: Option<Instant>) {
        let Some(request) = self.by_id.get_mut(&id) else { return };
        let mut caller = Timer::new((id, caller));
        if let Some(limit) = limit {
            self.ends.set(&mut caller, limit);
        }
        request.callers.push(caller);
    }

    /// Sends the request at `at`, or checks it then if it is queued.
    pub(super) fn schedule(&mut self, id: RequestId, at: Instant) {
        let Some(request) = self.by_id.get_mut(&id) else { return };
        let queue = if request.is_queued() { &mut self.checks } else { &mut self.sends };
        queue.set(&mut request.due, at);
    }

    /// The granting side has queued this LOCK. `check_after` returns when it is checked, if at all,
    /// by the length of its lease.
    pub(super) fn enqueued(
        &mut self,
        now: Instant,
        id: RequestId,
        check_after: impl FnOnce(Duration) -> Option<Duration>,
    ) {
        let Some(request) = self.by_id.get_mut(&id) else { return };
        let check_after = check_after(request.lock_call().lease);
        request.sends.replied();
        if !request.is_queued() {
            self.sends.remove(&mut request.due);
            self.queued += 1;
        }
        request.lock_op().queued = Some(check_after);
        if let Some(interval) = check_after {
            self.checks.set(&mut request.due, now.after(interval));
        }
    }

    /// The granting side has this LOCK in its queue no longer. Returns it, if it was there.
    pub(super) fn dequeued(&mut self, id: RequestId) -> Option<&mut Request> {
        let request = self.by_id.get_mut(&id).filter(|request| request.is_queued())?;
        self.checks.remove(&mut request.due);
        self.queued -= 1;
        request.lock_op().queued = None;
        Some(request)
    }

    /// Takes a request that is pending no longer.
    pub(super) fn take(&mut self, id: RequestId) -> Option<Box<Request>> {
        let mut request = self.by_id.remove(&id)?;
        self.queued -= usize::from(request.is_queued());
        let queue = if request.is_queued() { &mut self.checks } else { &mut self.sends };
        queue.remove(&mut request.due);
        request.callers.iter_mut().for_each(|caller| self.ends.remove(caller));
        Some(request)
    }

    /// Takes a caller that stops waiting; its request goes on.
    pub(super) fn take_caller(&mut self, (id, caller): Caller) -> Option<&Request> {
        let request = self.by_id.get_mut(&id)?;
        let at = request.callers().position(|other| other == caller)?;
        self.ends.remove(&mut request.callers.remove(at));
        Some(request)
    }

    /// A caller whose time is over.
    pub(super) fn first_end(&self, now: Instant) -> Option<Caller> {
        self.ends.first(now)
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        self.ends.next()
    }

    /// The next time at which a request is sent or checked.
    pub(super) fn next_send(&self) -> Option<Instant> {
        earlier(self.sends.next(), self.checks.next())
    }

    /// The first request that is due to be sent.
    pub(super) fn first_send(&self, now: Instant) -> Option<RequestId> {
        self.sends.first(now).map(|(_, id)| id)
    }

    /// Submits a request, and schedules its repetition after a pause from `resend`.
    pub(super) fn send(
        &mut self,
        now: Instant,
        id: RequestId,
        resend: Option<(Duration, Duration)>,
        submit: &mut impl FnMut(Command) -> Copies,
    ) {
        let request = self.by_id.get_mut(&id).expect(PENDING);
        if request.sends.lacks_reply() {
            count!("gaggle_requests_retransmitted_total");
        }
        let copies = submit(request.command());
        request.sends.submitted(now, copies);
        match resend {
            Some(pause) => {
                let at = now.after(doubled(pause, request.sends.count()));
                self.sends.set(&mut request.due, at);
            }
            None => self.sends.remove(&mut request.due),
        }
    }

    /// Submits due checks together with checks that are due soon. Returns whether there were any.
    pub(super) fn send_checks(
        &mut self,
        now: Instant,
        submit: &mut impl FnMut(Command) -> Copies,
    ) -> bool {
        let Some((_, first)) = self.checks.first(now) else { return false };
        let interval = self.by_id.get(&first).expect(PENDING).check_interval().unwrap_or_default();
        let horizon = now.after(interval / CHECKED_TOGETHER);
        while let Some((_, id)) = self.checks.first(horizon) {
            let request = self.by_id.get_mut(&id).expect(PENDING);
            // The reply, a `Queued`, schedules the next check.
            self.checks.remove(&mut request.due);
            submit(request.check());
        }
        true
    }
}

/// How long until a waiter is checked: soon after the holder's lease ends as far as is known, and
/// after `longest` at most.
///
/// A granting side may count checks as signs of life, and sets `longest` accordingly.
pub(super) fn check_interval(
    holder_lease: Option<Duration>,
    longest: Duration,
    rng: &mut Ids,
) -> Duration {
    // From 0 to 1, so that many waiters are not checked in step.
    let jitter =
        f64::from(u32::try_from(rng.next() >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    let latest = longest.mul_f64(1.0 - jitter / 5.0);
    let after = holder_lease.unwrap_or(latest).saturating_add(CHECK_AFTER.mul_f64(1.0 + jitter));
    after.min(latest).max(CHECK_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiter_checks_keep_to_their_bounds() {
        let mut rng = Ids::new(7);
        let (ms, secs) = (Duration::from_millis, Duration::from_secs);
        for _ in 0..1_000 {
            for (remaining, longest, least, most) in [
                // The holder's lease ends first.
                (Some(ms(50)), secs(1), ms(51), ms(52)),
                (Some(ms(0)), secs(1), ms(1), ms(2)),
                (Some(secs(60)), secs(1), ms(800), ms(1_000)),
                (None, ms(10), ms(8), ms(10)),
                (Some(secs(60)), Duration::ZERO, ms(1), ms(1)),
            ] {
                let after = check_interval(remaining, longest, &mut rng);
                assert!((least..=most).contains(&after), "{remaining:?} {longest:?} {after:?}");
            }
        }
    }
}
