//! The connection on which requests go: shared by all calls, so that requests made at the same time
//! leave in one write, and replaced when it breaks.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use redis::{Cmd, ConnectionInfo, IntoConnectionInfo, RedisError, Value};
use tokio::{
    sync::oneshot,
    task::{JoinSet, yield_now},
    time::timeout,
};

use super::{
    RedisOptions,
    script::Script,
    trouble::Trouble,
    wire::{Answered, Delivery, Look, OnPush, Unasked, Wire},
};
use crate::{
    Clock, Error, Instant,
    planted::{Bug, planted},
    spin::Spin,
};

/// How to reach the server.
#[derive(Clone)]
pub(super) struct Server {
    info: ConnectionInfo,
    connect_timeout: Duration,
}

impl Server {
    /// Parses the URL; no I/O yet.
    pub(super) fn new(url: &str, connect_timeout: Duration) -> Result<Self, Error> {
        let wrong = |error: RedisError| Error::InvalidOptions {
            field: "url",
            // Never the URL itself: it may hold a password.
            value: error.to_string(),
            limit: "redis://[user:password@]host[:port][/db]".into(),
        };
        let info = url.into_connection_info().map_err(wrong)?;
        Ok(Self { info, connect_timeout })
    }

    /// Opens a connection of its own; `on_push` hears what comes unasked, and of its end.
    pub(super) async fn connect(&self, on_push: OnPush) -> Result<Wire, Trouble> {
        let connecting = Wire::connect(&self.info, on_push);
        timeout(self.connect_timeout, connecting).await.unwrap_or(Err(Trouble::ConnectTimeout))
    }
}

/// The shared connection.
pub(super) struct Link {
    server: Server,
    clock: Arc<dyn Clock>,
    request_timeout: Duration,
    spin_limit: Duration,
    spin: Mutex<Spin>,
    live: Mutex<Option<Live>>,
    /// The attempts to connect.
    under_way: Mutex<JoinSet<()>>,
    /// Held while connecting; what the last attempt met.
    connecting: tokio::sync::Mutex<Option<Trouble>>,
    attempts: AtomicU64,
    closed: AtomicBool,
    /// What the last request met; `None` after a success.
    failing: Mutex<Option<Trouble>>,
    is_failing: AtomicBool,
}

#[derive(Clone)]
struct Live {
    connection: Wire,
    health: Arc<Health>,
}

/// What is known of a connection that looks open.
#[derive(Debug, Default)]
struct Health {
    ended: AtomicBool,
    /// When the first of the requests was sent that have gone without an answer since the last
    /// answer, in nanoseconds of the local clock; zero if none.
    silent_since: AtomicU64,
}

impl Health {
    fn answered(&self) {
        if self.silent_since.load(Ordering::Relaxed) != 0 {
            self.silent_since.store(0, Ordering::Relaxed);
        }
    }

