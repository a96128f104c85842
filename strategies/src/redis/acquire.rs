//! One call of `lock`, from the first send to the lock or the error.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::timeout};

use super::{
    Queue, keys,
    reply::{self, Answer},
    shared::{Shared, Tell, Wait, tell},
    trouble::{Fate, Trouble},
    waiters::{AskId, CallerId, Effects, Grant, NotJoined, Outcome, Request, Waiters},
    wire::Look,
};
use crate::{
    Error, Instant, Lock, LockOptions, MaxWait, Nonce, check_request, extended_deadline, lasts,
    wait_until, whole_ms,
};

/// Between two tries where nothing tells when to try: the original's own numbers.
const RETRY: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(300));
/// The pause after a request that failed, doubled with each one up to the second.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// A call of `lock`.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    request: Arc<Request>,
    /// Does not wait.
    once: bool,
    /// When the wait ends; `None` never.
    until: Option<Instant>,
    /// When the call ends at the latest; for one that does not wait, by the request timeout.
    limit: Option<Instant>,
}

/// How an attempt with one nonce ended that gives no lock and no error: the nonce is of no more
/// use, and another may be tried.
struct UsedUp;

type Attempt<T> = Result<Result<T, UsedUp>, Error>;

/// Takes `key` for `options`.
pub(super) async fn lock(
    shared: &Arc<Shared>,
    key: &str,
    options: LockOptions,
) -> Result<Lock, Error> {
    check_request(key, &options)?;
    shared.open()?;
    let now = shared.now();
    let once = options.max_wait == MaxWait::AtMost(Duration::ZERO);
    let until = wait_until(now, options.max_wait);
    let mut call = Call {
        shared,
        request: Arc::new(Request {
            bucket: keys::bucket(key),
            key: key.into(),
            nonce: options.nonce.unwrap_or_else(Nonce::random),
            given: options.nonce.is_some(),
            duration: Duration::from_millis(whole_ms(options.duration)),
            owner: shared.owner(options.label.as_deref()),
        }),
        once,
        until,
        limit: if once { Some(now.after(shared.options.request_timeout)) } else { until },
    };
    loop {
        match call.attempt().await? {
            Ok(lock) => {
                tracing::debug!(key, token = lock.fencing_token(), "lock granted");
                return Ok(lock);
            }
            Err(UsedUp) if call.request.given => return Err(Error::Spent),
            Err(UsedUp) if call.is_over() => return Err(call.timed_out()),
            Err(UsedUp) => call.draw_again(),
        }
    }
}

