use std::time::Duration;

use gaggle_strategies::{
    Drift, Error, Instant, Lock, Nonce,
    implement::{extended_deadline, found_deadline, granted_deadline, lasts},
};

use super::{Scripted, Told, hold};

/// One call of `lock`, with one nonce. Dropped, it withdraws what nobody else wants.
pub(super) struct Call<'a> {
    pub(super) client: &'a Scripted,
    pub(super) key: &'a str,
    pub(super) nonce: Nonce,
    /// Whether it says that copies of its LOCK may be in flight.
    pub(super) copies: bool,
    pub(super) duration: Duration,
    pub(super) once: bool,
    pub(super) until: Option<Instant>,
    /// Something of it is in Redis.
    pub(super) there: bool,
    pub(super) left: bool,
}

pub(super) enum Reply {
    Granted(u64),
    Again(u64, Duration),
    Queued(Duration),
    Held,
    Spent,
    Limit(u64),
}

pub(super) enum Waited {
    Granted(Told),
    Spent,
    Unknown,
}

impl Call<'_> {
    /// The lock, or `None` where the nonce is used up.
    pub(super) async fn run(mut self) -> Result<Option<Lock>, Error> {
        let client = self.client;
        let sent = client.now();
        loop {
            let asked = client.now();
            let (token, deadline) = match client.ask(&self) {
                Reply::Granted(token) => (token, self.deadline(sent, Duration::ZERO)),
                Reply::Again(token, left) => (token, found_deadline(asked, left, Drift::default())),
                Reply::Queued(left) => {
                    self.there = true;
                    match client.wait(&self, left).await {
                        None => return Err(Error::TimedOut),
                        Some(Waited::Granted(told)) => {
                            (told.token, self.deadline(sent, told.waited))
                        }
                        Some(Waited::Spent) => {
                            self.there = false;
                            return Ok(None);
                        }
                        Some(Waited::Unknown) => continue,
                    }
                }
                Reply::Held => return Err(Error::Held),
                Reply::Spent => {
                    self.there = false;
                    return Ok(None);
                }
                Reply::Limit(limit) => return Err(Error::Limit { what: "nonces", limit }),
            };
            self.there = true;
            return self.keep(token, deadline);
        }
    }

    fn deadline(&self, sent: Instant, waited: Duration) -> Instant {
        granted_deadline(sent, self.client.now(), waited, self.duration, Drift::default())
    }

    fn keep(mut self, token: u64, mut deadline: Instant) -> Result<Option<Lock>, Error> {
        let (client, drift) = (self.client, Drift::default());
        loop {
            let now = client.now();
            if lasts(deadline, now, self.duration) {
                self.leave(true);
                return Ok(Some(Lock::new(self.key, self.nonce, token, Some(deadline))));
            }
            let fresh = extended_deadline(None, now, self.duration, drift);
            let over = self.until.is_some_and(|until| now >= until) && !self.once;
            if !lasts(fresh, now, self.duration) || over {
                self.leave(false);
                return Err(Error::TimedOut);
            }
            if !client.prolong(self.key, self.nonce, token, self.duration) {
                self.there = false;
                return Ok(None);
            }
            deadline = extended_deadline(Some(deadline), now, self.duration, drift);
        }
    }

    fn leave(&mut self, taken: bool) {
        let last = {
            let mut callers = hold(&self.client.callers);
            let Some((count, held)) = callers.get_mut(&self.nonce) else { return };
            *held |= taken;
            *count -= 1;
            let (last, held) = (*count == 0, *held);
            if last {
                callers.remove(&self.nonce);
                hold(&self.client.told).remove(&self.nonce);
            }
            last && !held && self.there
        };
        self.there = false;
        if last {
            self.client.free(self.key, self.nonce, self.copies);
        }
        self.left = true;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.leave(false);
        }
    }
}
