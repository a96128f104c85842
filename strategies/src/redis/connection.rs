//! The one connection of a handle: requests, their replies and publications, and connecting again.
//!
//! The client library's own driver is polled here and nowhere else, so a connection needs no task,
//! no timer and no randomness but its seed: [`poll`](Connection::poll) moves bytes, and
//! [`take`](Connection::take) decides by the time that it is given.

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisResult, Value, aio::MultiplexedConnection,
};
use tokio::task::unconstrained;

use super::{
    RedisOptions,
    dial::Dial,
    error::{ConnectionError, io_reason, of_attempt, reason},
    handshake::Handshake,
    request::Request,
};
use crate::{
    Instant,
    client::{command::Fate, pace::back_off},
    planted::{Bug, planted},
    random::Ids,
};

/// How many requests may be unanswered on the connection; more wait here. It bounds what a lost
/// connection leaves of unknown fate.
const UNANSWERED_MAX: usize = 1024;
/// The library writes when it has gathered so many bytes: about eight requests, which the server
/// answers while the next are encoded. Larger writes were slower.
const WRITE_BYTES: usize = 4096;

/// What never changes about a handle's connections.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) login: RedisConnectionInfo,
    pub(super) handshake: Handshake,
    pub(super) connect_timeout: Duration,
    /// After this long without an answer a connection is dropped.
    pub(super) request_timeout: Duration,
    /// After this long without a sign of life an idle connection is tested.
    pub(super) ping_after: Duration,
}

impl Settings {
    pub(super) fn new(info: &ConnectionInfo, handshake: Handshake, options: &RedisOptions) -> Self {
        let login = info.redis_settings().clone();
        Self {
            login: login.set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name(),
            handshake,
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            ping_after: options.waiter_ttl,
        }
    }
}

/// What has changed about the connection.
#[derive(Debug)]
pub(super) enum Change {
    /// Requests can be sent. `time` is the server's, in microseconds.
    Up { time: u64, first: bool },
    /// An attempt to connect has failed.
    Failed(ConnectionError),
}

/// What became of a request.
pub(super) type Replied = (Request, Value);

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;
type Reply = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;
type Attempt = Pin<Box<dyn Future<Output = Result<Live, ConnectionError>> + Send>>;
type Payloads = Arc<Mutex<Vec<Vec<u8>>>>;

/// A connection that is made again whenever it breaks.
pub(super) struct Connection {
    dial: Box<dyn Dial>,
    settings: Settings,
    draws: Ids,
    state: State,
    /// Whether there has been a connection.
    was_up: bool,
    /// Attempts that have failed since the last connection.
    failures: u32,
}

enum State {
    Pausing {
        until: Instant,
    },
    Connecting {
        attempt: Attempt,
        until: Instant,
        outcome: Option<Box<Result<Live, ConnectionError>>>,
    },
    Up(Box<Live>),
}

/// A connection after its handshake.
struct Live {
    connection: MultiplexedConnection,
    driver: Driver,
    /// The server's time at the handshake, in microseconds.
    time: u64,
    /// In the order in which they are sent, and so answered. The first `handed` were given to the
    /// library.
    requests: VecDeque<(Request, Reply)>,
    handed: usize,
    replies: Vec<Replied>,
    published: Payloads,
    /// Why it is of no more use, if it is.
    end: Option<String>,
    /// When the server was last heard, or the first unanswered request was sent.
    silent_since: Instant,
}

impl Connection {
    pub(super) fn new(
        mut dial: Box<dyn Dial>,
        settings: Settings,
        draws: Ids,
        now: Instant,
    ) -> Self {
        let state = connecting(dial.as_mut(), &settings, settings.handshake.clone(), now);
        Self { dial, settings, draws, state, was_up: false, failures: 0 }
    }

