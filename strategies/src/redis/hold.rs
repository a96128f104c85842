//! What a holder does with its lock: unlock, extend, release.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::time::timeout;

use super::{
    acquire::back_off,
    keys,
    options::Queue,
    relay::Queueing,
    reply::{Reply, Was},
    script,
    shared::{Release, Shared, add_request, hex, tell},
    trouble::{Fate, Trouble},
    wire::{Delivery, First, Together},
};
use crate::{Error, Instant, Lock, Nonce, extended, gone, whole_ms};

/// An unlock whose caller goes before the answer is sent all the same.
pub(super) struct HandOver<'a> {
    shared: &'a Shared,
    lock: Option<&'a Lock>,
}

impl<'a> HandOver<'a> {
    pub(super) fn new(shared: &'a Shared, lock: &'a Lock) -> Self {
        Self { shared, lock: Some(lock) }
    }

    pub(super) fn disarm(mut self) {
        self.lock = None;
    }
}

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock {
            self.shared.release_lock(lock);
        }
    }
}

impl Shared {
    /// UNLOCK of nonces of one key, after LOCKs of it that wait. Returns what each nonce was.
    pub(super) async fn unlock_all(
        &self,
        (key, bucket): (&Arc<str>, usize),
        (nonces, copies): (&[Nonce], bool),
        locks: Vec<Queueing>,
        delivery: Delivery,
        until: Instant,
    ) -> Result<Vec<Was>, Trouble> {
        let known = self.passes().then(|| self.waiters().known(key, bucket));
        let arguments = |cmd: &mut Cmd| {
            self.add_common(cmd, bucket, [&**key].into_iter());
            let first = nonces.first().map(|nonce| hex(*nonce)).unwrap_or_default();
            cmd.arg(first.as_slice()).arg(if copies { "c" } else { "-" });
            // Whoever asks for no heirs is told of none.
            known.inspect(|known| {
                cmd.arg(known);
            });
            if nonces.len() != 1 || !locks.is_empty() {
                cmd.arg(nonces.len()).arg(self.too_late());
                for nonce in nonces.iter().skip(1) {
                    cmd.arg(hex(*nonce).as_slice());
                }
                for lock in &locks {
                    add_request(cmd, &lock.request, lock.wait, None);
                }
            }
        };
        let sent = self.now();
        let read = self.link.eval(&script::UNLOCK, arguments, delivery, until).await;
        let read = read.and_then(Reply::read).and_then(|mut reply| {
            let were = nonces.iter().map(|_| reply.was()).collect::<Result<Vec<_>, _>>()?;
            let queued = if locks.is_empty() { None } else { Some(reply.places()?) };
            Ok((reply, were, queued))
        });
        let (mut reply, were, queued) = match read {
            Ok(read) => read,
            Err(trouble) => {
                locks.into_iter().for_each(|lock| lock.asked.fail(trouble.clone()));
                return Err(trouble);
            }
        };
        reply.now.inspect(|now| self.saw(*now));
        self.met(bucket, &reply);
        // Places before grants: those who have one may be heirs.
        let (count, place) = queued.unwrap_or_default();
        for (at, lock) in locks.into_iter().enumerate() {
            lock.asked.answer(if at < count { place.clone() } else { Value::Nil });
        }
        let kept = !reply.own.is_empty();
        for (granted, heirs) in std::mem::take(&mut reply.own) {
            let (now, line) = (self.now(), (key, bucket));
            let effects = match heirs {
                Some(heirs) => self.waiters().granted_in_line(line, granted, heirs, sent, now),
                None => self.waiters().granted(bucket, granted, now),
            };
            tell(effects);
        }
        if kept {
            // Who has the lock now goes first: its unlock is what the next one waits for.
            tokio::task::yield_now().await;
        }
        let gave = were.contains(&Was::Holding) && !reply.short && !kept;
        self.gives_away.store(gave, Ordering::Relaxed);
        Ok(were)
    }

    /// Whether keys are passed on here.
    pub(super) fn passes(&self) -> bool {
        self.options.queue == Queue::Passing
    }

    pub(super) fn has_passed(&self, key: &str, nonce: Nonce) -> bool {
        self.passes() && self.relay.has_passed(key, nonce)
    }

    /// Gives the key to the next holder, if that is known here. Returns whether it was.
    fn pass_on(&self, key: &Arc<str>, bucket: usize, nonce: Nonce) -> bool {
        if !self.passes() {
            return false;
        }
        let now = self.now();
        let mut waiters = self.waiters();
        let Some(effects) = waiters.pass(key, bucket, nonce, now) else {
            return false;
        };
        // Before anybody sees it: what the next holder unlocks comes after this.
        self.relay.passed(key, bucket, nonce, now);
        drop(waiters);
        tell(effects);
        true
    }