impl Call<'_> {
    fn draw_again(&mut self) {
        let Request { bucket, given, duration, .. } = *self.request;
        let (key, owner) = (self.request.key.clone(), self.request.owner.clone());
        let nonce = Nonce::random();
        self.request = Arc::new(Request { key, bucket, nonce, given, duration, owner });
    }

    /// Everything that is done with one nonce.
    async fn attempt(&self) -> Attempt<Lock> {
        let mut ticket = Ticket::join(self.shared, &self.request, self.until)?;
        loop {
            let queues = !self.once && self.may_queue();
            let (answer, asked) = match self.ask(&mut ticket, queues).await? {
                Ok(answered) => answered,
                Err(UsedUp) => return Ok(Err(UsedUp)),
            };
            match answer {
                Answer::Granted { token } => {
                    let now = self.shared.now();
                    let grant = ticket
                        .granted(|waiters, request| waiters.granted_at_once(request, token, now))?;
                    return self.keep(ticket, grant, false).await;
                }
                Answer::Again { token, remaining } => {
                    let grant = ticket.granted(|waiters, request| {
                        waiters.granted_again(request, token, asked, remaining)
                    })?;
                    return self.keep(ticket, grant, self.request.given).await;
                }
                Answer::Queued { remaining } => {
                    return match ticket.wait(remaining, self.until).await {
                        Some(Outcome::Granted(grant)) => self.keep(ticket, grant, false).await,
                        Some(Outcome::Spent) => Ok(Err(UsedUp)),
                        Some(Outcome::Limit { what, limit }) => Err(Error::Limit { what, limit }),
                        Some(Outcome::Closed) => Err(Error::Closed),
                        None => Err(self.timed_out()),
                    };
                }
                Answer::Held if self.once => return Err(Error::Held),
                Answer::Held => self.pause_before_retry(&mut ticket).await?,
                Answer::Spent => return Ok(Err(UsedUp)),
                Answer::Limit { what, limit } => return Err(Error::Limit { what, limit }),
                // The reply has brought the present time: repeated at once.
                Answer::Stale => {}
            }
        }
    }

    /// Whether this process may queue: publications reach it.
    fn may_queue(&self) -> bool {
        self.shared.options.queue != Queue::None && *self.shared.subscribed.borrow()
    }

    /// Sends the LOCK until it is answered or the time is up. Returns when the answered one was
    /// sent.
    async fn ask(&self, ticket: &mut Ticket<'_>, queues: bool) -> Attempt<(Answer, Instant)> {
        let mut tries = 0;
        loop {
            let asked = self.shared.now();
            let id = ticket.place();
            let asking = self.shared.waiters().asking(&self.request, id);
            let (copies, ask) = asking.ok_or(Error::Closed)?;
            let look = || queues.then(|| look(self.shared, &self.request, (id, ask)));
            let wait = if queues { Wait::until(self.until, asked) } else { Wait::No };
            let patience = asked.after(self.shared.options.request_timeout);
            let until = self.limit.map_or(patience, |limit| limit.min(patience));
            let asking = self.shared.ask(&self.request, wait, copies, look, until);
            let answer = ticket.unless_closed(asking).await?;
            // A place in the queue that was noted where it was read is settled as well.
            let noted = self.shared.waiters().asked(&self.request, id);
            let trouble = match answer {
                Ok(answer) => {
                    if !noted {
                        self.shared.waiters().settled(&self.request);
                    }
                    return Ok(Ok((answer, asked)));
                }
                // The answer came at this very moment.
                Err(_) if noted => {
                    return Ok(Ok((Answer::Queued { remaining: Duration::ZERO }, asked)));
                }
                Err(trouble) => trouble,
            };
            if trouble.fate() != Fate::Unanswered {
                self.shared.waiters().settled(&self.request);
            }
            self.judge(&trouble, tries)?;
            if !self.request.given && self.shared.now().since(asked) >= self.request.duration {
                // Taken by a LOCK whose answer was lost, the lease may have run out since.
                return Ok(Err(UsedUp));
            }
            tries += 1;
            ticket.pause(back_off(tries), self.limit).await?;
        }
    }

    /// Whether a failed request is worth another.
    fn judge(&self, trouble: &Trouble, tries: u32) -> Result<(), Error> {
        let unavailable = || Error::from(trouble.clone());
        if !trouble.is_passing() {
            return Err(unavailable());
        }
        if !self.once {
            return match trouble {
                _ if !self.is_over() => Ok(()),
                Trouble::NoTime => Err(self.timed_out()),
                _ => Err(unavailable()),
            };
        }
        // One attempt: only to learn what became of it is it repeated.
        match trouble.fate() {
            Fate::Unanswered if self.is_over() => Err(Error::Unknown),
            Fate::Unanswered => Ok(()),
            _ if tries > 0 => Err(Error::Unknown),
            _ => Err(unavailable()),
        }
    }

    fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.shared.now() >= limit)
    }

    /// Held, and no place taken: tries again when it can queue, or after a while.
    async fn pause_before_retry(&self, ticket: &mut Ticket<'_>) -> Result<(), Error> {
        let pause = between(RETRY.0, RETRY.1);
        if self.shared.options.queue == Queue::None {
            ticket.pause(pause, self.until).await?;
        } else {
            let mut subscribed = self.shared.subscribed.subscribe();
            let left = self.until.map_or(pause, |until| until.since(self.shared.now()).min(pause));
            let subscribed = timeout(left, subscribed.wait_for(|subscribed| *subscribed));
            let _ = ticket.unless_closed(async { subscribed.await.is_ok() }).await?;
        }
        if self.is_over() { Err(self.timed_out()) } else { Ok(()) }
    }

    /// The wait is over: somebody else held the key, unless Redis does not even answer.
    fn timed_out(&self) -> Error {
        self.shared.link.failing().map_or(Error::TimedOut, Error::from)
    }

    /// Makes the lock, unless less than half of its lease remains: then the lease is extended
    /// first. `found`: the lock may be in somebody's hands already, and stays there on failure.
    async fn keep(&self, mut ticket: Ticket<'_>, grant: Grant, found: bool) -> Attempt<Lock> {
        let Request { ref key, bucket, nonce, duration, .. } = *self.request;
        let Grant { token, mut deadline } = grant;
        let mut tries = 0;
        loop {
            let now = self.shared.now();
            if lasts(deadline, now, duration) {
                // On a closed handle the ticket withdraws it.
                self.shared.open()?;
                if !ticket.take() {
                    // Closed at this very moment, and withdrawn with all that waited.
                    return Err(Error::Closed);
                }
                return Ok(Ok(Lock::new(key.clone(), nonce, token, Some(deadline))));
            }
            let drift = self.shared.options.drift;
            // Of the shortest leases less than half would remain even after the fastest answer.
            let hopeless = !lasts(extended_deadline(None, now, duration, drift), now, duration);
            if hopeless || self.is_over() {
                ticket.leave(found);
                return Err(self.timed_out());
            }
            let patience = now.after(self.shared.options.request_timeout);
            let until = self.limit.map_or(patience, |limit| limit.min(patience));
            let asking = self.shared.prolong(key, bucket, (nonce, token), duration, until);
            match ticket.unless_closed(asking).await? {
                Ok(true) => deadline = extended_deadline(Some(deadline), now, duration, drift),
                Ok(false) => {
                    // It has run out before we heard of it.
                    let ended = self.shared.waiters().end(bucket, nonce, Outcome::Spent);
                    tell(ended);
                    return Ok(Err(UsedUp));
                }
                Err(trouble) if !trouble.is_passing() => return Err(trouble.into()),
                Err(_) => {
                    tries += 1;
                    ticket.pause(back_off(tries), self.limit).await?;
                }
            }
        }
    }
}