    /// Sends and receives. Returns whether there is something to take.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        // The budget of a task is for its callers: half a write must not wait for the next turn.
        let polled = poll_fn(|context| Poll::Ready(self.state.poll(context)));
        matches!(pin!(unconstrained(polled)).poll(context), Poll::Ready(true))
    }

    /// The outcome of the first attempt to connect, once there is one.
    pub(super) fn outcome(&self) -> Option<Result<(), ConnectionError>> {
        match &self.state {
            State::Connecting { outcome, .. } => {
                outcome.as_deref().map(|outcome| outcome.as_ref().map(drop).map_err(Clone::clone))
            }
            State::Up(_) => Some(Ok(())),
            State::Pausing { .. } => None,
        }
    }

    /// Begins and ends attempts to connect.
    pub(super) fn take(&mut self, now: Instant) -> Option<Change> {
        match &mut self.state {
            State::Pausing { until } if *until <= now => {
                let mut handshake = self.settings.handshake.clone();
                if self.was_up && planted(Bug::SubscriptionLost) {
                    handshake.topic = None;
                }
                self.state = connecting(self.dial.as_mut(), &self.settings, handshake, now);
                None
            }
            State::Connecting { outcome, until, .. } => {
                let outcome = match outcome.take() {
                    Some(outcome) => *outcome,
                    None if *until <= now => Err(self.timeout()),
                    None => return None,
                };
                match outcome {
                    Ok(mut live) => {
                        live.silent_since = now;
                        let change = Change::Up { time: live.time, first: !self.was_up };
                        self.state = State::Up(Box::new(live));
                        self.was_up = true;
                        self.failures = 0;
                        Some(change)
                    }
                    Err(error) => {
                        self.pause(now);
                        Some(Change::Failed(error))
                    }
                }
            }
            State::Pausing { .. } | State::Up(_) => None,
        }
    }

    /// What was published to this process, and then the replies.
    pub(super) fn received(&mut self, now: Instant) -> (Vec<Vec<u8>>, Vec<Replied>) {
        let State::Up(live) = &mut self.state else { return Default::default() };
        let published = mem::take(&mut *lock(&live.published));
        let replies = mem::take(&mut live.replies);
        if !published.is_empty() || !replies.is_empty() {
            live.silent_since = now;
        }
        (published, replies)
    }

    /// Why the connection is of no more use, if that is so.
    pub(super) fn broken(&self, now: Instant) -> Option<ConnectionError> {
        let State::Up(live) = &self.state else { return None };
        let address = || self.settings.handshake.address.clone();
        if let Some(reason) = &live.end {
            return Some(ConnectionError::Lost { address: address(), reason: reason.clone() });
        }
        let timeout = self.settings.request_timeout;
        let silent = !live.requests.is_empty() && live.silent_since.after(timeout) <= now;
        silent.then(|| ConnectionError::Silent { address: address(), timeout })
    }

    /// Drops the connection. Returns what was not answered on it.
    pub(super) fn drop_it(&mut self, now: Instant) -> Vec<(Request, Fate)> {
        let unanswered = match &mut self.state {
            State::Up(live) => {
                let handed = live.handed;
                let fate = |at| if at < handed { Fate::Unanswered } else { Fate::Unsent };
                let requests = mem::take(&mut live.requests).into_iter().enumerate();
                requests.map(|(at, (request, _))| (request, fate(at))).collect()
            }
            _ => Vec::new(),
        };
        self.pause(now);
        unanswered
    }

    /// Takes a request, which leaves when this is polled next.
    ///
    /// # Errors
    ///
    /// The request, where there is no connection.
    pub(super) fn send(&mut self, now: Instant, request: Request, cmd: Cmd) -> Result<(), Request> {
        let State::Up(live) = &mut self.state else { return Err(request) };
        if live.requests.is_empty() {
            live.silent_since = now;
        }
        let mut connection = live.connection.clone();
        let reply = Box::pin(async move { connection.send_packed_command(&cmd).await });
        live.requests.push_back((request, reply));
        Ok(())
    }

    /// Whether an idle connection is to be tested.
    pub(super) fn is_to_be_tested(&self, now: Instant) -> bool {
        let State::Up(live) = &self.state else { return false };
        live.requests.is_empty() && live.silent_since.after(self.settings.ping_after) <= now
    }

    /// When [`take`](Self::take) or [`broken`](Self::broken) must be asked again.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        match &self.state {
            State::Pausing { until } | State::Connecting { until, .. } => Some(*until),
            State::Up(live) if live.requests.is_empty() => {
                Some(live.silent_since.after(self.settings.ping_after))
            }
            State::Up(live) => Some(live.silent_since.after(self.settings.request_timeout)),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    pub(super) fn address(&self) -> &str {
        &self.settings.handshake.address
    }

    pub(super) fn timeout(&self) -> ConnectionError {
        let timeout = self.settings.connect_timeout;
        ConnectionError::Timeout { address: self.address().to_owned(), timeout }
    }

    fn pause(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let pause = back_off(&mut self.draws, self.failures);
        self.state = State::Pausing { until: now.after(pause) };
    }
}

