//! The connection of a handle, which is opened again, to the next node, whenever it breaks.
//!
//! As that of `Redis`, it decides by its argument `now`, and needs no task, no timer and no
//! randomness but its seed. It has no race of candidates: a handle has one node at a time.

use std::{
    fmt,
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use humantime::format_duration;
use tokio::task::unconstrained;

use super::{
    dial::Dial,
    options::{HttpOptions, Token},
    reply::{self, unreachable},
    session::{Base, Response, Session, reason},
    wire::{Message, Request},
};
use crate::{
    client::{Cause, Fate, ServerState, backoff::reconnect_after},
    clock::Instant,
    error::UnavailableKind,
    random::Ids,
};

/// The first reconnect attempt gets this part of `connect_timeout`; each retry doubles it.
const FIRST_PART: u32 = 5;
/// A connection that lasted this long ends a series of failures.
const STEADY: Duration = Duration::from_secs(1);
/// An idle connection is tested this often: a server ends one after a minute.
const TEST_EVERY: Duration = Duration::from_secs(20);

type Opened = Result<Box<Session<Request>>, Cause>;

/// A connection that is made again whenever it breaks.
pub(super) struct Connection {
    dial: Box<dyn Dial>,
    token: Token,
    /// How long a node may be silent while a request is open.
    silence_max: Duration,
    connect_timeout: Duration,
    ids: Ids,
    node: usize,
    address: Arc<str>,
    state: State,
    /// Whether there was a connection before.
    was_up: bool,
    /// Attempts that have failed, and connections that ended soon, since the last steady one.
    failures: u32,
}

enum State {
    Pausing {
        until: Instant,
    },
    Connecting {
        attempt: Pin<Box<dyn Future<Output = Opened> + Send>>,
        until: Instant,
        outcome: Option<Opened>,
    },
    Up {
        session: Box<Session<Request>>,
        since: Instant,
        /// When something was last received, or the first open request was sent.
        heard_at: Instant,
        pinged_at: Option<Instant>,
    },
}

impl Connection {
    pub(super) fn new(dial: Box<dyn Dial>, options: &HttpOptions, ids: Ids, now: Instant) -> Self {
        // A call that gets no reply here needs time at the next node.
        let nodes_per_call = if dial.nodes() > 1 { 2 } else { 1 };
        Self {
            address: dial.address(0).into(),
            dial,
            token: options.token.clone(),
            silence_max: options.request_timeout / nodes_per_call,
            connect_timeout: options.connect_timeout,
            ids,
            node: 0,
            // The first attempt begins with the first turn.
            state: State::Pausing { until: now },
            was_up: false,
            failures: 0,
        }
    }

    /// Sends and receives. Returns whether there is something to take.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        // The budget of a task is for its callers: half a write must not wait for the next turn.
        let polled = poll_fn(|context| Poll::Ready(self.state.poll(context)));
        matches!(pin!(unconstrained(polled)).poll(context), Poll::Ready(true))
    }

    /// Begins and ends attempts to connect.
    pub(super) fn take(&mut self, now: Instant) -> Option<Result<ServerState, Cause>> {
        match &mut self.state {
            State::Pausing { until } if *until <= now => {
                self.begin(now);
                None
            }
            State::Connecting { outcome, until, .. } => {
                let outcome = match outcome.take() {
                    Some(outcome) => outcome,
                    None if *until <= now => {
                        let limit = format_duration(self.limit());
                        Err(unreachable(&self.address, &format!("no connection within {limit}")))
                    }
                    None => return None,
                };
                Some(match outcome {
                    Ok(session) => {
                        // A server that started again, or another one, may have lost all locks.
                        let was_up = mem::replace(&mut self.was_up, true);
                        self.state =
                            State::Up { session, since: now, heard_at: now, pinged_at: None };
                        Ok(if was_up { ServerState::MissedEvents } else { ServerState::Same })
                    }
                    Err(cause) => {
                        self.pause(now);
                        Err(cause)
                    }
                })
            }
            State::Pausing { .. } | State::Up { .. } => None,
        }
    }

    fn begin(&mut self, now: Instant) {
        self.address = self.dial.address(self.node).into();
        let (stream, address) = (self.dial.dial(self.node), self.address.clone());
        let (is_tls, token) = (self.dial.is_tls(), self.token.clone());
        let attempt = Box::pin(async move {
            let token = token.read()?;
            let stream = stream.await.map_err(|error| reply::unopened(&address, &error))?;
            let base = Base::new(is_tls, &address, token.as_deref());
            let opened = Session::open(stream, base, &Message::describe()).await;
            let (session, response) = opened.map_err(|error| match error.is_io() {
                true => unreachable(&address, &reason(&error)),
                false => reply::no_http2(&address, is_tls),
            })?;
            reply::described(&address, &response)?;
            Ok(Box::new(session))
        });
        self.state = State::Connecting { attempt, until: now.after(self.limit()), outcome: None };
    }

    /// Takes the responses, and keeps an open connection alive.
    pub(super) fn received(&mut self, now: Instant) -> Vec<(Request, Response)> {
        let (test_at, ping_at) = (TEST_EVERY, self.silence_max / 2);
        let State::Up { session, heard_at, pinged_at, .. } = &mut self.state else {
            return Vec::new();
        };
        let (replies, is_alive) = session.received();
        if is_alive {
            (*heard_at, *pinged_at) = (now, None);
        }
        if session.is_idle() {
            *pinged_at = None;
            if heard_at.after(test_at) <= now {
                *heard_at = now;
                session.send(Request::Test, Message::describe());
            }
        } else if pinged_at.is_none() && heard_at.after(ping_at) <= now {
            *pinged_at = Some(now);
            session.ping();
        }
        replies
    }

    /// Why the connection is unusable, if it is.
    pub(super) fn broken(&self, now: Instant) -> Option<Cause> {
        let State::Up { session, pinged_at, .. } = &self.state else { return None };
        let address = &self.address;
        let lost = |reason: &str| {
            let text = format!("lost the connection to the server at {address}: {reason}");
            Some(Cause::new(UnavailableKind::Unreachable, text))
        };
        if let Some(reason) = session.end() {
            return lost(reason);
        }
        pinged_at.filter(|at| at.after(self.silence_max / 2) <= now)?;
        lost(&format!("it has not replied for {}", format_duration(self.silence_max)))
    }

    /// Drops the connection. Returns its pending requests.
    pub(super) fn drop_it(&mut self, now: Instant) -> Vec<(Request, Fate)> {
        let pending = match &mut self.state {
            State::Up { session, since, .. } => {
                if since.after(STEADY) <= now {
                    self.failures = 0;
                }
                session.take_pending()
            }
            _ => Vec::new(),
        };
        self.pause(now);
        pending
    }

    /// Takes a request, which leaves when this is polled next.
    ///
    /// # Panics
    ///
    /// If there is no connection.
    pub(super) fn send(&mut self, now: Instant, request: Request, message: Message) {
        let State::Up { session, heard_at, .. } = &mut self.state else {
            unreachable!("nothing is submitted without a connection")
        };
        if session.is_idle() {
            *heard_at = now;
        }
        session.send(request, message);
    }

    /// When [`take`](Self::take), [`received`](Self::received) or [`broken`](Self::broken) must be
    /// called again.
    pub(super) fn next_wake(&self) -> Instant {
        match &self.state {
            State::Pausing { until } | State::Connecting { until, .. } => *until,
            State::Up { session, heard_at, pinged_at, .. } => match pinged_at {
                _ if session.is_idle() => heard_at.after(TEST_EVERY),
                Some(at) => at.after(self.silence_max / 2),
                None => heard_at.after(self.silence_max / 2),
            },
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.dial.nodes()
    }

    /// Whether each node has failed since the last connection that lasted.
    pub(super) fn has_tried_all(&self) -> bool {
        self.failures as usize >= self.dial.nodes()
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// How long this attempt to connect may take. The first attempts after a connection are
    /// shorter: only a new attempt helps against a server that hangs or a lost packet.
    fn limit(&self) -> Duration {
        let limit = self.connect_timeout;
        match self.was_up || self.dial.nodes() > 1 {
            true => (limit / FIRST_PART * (1 << self.failures.saturating_sub(1).min(8))).min(limit),
            false => limit,
        }
    }

    /// The next attempt is one to the next node.
    fn pause(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.node = (self.node + 1) % self.dial.nodes();
        let pause = reconnect_after(&mut self.ids, self.failures);
        self.state = State::Pausing { until: now.after(pause) };
    }
}

impl State {
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Pausing { .. } => false,
            Self::Connecting { outcome: Some(_), .. } => true,
            Self::Connecting { attempt, outcome, .. } => match attempt.as_mut().poll(context) {
                Poll::Ready(done) => {
                    *outcome = Some(done);
                    true
                }
                Poll::Pending => false,
            },
            Self::Up { session, .. } => session.poll(context),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("up", &self.is_up()).finish_non_exhaustive()
    }
}