/// Notes a place in the queue where the answer is read: its caller has nothing to do before the grant,
/// and is not woken for it. Any other answer is the caller's own.
fn look(shared: &Arc<Shared>, request: &Arc<Request>, asker: (CallerId, AskId)) -> Look {
    // Weak: what waits for an answer must not keep the handle alive.
    let (shared, request) = (Arc::downgrade(shared), request.clone());
    Box::new(move |value| {
        let Some((server, remaining)) = reply::only_queued(value) else { return false };
        let Some(shared) = shared.upgrade() else { return false };
        shared.saw(server);
        let (now, jitter) = (shared.now(), rand::random());
        let queued = shared.waiters().queued(&request, asker, remaining, now, jitter);
        if queued == Some(true) {
            shared.poke.notify_one();
        }
        queued.is_some()
    })
}

/// A caller's place among the waiters of this process. Dropped, it withdraws what nobody else
/// wants: it is made before the first send.
struct Ticket<'a> {
    shared: &'a Shared,
    request: Arc<Request>,
    id: Option<CallerId>,
    told: oneshot::Receiver<Outcome>,
    /// What it was told while it was waiting for something else.
    heard: Option<Outcome>,
}

impl<'a> Ticket<'a> {
    fn join(
        shared: &'a Shared,
        request: &Arc<Request>,
        until: Option<Instant>,
    ) -> Result<Self, Error> {
        let (tell, told) = oneshot::channel();
        let joined = shared.waiters().join(request, shared.now(), until, tell);
        let id = joined.map_err(|refused| match refused {
            NotJoined::Closed => Error::Closed,
            NotJoined::OtherKey => Error::InvalidOptions {
                field: "nonce",
                value: request.nonce.to_string(),
                limit: "one that names no acquisition of another key".into(),
            },
        })?;
        Ok(Self { shared, request: request.clone(), id: Some(id), told, heard: None })
    }