    /// A request sent at `sent` was given up at `now`. Returns for how long nothing was answered.
    fn unanswered(&self, sent: Instant, now: Instant) -> Duration {
        let nanos = u64::try_from(sent.since_origin().as_nanos()).unwrap_or(u64::MAX).max(1);
        let relaxed = Ordering::Relaxed;
        let first = self.silent_since.compare_exchange(0, nanos, relaxed, relaxed);
        let since = first.map_or_else(|earlier| earlier, |_| nanos);
        now.since_origin().saturating_sub(Duration::from_nanos(since))
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl Link {
    pub(super) fn new(server: Server, options: &RedisOptions) -> Self {
        Self {
            server,
            clock: options.clock.clone(),
            request_timeout: options.request_timeout,
            spin_limit: options.spin,
            spin: Mutex::new(Spin::new(options.spin)),
            live: Mutex::new(None),
            under_way: Mutex::new(JoinSet::new()),
            connecting: tokio::sync::Mutex::new(None),
            attempts: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            failing: Mutex::new(None),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Runs a script by its hash, or by its text where the server does not know it (any more).
    ///
    /// Ends at `until`, and after one request timeout.
    pub(super) async fn eval(
        self: &Arc<Self>,
        script: &Script,
        arguments: impl Fn(&mut Cmd),
        delivery: Delivery,
        until: Instant,
    ) -> Result<Value, Trouble> {
        let mut cmd = script.by_hash();
        arguments(&mut cmd);
        match self.request_with(&cmd, delivery, until).await {
            Err(Trouble::Refused(error))
                if error.code() == Some("NOSCRIPT") && !planted(Bug::NoScriptFallback) =>
            {
                let mut cmd = script.by_text();
                arguments(&mut cmd);
                self.request(&cmd, until).await
            }
            result => result,
        }
    }

    /// One command and its answer.
    pub(super) async fn request(
        self: &Arc<Self>,
        cmd: &Cmd,
        until: Instant,
    ) -> Result<Value, Trouble> {
        self.request_with(cmd, Delivery::default(), until).await
    }

    async fn request_with(
        self: &Arc<Self>,
        cmd: &Cmd,
        delivery: Delivery,
        until: Instant,
    ) -> Result<Value, Trouble> {
        let result = self.try_request(cmd, delivery, until).await;
        match &result {
            // What was looked at when it came says nothing of now.
            Ok(Answered { aside: true, .. }) => {}
            Ok(_) => self.serves(),
            Err(Trouble::NoTime) => {}
            Err(trouble) => {
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%trouble, "redis does not serve");
                }
                *lock(&self.failing) = Some(trouble.clone());
            }
        }
        result.map(|answered| answered.value)
    }

    /// Something was answered.
    fn serves(&self) {
        if self.is_failing.load(Ordering::Relaxed) {
            self.is_failing.store(false, Ordering::Relaxed);
            lock(&self.failing).take();
            tracing::info!("redis answers again");
        }
    }

    async fn try_request(
        self: &Arc<Self>,
        cmd: &Cmd,
        delivery: Delivery,
        until: Instant,
    ) -> Result<Answered, Trouble> {
        let live = match self.live() {
            Some(live) => live,
            None => self.connect(until).await?,
        };
        let sent = self.clock.now();
        let left = until.since(sent).min(self.request_timeout);
        let Delivery { look, awake } = delivery;
        let look = look.map(|look| {
            // Weak: what waits for an answer must not keep the connection open.
            let (link, health) = (Arc::downgrade(self), live.health.clone());
            let look: Look = Box::new(move |value| {
                health.answered();
                link.upgrade().inspect(|link| link.serves());
                look(value)
            });
            look
        });
        let asking = live.connection.request_with(cmd, Delivery { look, awake });
        let mut asking = pin!(timeout(left, asking));
        let soon = match awake && !self.spin_limit.is_zero() {
            true => self.stay_awake(&live.connection, asking.as_mut()).await,
            false => None,
        };
        let answered = match soon {
            Some(answered) => answered,
            None => asking.await,
        };
        let trouble = match answered {
            Ok(Ok(answered)) => {
                if !answered.aside {
                    live.health.answered();
                }
                return Ok(answered);
            }
            Ok(Err(trouble)) => trouble,
            Err(_) if live.health.unanswered(sent, self.clock.now()) * 2 < self.request_timeout => {
                Trouble::NoTime
            }
            Err(_) => Trouble::Silent,
        };
        if trouble.is_of_connection() {
            self.discard(&live);
        }
        Err(trouble)
    }

    /// Sends a request, and is awake when the answer comes, if that comes soon.
    async fn stay_awake<F: Future>(
        &self,
        connection: &Wire,
        mut asking: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut look = async || poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
        if let Poll::Ready(answered) = look().await {
            return Some(answered);
        }
        if !connection.awaits_one() {
            return None;
        }
        let mut vigil = lock(&self.spin).begin(self.clock.now())?;
        while vigil.goes_on(self.clock.now()) {
            yield_now().await;
            if let Poll::Ready(answered) = look().await {
                lock(&self.spin).ended(true);
                return Some(answered);
            }
        }
        lock(&self.spin).ended(false);
        None
    }

    /// What the last request met, if it failed.
    pub(super) fn failing(&self) -> Option<Trouble> {
        if !self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.failing).clone()
    }

    fn live(&self) -> Option<Live> {
        lock(&self.live).clone().filter(|live| !live.health.has_ended())
    }

    fn discard(&self, broken: &Live) {
        broken.health.end();
        lock(&self.live).take_if(|live| live.health.has_ended());
    }

    /// Waits for a connection until `until` at the most. The attempt itself runs on its own task,
    /// so that callers with little time do not abandon it again and again.
    async fn connect(self: &Arc<Self>, until: Instant) -> Result<Live, Trouble> {
        let attempt = self.clone().connect_once(self.attempts.load(Ordering::Acquire));
        let (done, result) = oneshot::channel();
        {
            let mut under_way = lock(&self.under_way);
            if self.closed.load(Ordering::Acquire) {
                return Err(Trouble::ConnectTimeout);
            }
            while under_way.try_join_next().is_some() {}
            under_way.spawn(async move {
                // Whoever asked may have run out of time.
                let _ = done.send(attempt.await);
            });
        }
        match timeout(until.since(self.clock.now()), result).await {
            Ok(Ok(result)) => result,
            // The runtime is shutting down, or this handle closes.
            Ok(Err(_)) | Err(_) => Err(Trouble::ConnectTimeout),
        }
    }

    /// Connects, unless somebody else has since `seen` attempts were counted: then that result
    /// holds for all who waited for it.
    async fn connect_once(self: Arc<Self>, seen: u64) -> Result<Live, Trouble> {
        let mut last = self.connecting.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        if self.attempts.load(Ordering::Acquire) != seen
            && let Some(trouble) = &*last
        {
            return Err(trouble.clone());
        }
        let health = Arc::new(Health::default());
        let on_push: OnPush = {
            let health = health.clone();
            Arc::new(move |unasked| {
                if unasked == Unasked::Ended {
                    health.end();
                }
            })
        };
        let result = self.server.connect(on_push).await;
        self.attempts.fetch_add(1, Ordering::AcqRel);
        match result {
            Ok(connection) => {
                *last = None;
                let live = Live { connection, health };
                if !self.closed.load(Ordering::Acquire) {
                    *lock(&self.live) = Some(live.clone());
                }
                Ok(live)
            }
            Err(trouble) => {
                *last = Some(trouble.clone());
                Err(trouble)
            }
        }
    }

    /// Drops the connection: its task and socket end with the requests under way, and so do attempts
    /// to connect.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        lock(&self.live).take();
        let mut under_way = std::mem::take(&mut *lock(&self.under_way));
        under_way.shutdown().await;
        // What one of them made meanwhile.
        lock(&self.live).take();
    }
}

impl fmt::Debug for Server {
    /// Says nothing of the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("failing", &self.failing()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
