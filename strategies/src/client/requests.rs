//! The pending requests of a handle: when each is sent, checked, or over for its callers.

use std::{collections::BTreeMap, time::Duration};

use super::{
    call::CallId,
    command::{Command, Copies, Subject, earlier},
    pace::doubled,
    request::{Caller, Due, Kind, Request},
    timers::{Timer, TimerQueue},
};
use crate::{Instant, Nonce};

/// Checks that are scheduled within this part of a check's own interval are sent together.
const CHECKED_TOGETHER: u32 = 4;

const PENDING: &str = "what is scheduled is pending";

#[derive(Debug, Default)]
pub(super) struct Requests {
    // Boxed: an entry that comes or goes moves its neighbours.
    pending: BTreeMap<Subject, Box<Request>>,
    /// When requests are sent.
    sends: TimerQueue<Due>,
    /// When waiters are checked.
    checks: TimerQueue<Due>,
    /// When callers stop waiting.
    ends: TimerQueue<Caller>,
    /// How many of the requests the granting side has queued.
    queued: usize,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// How many are in flight: without a reply, and not queued.
    pub(super) fn in_flight(&self) -> usize {
        self.pending.len() - self.queued
    }

    pub(super) fn contains(&self, of: Subject) -> bool {
        self.pending.contains_key(&of)
    }

    pub(super) fn get(&mut self, of: Subject) -> Option<&mut Request> {
        self.pending.get_mut(&of).map(|request| &mut **request)
    }

    /// The subjects of all requests for which `which` holds.
    pub(super) fn subjects(&self, which: impl Fn(&Request) -> bool) -> Vec<Subject> {
        self.pending.iter().filter(|(_, request)| which(request)).map(|(of, _)| *of).collect()
    }

    /// The request, which is added and sent at once if it was not pending.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        of: Subject,
        kind: impl FnOnce() -> Kind,
    ) -> &mut Request {
        let request = self.pending.entry(of).or_insert_with(|| Box::new(Request::new(of, kind())));
        if request.attempts.sends() == 0 {
            self.sends.set(&mut request.due, now);
        }
        request
    }

    /// Adds a caller that waits until `limit`.
    pub(super) fn add_caller(&mut self, of: Subject, id: CallId, limit: Option<Instant>) {
        let Some(request) = self.pending.get_mut(&of) else { return };
        let mut caller = Timer::new((of, id));
        if let Some(limit) = limit {
            self.ends.set(&mut caller, limit);
        }
        request.callers.push(caller);
    }

    /// Sends the request at `at`, or checks it then if it is queued.
    pub(super) fn schedule(&mut self, of: Subject, at: Instant) {
        let Some(request) = self.pending.get_mut(&of) else { return };
        let queue = if request.is_queued() { &mut self.checks } else { &mut self.sends };
        queue.set(&mut request.due, at);
    }

    /// The granting side has queued this LOCK, which is checked after `check_in`.
    pub(super) fn enqueued(&mut self, now: Instant, nonce: Nonce, check_in: Option<Duration>) {
        let of = Subject::Lock(nonce);
        let Some(request) = self.pending.get_mut(&of) else { return };
        request.attempts.replied();
        if !request.is_queued() {
            self.sends.remove(&mut request.due);
            self.queued += 1;
        }
        request.lock().queued = Some(check_in.unwrap_or_default());
        if let Some(interval) = check_in {
            self.checks.set(&mut request.due, now.after(interval));
        }
    }

    /// The granting side has this LOCK in its queue no longer. Returns it, if it was there.
    pub(super) fn dequeued(&mut self, of: Subject) -> Option<&mut Request> {
        let request = self.pending.get_mut(&of).filter(|request| request.is_queued())?;
        self.checks.remove(&mut request.due);
        self.queued -= 1;
        request.lock().queued = None;
        Some(request)
    }

    /// Takes a request that is pending no longer.
    pub(super) fn take(&mut self, of: Subject) -> Option<Box<Request>> {
        let mut request = self.pending.remove(&of)?;
        self.queued -= usize::from(request.is_queued());
        let queue = if request.is_queued() { &mut self.checks } else { &mut self.sends };
        queue.remove(&mut request.due);
        request.callers.iter_mut().for_each(|caller| self.ends.remove(caller));
        Some(request)
    }

    /// Takes a caller that stops waiting; its request goes on.
    pub(super) fn take_caller(&mut self, (of, id): Caller) -> Option<&Request> {
        let request = self.pending.get_mut(&of)?;
        let at = request.callers.iter().position(|caller| caller.item.1 == id)?;
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

    /// A request that is to be sent.
    pub(super) fn first_send(&self, now: Instant) -> Option<Subject> {
        self.sends.first(now).map(|(_, of)| of)
    }

    /// Submits a request, and schedules its repetition after a pause from `resend`.
    pub(super) fn send(
        &mut self,
        now: Instant,
        of: Subject,
        resend: Option<(Duration, Duration)>,
        submit: &mut impl FnMut(Command) -> Copies,
    ) {
        let request = self.pending.get_mut(&of).expect(PENDING);
        if request.attempts.lacks_reply() {
            count!("gaggle_requests_retransmitted_total");
        }
        let copies = submit(request.command());
        request.attempts.submitted(now, copies);
        match resend {
            Some(pause) => {
                let at = now.after(doubled(pause, request.attempts.sends()));
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
        let interval =
            self.pending.get_mut(&first).expect(PENDING).lock().queued.unwrap_or_default();
        let horizon = now.after(interval / CHECKED_TOGETHER);
        while let Some((_, of)) = self.checks.first(horizon) {
            let request = self.pending.get_mut(&of).expect(PENDING);
            // Until the reply, a `Queued` with the next time.
            self.checks.remove(&mut request.due);
            submit(request.check());
        }
        true
    }
}
