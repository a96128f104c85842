//! The Redis strategy.

mod acquire;
mod greet;
mod keys;
mod link;
mod options;
mod reply;
mod script;
mod shared;
mod tasks;
mod trouble;
mod waiters;

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use self::{
    acquire::back_off,
    link::Server,
    shared::{Release, Shared, tell},
    trouble::{Fate, Trouble},
};
pub use self::{
    keys::BUCKETS,
    options::{Queue, RedisOptions},
};
use crate::{
    Capabilities, Clock, Error, Exclusion, Inspection, Instant, KeyedMutex, Lock, LockOptions,
    LossWatch, Order, Survives, check_duration, check_key, extended_deadline, gone,
};

/// Locks in one Redis.
#[derive(Debug)]
pub struct Redis {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Redis {
    /// Connects.
    pub async fn open(options: RedisOptions) -> Result<Self, Error> {
        options.check()?;
        let server = Server::new(&options.url, options.connect_timeout)?;
        let (shared, releases) = Shared::new(options, server);
        shared.greet().await?;
        let stop = watch::Sender::new(false);
        let mut tasks =
            vec![tokio::spawn(tasks::release(shared.clone(), releases, stop.subscribe()))];
        if shared.options.queue == Queue::Fifo {
            tasks.push(tokio::spawn(tasks::subscribe(shared.clone(), stop.subscribe())));
            tasks.push(tokio::spawn(tasks::poll(shared.clone(), stop.subscribe())));
        }
        Ok(Self { shared, stop, tasks: Mutex::new(tasks) })
    }
}

#[async_trait]
impl KeyedMutex for Redis {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        acquire::lock(&self.shared, key, options).await
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        check_key(lock.key())?;
        self.shared.open()?;
        let handed_over = HandOver { shared: &self.shared, lock: Some(lock) };
        let result = self.shared.unlock(lock).await;
        handed_over.disarm();
        result
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_key(lock.key())?;
        check_duration(duration)?;
        self.shared.open()?;
        self.shared.extend(lock, duration).await
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        check_key(key)?;
        self.shared.open()?;
        let until = self.shared.now().after(self.shared.options.request_timeout);
        let result = self.shared.inspect(key, keys::bucket(key), until).await;
        result.map_err(|trouble| self.shared.failed(trouble, false))
    }

    fn capabilities(&self) -> Capabilities {
        let order = match self.shared.options.queue {
            Queue::Fifo => Order::Fifo,
            Queue::None => Order::None,
        };
        Capabilities {
            exclusion: Exclusion::WhileServerKeepsMemory,
            order,
            survives: Survives::AnyClient,
            distributed: true,
            ..Capabilities::none("redis")
        }
    }

    async fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        let (told, withdrawals) = self.shared.waiters().close();
        tell(told);
        let until = self.shared.now().after(self.shared.options.request_timeout);
        let shared = &self.shared;
        let held = shared.holds.lose_all();
        let held = held.iter().map(|lock| async move {
            let _ =
                shared.free(lock.key(), keys::bucket(lock.key()), lock.nonce(), false, until).await;
        });
        let waited = withdrawals.iter().map(|withdrawal| async move {
            let request = &withdrawal.request;
            let (key, copies) = (&request.key, withdrawal.copies);
            let _ = shared.free(key, request.bucket, request.nonce, copies, until).await;
        });
        tokio::join!(join_all(held), join_all(waited));
        self.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for mut task in tasks {
            // The releaser has one more request timeout for what was handed to it before.
            if timeout(self.shared.options.request_timeout, &mut task).await.is_err() {
                task.abort();
            }
        }
        self.shared.link.close();
    }

    fn release(&self, lock: &Lock) {
        self.shared.release_lock(lock);
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.shared.holds.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.shared.options.clock.clone()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.stop.send_replace(true);
    }
}

/// An unlock whose caller goes before the answer is sent all the same.
struct HandOver<'a> {
    shared: &'a Shared,
    lock: Option<&'a Lock>,
}

impl HandOver<'_> {
    fn disarm(mut self) {
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
    fn release_lock(&self, lock: &Lock) {
        let memory = self.now().after(self.options.nonce_memory);
        self.release(Release {
            key: lock.key().clone(),
            bucket: keys::bucket(lock.key()),
            nonce: lock.nonce(),
            copies: false,
            until: lock.deadline().map_or(memory, |deadline| deadline.max(memory)),
        });
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        let (key, nonce) = (lock.key(), lock.nonce());
        let bucket = keys::bucket(key);
        let until = self.now().after(self.options.request_timeout);
        let mut tries = Tries::default();
        loop {
            match self.free(key, bucket, nonce, false, until).await {
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

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        let (key, nonce) = (lock.key(), lock.nonce());
        let bucket = keys::bucket(key);
        let limit = self.now().after(self.options.request_timeout);
        let until = lock.deadline().map_or(limit, |deadline| deadline.min(limit));
        let mut tries = Tries::default();
        loop {
            let sent = self.now();
            if lock.deadline().is_some_and(|deadline| sent >= deadline) {
                self.lost(lock);
                return Err(Error::Expired);
            }
            match self.prolong(key, bucket, nonce, duration, until).await {
                Ok(true) => {
                    let drift = self.options.drift;
                    let deadline = extended_deadline(lock.deadline(), sent, duration, drift);
                    return Ok(lock.with_deadline(deadline));
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
    fn failed(&self, trouble: Trouble, unanswered: bool) -> Error {
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
