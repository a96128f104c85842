//! What the handle, its calls and its tasks share.

use std::{
    fmt::Write as _,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use redis::{Cmd, Value};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::{
    RedisOptions,
    keys::{BUCKETS, Names},
    link::{Link, Server},
    reply::{Answer, Found, Reply},
    script::{self, Script},
    trouble::Trouble,
    waiters::{Effects, Outcome, Request, Waiters, Waiting, Withdrawal},
    wire::{Delivery, Look},
};
use crate::{
    Error, Holds, Inspection, Instant, Lock, Nonce, Owner,
    sync::{Mutex, MutexGuard},
    whole_ms,
};

/// How many unlocks wait to be sent without anybody waiting for them. One beyond is dropped and
/// counted; the lease's end then frees its key, and the end of its wait a place in a queue.
const RELEASES_MAX: usize = 65_536;

/// Where a parked caller is told.
pub(super) type Tell = oneshot::Sender<Outcome>;

/// An unlock that nobody waits for.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) key: Arc<str>,
    pub(super) bucket: usize,
    pub(super) nonce: Nonce,
    pub(super) copies: bool,
    /// When it is no longer worth trying.
    pub(super) until: Instant,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: RedisOptions,
    pub(super) server: Server,
    pub(super) link: Arc<Link>,
    pub(super) names: Names,
    /// Names this handle among all that ever were: its waiters live and die together.
    pub(super) process: String,
    /// What every script is told, by bucket.
    settings: Vec<String>,
    waiters: Mutex<Waiters<Tell>>,
    /// Wakes the poller.
    pub(super) poke: Notify,
    /// Whether publications reach us.
    pub(super) subscribed: watch::Sender<bool>,
    releases: mpsc::Sender<Release>,
    pub(super) releases_dropped: AtomicU64,
    pub(super) holds: Holds,
    /// The newest time of the server that any answer has shown, in microseconds.
    seen: AtomicU64,
    /// Whether the last unlock met a queue, and no waiter of this process got the key: then one of
    /// another process may have, and may the next time.
    pub(super) gives_away: AtomicBool,
    pub(super) closed: AtomicBool,
    /// "pid host".
    owner: String,
    plain_owner: Arc<str>,
}

impl Shared {
    pub(super) fn new(
        options: RedisOptions,
        server: Server,
    ) -> (Arc<Self>, mpsc::Receiver<Release>) {
        let link = Link::new(server.clone(), &options);
        let names = Names::new(&options.namespace);
        let (releases, received) = mpsc::channel(RELEASES_MAX);
        let owner = Owner::this_process(None);
        // One word, so that the label after it can be anything.
        let host: String = owner.host.split_whitespace().collect::<Vec<_>>().join("-");
        let owner = format!("{} {host}", owner.pid);
        let shared = Self {
            link: Arc::new(link),
            settings: (0..BUCKETS).map(|bucket| settings(&options, &names, bucket)).collect(),
            names,
            process: Nonce::random().to_string(),
            waiters: Mutex::new(Waiters::new(options.drift, options.waiter_ttl)),
            poke: Notify::new(),
            subscribed: watch::Sender::new(false),
            releases,
            releases_dropped: AtomicU64::new(0),
            holds: Holds::default(),
            seen: AtomicU64::new(0),
            gives_away: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            plain_owner: format!("{owner} -").into(),
            owner,
            options,
            server,
        };
        (Arc::new(shared), received)
    }

    pub(super) fn now(&self) -> Instant {
        self.options.clock.now()
    }

    pub(super) fn topic(&self) -> String {
        format!("{}{}", self.names.topics(), self.process)
    }

    pub(super) fn waiters(&self) -> MutexGuard<'_, Waiters<Tell>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    ///
    /// [`Error::Closed`].
    pub(super) fn open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// The owner as a lock's value has it.
    pub(super) fn owner(&self, label: Option<&str>) -> Arc<str> {
        match label {
            None => self.plain_owner.clone(),
            Some(label) => format!("{} +{label}", self.owner).into(),
        }
    }

    pub(super) fn saw(&self, now: u64) {
        self.seen.fetch_max(now, Ordering::Relaxed);
    }

