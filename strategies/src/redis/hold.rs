//! What a holder does with its lock: unlock, extend, release.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::Cmd;

use super::{
    acquire::back_off,
    keys, script,
    shared::{Release, Shared, hex},
    trouble::{Fate, Trouble},
    wire::Delivery,
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
    /// UNLOCK, for a caller that waits for the answer or for nobody. Returns whether the nonce held the
    /// key.
    pub(super) async fn free(
        &self,
        key: &Arc<str>,
        bucket: usize,
        (nonce, copies): (Nonce, bool),
        awaited: bool,
        until: Instant,
    ) -> Result<bool, Trouble> {
        let awake = awaited && !self.gives_away.load(Ordering::Relaxed);
        let delivery = Delivery { look: None, awake };
        let arguments = |cmd: &mut Cmd| {
            self.add_common(cmd, bucket, [&**key].into_iter());
            cmd.arg(hex(nonce).as_slice()).arg(if copies { "c" } else { "-" });
        };
        let value = self.link.eval(&script::UNLOCK, arguments, delivery, until).await?;
        let (mut reply, kept) = self.take(bucket, value)?;
        if kept {
            // Who has the lock now goes first: its unlock is what the next one waits for.
            tokio::task::yield_now().await;
        }
        let held = reply.held()?;
        self.gives_away.store(held && !reply.short && !kept, Ordering::Relaxed);
        Ok(held)
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
        reply.held()
    }

    pub(super) fn release_lock(&self, lock: &Lock) {
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
            match self.prolong(key, bucket, named, duration, until).await {
                Ok(true) => {
                    let drift = self.options.drift;
                    return extended(lock, sent, duration, drift, self.now());
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
            Ok(()) => trouble.into(),
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