/// Begins an attempt to connect.
fn connecting(
    dial: &mut dyn Dial,
    settings: &Settings,
    handshake: Handshake,
    now: Instant,
) -> State {
    let (dialing, login) = (dial.dial(), settings.login.clone());
    let attempt = Box::pin(async move {
        let address = || handshake.address.clone();
        let stream = dialing.await.map_err(|error| ConnectionError::Unreachable {
            address: address(),
            reason: io_reason(&error),
        })?;
        let published = Payloads::default();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(UNANSWERED_MAX)
            .set_write_backpressure_boundary(WRITE_BYTES)
            .set_push_sender(keep_in(published.clone()));
        let connected = MultiplexedConnection::new_with_config(&login, stream, config).await;
        let (connection, driver) = connected.map_err(|error| of_attempt(address(), &error))?;
        let mut driver: Driver = Box::pin(driver);
        let time = tokio::select! {
            biased;
            time = handshake.perform(&connection) => time?,
            () = &mut driver => return Err(ConnectionError::Unreachable {
                address: address(),
                reason: CLOSED.into(),
            }),
        };
        Ok(Live {
            connection,
            driver,
            time,
            requests: VecDeque::new(),
            handed: 0,
            replies: Vec::new(),
            published,
            end: None,
            silent_since: Instant::default(),
        })
    });
    State::Connecting { attempt, until: now.after(settings.connect_timeout), outcome: None }
}

const CLOSED: &str = "closed by the server";

/// Keeps the payloads of publications.
fn keep_in(published: Payloads) -> impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static {
    move |mut push| {
        if push.kind == PushKind::Message
            && let Some(Value::BulkString(payload)) = push.data.pop()
        {
            lock(&published).push(payload);
        }
        Ok(())
    }
}

impl State {
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Pausing { .. } => false,
            Self::Connecting { outcome: Some(_), .. } => true,
            Self::Connecting { attempt, outcome, .. } => match attempt.as_mut().poll(context) {
                Poll::Ready(done) => {
                    *outcome = Some(Box::new(done));
                    true
                }
                Poll::Pending => false,
            },
            Self::Up(live) => {
                live.poll(context);
                live.end.is_some() || !live.replies.is_empty() || !lock(&live.published).is_empty()
            }
        }
    }
}

impl Live {
    /// Hands requests to the library, writes, reads, and takes replies, as far as it goes.
    fn poll(&mut self, context: &mut Context<'_>) {
        // A reply becomes ready only while the driver is polled, which is here: what wakes this task
        // is the driver.
        let unwoken = &mut Context::from_waker(Waker::noop());
        while self.end.is_none() {
            self.hand_over(unwoken);
            if self.driver.as_mut().poll(context).is_ready() {
                self.end.get_or_insert_with(|| CLOSED.into());
            }
            let before = self.handed;
            self.take_replies(unwoken);
            let has_more = self.requests.len() > self.handed;
            if self.handed == before || !has_more {
                break;
            }
        }
    }

    fn hand_over(&mut self, unwoken: &mut Context<'_>) {
        while self.handed < self.requests.len().min(UNANSWERED_MAX) {
            let (_, reply) = &mut self.requests[self.handed];
            // The library has room for as many as may be unanswered, so that this hands it in.
            if let Poll::Ready(ended) = reply.as_mut().poll(unwoken) {
                self.end = Some(ended.map_or_else(|error| reason(&error), |_| CLOSED.into()));
                return;
            }
            self.handed += 1;
        }
    }

    fn take_replies(&mut self, unwoken: &mut Context<'_>) {
        while self.handed > 0
            && let Some((_, reply)) = self.requests.front_mut()
            && let Poll::Ready(reply) = reply.as_mut().poll(unwoken)
        {
            let value = match reply {
                Ok(value) => value,
                Err(error) => {
                    self.end = Some(reason(&error));
                    // Polled to its end: what is left of it is its fate.
                    self.requests[0].1 = Box::pin(std::future::pending());
                    return;
                }
            };
            if planted(Bug::ReplyMiscredited) && self.handed > 1 {
                let (first, second) = self.requests.make_contiguous().split_at_mut(1);
                mem::swap(&mut first[0].0, &mut second[0].0);
            }
            let (request, _) = self.requests.pop_front().expect("it has just been polled");
            self.handed -= 1;
            self.replies.push((request, value));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("up", &self.is_up()).finish_non_exhaustive()
    }
}