    /// Runs a script over keys of one bucket, and takes from its reply what every reply has.
    pub(super) async fn run<'a, K>(
        &self,
        script: &Script,
        bucket: usize,
        keys: K,
        arguments: impl Fn(&mut Cmd),
        until: Instant,
    ) -> Result<Reply, Trouble>
    where
        K: ExactSizeIterator<Item = &'a str> + Clone,
    {
        let ran = self.run_with(script, bucket, keys, arguments, Delivery::default(), until).await;
        ran.map(|(reply, _)| reply)
    }

    /// As [`run`](Self::run), with a say in how the reply is told. Returns also whether the reply brought a waiter of this process a lock.
    async fn run_with<'a, K>(
        &self,
        script: &Script,
        bucket: usize,
        keys: K,
        arguments: impl Fn(&mut Cmd),
        delivery: Delivery,
        until: Instant,
    ) -> Result<(Reply, bool), Trouble>
    where
        K: ExactSizeIterator<Item = &'a str> + Clone,
    {
        let whole = |cmd: &mut Cmd| {
            self.add_common(cmd, bucket, keys.clone());
            arguments(cmd);
        };
        let value = self.link.eval(script, whole, delivery, until).await?;
        let (reply, told) = self.take(bucket, value)?;
        if told {
            // Who has the lock now goes first: its unlock is what the next one waits for.
            tokio::task::yield_now().await;
        }
        Ok((reply, told))
    }

    /// Adds what every script is told.
    pub(super) fn add_common<'a>(
        &self,
        cmd: &mut Cmd,
        bucket: usize,
        keys: impl ExactSizeIterator<Item = &'a str>,
    ) {
        self.names.add(cmd, bucket, keys);
        cmd.arg(&self.process).arg(&self.settings[bucket]);
    }

    /// Reads a reply. Returns also whether it brought somebody else a lock.
    pub(super) fn take(&self, bucket: usize, value: Value) -> Result<(Reply, bool), Trouble> {
        let mut reply = Reply::read(value)?;
        if let Some(now) = reply.now {
            self.saw(now);
        }
        let told = !reply.own.is_empty();
        if told {
            let now = self.now();
            for granted in std::mem::take(&mut reply.own) {
                let effects = self.waiters().granted(bucket, granted, now);
                tell(effects);
            }
        }
        Ok((reply, told))
    }

    /// LOCK for one nonce. A place in the queue is noted by what `look` makes where the answer is read,
    /// if that says so.
    pub(super) async fn ask(
        &self,
        request: &Arc<Request>,
        wait: Wait,
        copies: bool,
        look: impl Fn() -> Option<Look>,
        until: Instant,
    ) -> Result<Answer, Trouble> {
        let keys = [&*request.key].into_iter();
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(self.too_late());
            add_request(cmd, request, wait, copies);
        };
        let (script, bucket) = (&script::LOCK, request.bucket);
        let awake = !self.gives_away.load(Ordering::Relaxed);
        let delivery = Delivery { look: look(), awake, ..Delivery::default() };
        let (mut reply, _) =
            self.run_with(script, bucket, keys, arguments, delivery, until).await?;
        let answer = reply.answer()?;
        // The shortest answer brings its time only now.
        reply.now.inspect(|now| self.saw(*now));
        Ok(answer)
    }

    /// LOCK for several nonces of one bucket: their places are taken in this order.
    pub(super) async fn ask_all(
        &self,
        bucket: usize,
        waiting: &[(Waiting, bool)],
        until: Instant,
    ) -> Result<Vec<Answer>, Trouble> {
        let keys = waiting.iter().map(|(waiting, _)| &*waiting.request.key);
        let now = self.now();
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(self.too_late());
            for (waiting, copies) in waiting {
                add_request(cmd, &waiting.request, Wait::until(waiting.until, now), *copies);
            }
        };
        let mut reply = self.run(&script::LOCK, bucket, keys, arguments, until).await?;
        let mut answers = Vec::with_capacity(waiting.len());
        while answers.len() < waiting.len() {
            let answer = reply.answer()?;
            answers.push(answer);
            if answer == Answer::Stale {
                break;
            }
        }
        Ok(answers)
    }

    /// After what time of the server a LOCK sent now is too old.
    fn too_late(&self) -> u64 {
        let memory = whole_ms(self.options.nonce_memory).saturating_mul(1000);
        self.seen.load(Ordering::Relaxed).saturating_add(memory)
    }

    /// POLL for several nonces of one bucket, in groups of one key each.
    pub(super) async fn poll(
        &self,
        bucket: usize,
        groups: &[(Arc<str>, Vec<Nonce>)],
        until: Instant,
    ) -> Result<Vec<(Nonce, Found)>, Trouble> {
        let keys = groups.iter().map(|(key, _)| &**key);
        let arguments = |cmd: &mut Cmd| {
            for (_, nonces) in groups {
                cmd.arg(nonces.len());
                for nonce in nonces {
                    cmd.arg(hex(*nonce).as_slice());
                }
            }
        };
        let mut reply = self.run(&script::POLL, bucket, keys, arguments, until).await?;
        let mut found = Vec::new();
        for (_, nonces) in groups {
            found.extend(reply.found(nonces)?);
        }
        Ok(found)
    }

    /// INSPECT.
    pub(super) async fn inspect(
        &self,
        key: &str,
        bucket: usize,
        until: Instant,
    ) -> Result<Option<Inspection>, Trouble> {
        let keys = [key].into_iter();
        self.run(&script::INSPECT, bucket, keys, |_| {}, until).await?.inspection()
    }

    /// Hands a withdrawal to the releaser.
    pub(super) fn withdraw(&self, withdrawal: &Withdrawal) {
        let request = &withdrawal.request;
        let worth = request.duration.max(self.options.nonce_memory);
        self.release(Release {
            key: request.key.clone(),
            bucket: request.bucket,
            nonce: request.nonce,
            copies: withdrawal.copies,
            until: self.now().after(worth),
        });
    }

    /// Hands an unlock to the releaser. Never blocks, never panics, works outside any runtime.
    pub(super) fn release(&self, release: Release) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.releases.try_send(release) {
            let dropped = self.releases_dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::warn!(
                dropped,
                "an unlock was dropped: the end of its lease or of its wait will do it"
            );
        }
    }

    /// A lock turned out not to hold: says so to whoever watches it.
    pub(super) fn lost(&self, lock: &Lock) {
        if self.holds.lose(lock.key(), lock.nonce(), lock.fencing_token()) {
            tracing::warn!(token = lock.fencing_token(), "a lock was lost");
        }
    }
}