    /// UNLOCK, for a caller that waits for the answer or for nobody. Where the next holder is known here,
    /// that one has the key at once, and Redis is told later. Returns whether the nonce held the key.
    pub(super) async fn free(
        &self,
        key: &Arc<str>,
        bucket: usize,
        (nonce, copies): (Nonce, bool),
        awaited: bool,
        until: Instant,
    ) -> Result<bool, Trouble> {
        let now = self.now();
        if !copies && self.has_passed(key, nonce) {
            return Ok(false);
        }
        if !copies && self.pass_on(key, bucket, nonce) {
            return Ok(true);
        }
        if !copies && let Some(answered) = self.relay.last(key, nonce, now) {
            // Without an answer it has ended: sent from here.
            match timeout(until.since(now), answered).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(_)) => {}
                Err(_) => return Err(Trouble::NoTime),
            }
        }
        // Where other processes wait, the next holder is told before us: it is waited for.
        let gives_away = self.gives_away.load(Ordering::Relaxed);
        let first = if gives_away { First::Subscribers } else { First::Sender };
        let together = (!gives_away && self.is_calm(bucket)).then_some(Together::Unlock);
        let awake = awaited && !gives_away;
        let delivery = Delivery { first, look: None, together, awake };
        let (key, nonces) = ((key, bucket), (&[nonce][..], copies));
        let were = self.unlock_all(key, nonces, Vec::new(), delivery, until).await?;
        Ok(were[0].was_ours())
    }

    /// EXTEND. Returns whether the nonce holds the key with this token.
    pub(super) async fn prolong(
        &self,
        key: &str,
        bucket: usize,
        (nonce, token): (Nonce, u64),
        duration: Duration,
        until: Instant,
    ) -> Result<bool, Trouble> {
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(hex(nonce).as_slice()).arg(whole_ms(duration)).arg(token);
        };
        let mut reply =
            self.run(&script::EXTEND, bucket, [key].into_iter(), arguments, until).await?;
        Ok(reply.was()? == Was::Holding)
    }

    pub(super) fn release_lock(&self, lock: &Lock) {
        if self.pass_on(lock.key(), keys::bucket(lock.key()), lock.nonce()) {
            return;
        }
        let memory = self.now().after(self.options.nonce_memory);
        self.release(Release {
            key: lock.key().clone(),
            bucket: keys::bucket(lock.key()),
            nonce: lock.nonce(),
            copies: false,
            until: lock.deadline().map_or(memory, |deadline| deadline.max(memory)),
        });
    }

    pub(super) async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        let (key, nonce) = (lock.key(), lock.nonce());
        let bucket = keys::bucket(key);
        let until = self.now().after(self.options.request_timeout);
        let mut tries = Tries::default();
        loop {
            match self.free(key, bucket, (nonce, false), true, until).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let gone = gone(lock, self.now());
                    return match gone {
                        // An earlier send of ours, whose answer was lost, may have done it.
                        Error::NotHolder if tries.unanswered => Ok(()),
                        _ if tries.unanswered => Err(Error::Unknown),
                        gone => {
                            tracing::info!(token = lock.fencing_token(), %gone, "unlock came too late");
                            self.lost(lock);
                            Err(gone)
                        }
                    };
                }
                Err(trouble) => self.try_again(&mut tries, trouble, until).await?,
            }
        }
    }

    pub(super) async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        let (key, named) = (lock.key(), (lock.nonce(), lock.fencing_token()));
        let bucket = keys::bucket(key);
        let limit = self.now().after(self.options.request_timeout);
        let until = lock.deadline().map_or(limit, |deadline| deadline.min(limit));
        let mut tries = Tries::default();
        loop {
            let sent = self.now();
            if lock.deadline().is_some_and(|deadline| sent >= deadline) {
                // Nobody is told: the lock may have been extended under a later deadline.
                return Err(Error::Expired);
            }
            if self.has_passed(key, lock.nonce()) {
                // Unlocked, whatever Redis knows.
                return Err(gone(lock, sent));
            }
            // Before it is sent: what Redis hears meanwhile makes its answer no better.
            let ahead = self.waiters().is_ahead(key, bucket, lock.nonce(), sent);
            match self.prolong(key, bucket, named, duration, until).await {
                // It was unlocked meanwhile.
                Ok(true) if self.has_passed(key, lock.nonce()) => {
                    return Err(gone(lock, self.now()));
                }
                Ok(true) => {
                    let drift = self.options.drift;
                    return extended(lock, sent, duration, drift, self.now());
                }
                Ok(false) if ahead => {
                    self.try_again(&mut tries, Trouble::Behind, until).await?;
                }
                Ok(false) => {
                    self.lost(lock);
                    return Err(gone(lock, self.now()));
                }
                Err(trouble) => self.try_again(&mut tries, trouble, until).await?,
            }
        }
    }

    /// Pauses before an unlock or extend is repeated, or says why it is not.
    async fn try_again(
        &self,
        tries: &mut Tries,
        trouble: Trouble,
        until: Instant,
    ) -> Result<(), Error> {
        self.open()?;
        tries.unanswered |= trouble.fate() == Fate::Unanswered;
        tries.failures += 1;
        let pause = back_off(tries.failures);
        let left = until.since(self.now());
        if !trouble.is_passing() || left <= pause {
            return Err(self.failed(trouble, tries.unanswered));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// The error for a request that is given up.
    pub(super) fn failed(&self, trouble: Trouble, unanswered: bool) -> Error {
        match self.open() {
            Err(closed) => closed,
            Ok(()) if unanswered => Error::Unknown,
            Ok(()) => Error::unavailable(trouble),
        }
    }
}

/// The requests of one unlock or extend so far.
#[derive(Default)]
struct Tries {
    failures: u32,
    /// One was sent, and its answer never came.
    unanswered: bool,
}