    /// Completes with `future`, or with [`Error::Closed`] when the handle is closed first.
    ///
    /// Where a place in the queue was noted before its caller has looked at the answer, the grant may
    /// be told first: that is kept for [`wait`](Self::wait).
    async fn unless_closed<T>(&mut self, future: impl Future<Output = T>) -> Result<T, Error> {
        let mut future = pin!(future);
        if !self.told.is_terminated() {
            tokio::select! {
                biased;
                done = &mut future => return Ok(done),
                told = &mut self.told => match told {
                    Ok(Outcome::Closed) | Err(_) => return Err(Error::Closed),
                    Ok(outcome) => self.heard = Some(outcome),
                },
            }
        }
        Ok(future.await)
    }

    /// Its name among the waiters, until it leaves.
    fn place(&self) -> CallerId {
        self.id.expect("a ticket in use has its place")
    }

    async fn pause(&mut self, pause: Duration, limit: Option<Instant>) -> Result<(), Error> {
        let now = self.shared.now();
        let pause = limit.map_or(pause, |limit| limit.since(now).min(pause));
        self.unless_closed(tokio::time::sleep(pause)).await
    }

    /// Notes a grant that answered our own LOCK, and tells others who wait for the same nonce.
    fn granted(
        &mut self,
        note: impl FnOnce(&mut Waiters<Tell>, &Request) -> (Option<Grant>, Effects<Tell>),
    ) -> Result<Grant, Error> {
        let (grant, effects) = note(&mut self.shared.waiters(), &self.request);
        tell(effects);
        // No entry is left: the handle was closed, and has withdrawn it.
        grant.ok_or(Error::Closed)
    }

    /// Waits for news of a queued nonce; `None` when the time is up.
    async fn wait(&mut self, remaining: Duration, until: Option<Instant>) -> Option<Outcome> {
        if let Some(outcome) = self.heard.take().or_else(|| self.told.try_recv().ok()) {
            return Some(outcome);
        }
        let (id, now) = (self.place(), self.shared.now());
        let (overtaken, poke) =
            self.shared.waiters().park(&self.request, id, remaining, now, rand::random());
        if let Some(grant) = overtaken {
            return Some(Outcome::Granted(grant));
        }
        if poke {
            self.shared.poke.notify_one();
        }
        let told = async { (&mut self.told).await.unwrap_or(Outcome::Closed) };
        match until {
            None => Some(told.await),
            Some(until) => tokio::select! {
                biased;
                outcome = told => Some(outcome),
                () = self.shared.options.clock.sleep_until(until) => None,
            },
        }
    }

    /// Leaves with the grant, unless the handle was closed before: looked at and done as one, so
    /// that either this caller or the closing has the lock.
    fn take(&mut self) -> bool {
        let Some(id) = self.id.take() else { return false };
        self.hear_no_more();
        let mut waiters = self.shared.waiters();
        if waiters.is_closed() {
            return false;
        }
        if let Some(withdrawal) = waiters.leave(&self.request, id, true) {
            self.shared.withdraw(&withdrawal);
        }
        true
    }

    /// Before the sender goes, which would wake this task, while it runs: the runtime wakes a thread
    /// for a task that is woken while it runs.
    fn hear_no_more(&mut self) {
        self.told.close();
    }

    fn leave(&mut self, taken: bool) {
        let Some(id) = self.id.take() else { return };
        self.hear_no_more();
        let mut waiters = self.shared.waiters();
        if let Some(withdrawal) = waiters.leave(&self.request, id, taken) {
            // Before the mutex is free: a closing that finds nothing here waits for the releaser, which
            // has it by then.
            self.shared.withdraw(&withdrawal);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.leave(false);
    }
}

/// A jittered pause after this many failures.
pub(super) fn back_off(failures: u32) -> Duration {
    let most = BACK_OFF.0.saturating_mul(1 << failures.min(10)).min(BACK_OFF.1);
    between(most / 2, most)
}

fn between(least: Duration, most: Duration) -> Duration {
    least + (most - least).mul_f64(rand::random())
}