/// What a script is told of the options, in one argument.
fn settings(options: &RedisOptions, names: &Names, bucket: usize) -> String {
    let (memory, ttl) = (whole_ms(options.nonce_memory), whole_ms(options.waiter_ttl));
    let RedisOptions { waiters_max, nonces_max, .. } = options;
    format!("{memory} {bucket} {ttl} {waiters_max} {nonces_max} {}", names.topics())
}

/// How long a LOCK queues.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    No,
    Ms(u64),
    Forever,
}

impl Wait {
    /// What is left until `until`: at the least a millisecond, for it does queue.
    pub(super) fn until(until: Option<Instant>, now: Instant) -> Self {
        until.map_or(Self::Forever, |until| Self::Ms(whole_ms(until.since(now)).max(1)))
    }
}

fn add_request(cmd: &mut Cmd, request: &Request, wait: Wait, copies: bool) {
    cmd.arg(hex(request.nonce).as_slice()).arg(whole_ms(request.duration));
    match wait {
        Wait::No => cmd.arg(0),
        Wait::Ms(ms) => cmd.arg(ms),
        Wait::Forever => cmd.arg(-1),
    };
    cmd.arg(if copies { "c" } else { "-" }).arg(&*request.owner);
}

pub(super) fn hex(nonce: Nonce) -> Vec<u8> {
    let mut hex = String::with_capacity(32);
    write!(hex, "{nonce}").expect("a string takes everything");
    hex.into_bytes()
}

/// Tells callers what happened. One that has gone in the meantime withdraws by itself.
pub(super) fn tell(effects: Effects<Tell>) {
    for (tell, outcome) in effects {
        let _ = tell.send(outcome);
    }
}
