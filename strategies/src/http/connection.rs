//! The connection of a handle, which is opened again, to the next node, whenever it breaks.
//!
//! As that of `Redis`, it decides by its argument `now`, and needs no task, no timer and no
//! randomness but its seed. It has no race of candidates: a handle has one node at a time.

use std::{
    fmt,
    future::poll_fn,
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
    wire::{self, Message, Request},
};
use crate::{
    client::{Cause, Fate, ServerState, reconnect::Reconnects},
    clock::Instant,
    error::UnavailableKind,
    random::Ids,
};

/// An idle connection has a request this often: a server ends one after a minute.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);

type Opened = Result<Box<Session>, Cause>;

/// A connection that is made again whenever it breaks.
pub(super) struct Connection {
    dial: Box<dyn Dial>,
    token: Token,
    /// How long a node may be silent while a request is open.
    silence_max: Duration,
    reconnects: Reconnects,
    node: usize,
    address: Arc<str>,
    state: State,
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
        session: Box<Session>,
        since: Instant,
        /// When something was last received, or the first open request was sent.
        last_heard_at: Instant,
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
            reconnects: Reconnects::new(options.connect_timeout, ids),
            node: 0,
            // The first attempt begins with the first turn.
            state: State::Pausing { until: now },
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
                        self.state =
                            State::Up { session, since: now, last_heard_at: now, pinged_at: None };
                        Ok(self.reconnects.opened())
                    }
                    Err(cause) => {
                        let until = self.reconnects.failed(now);
                        self.pause(until);
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
            let opened = Session::open(stream, base, wire::describe()).await;
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
        let (keep_alive_at, ping_at) = (KEEP_ALIVE_EVERY, self.silence_max / 2);
        let State::Up { session, last_heard_at, pinged_at, .. } = &mut self.state else {
            return Vec::new();
        };
        let (replies, is_alive) = session.received();
        if is_alive {
            (*last_heard_at, *pinged_at) = (now, None);
        }
        if session.is_idle() {
            *pinged_at = None;
            if last_heard_at.after(keep_alive_at) <= now {
                *last_heard_at = now;
                session.send(Request::KeepAlive, wire::describe());
            }
        } else if pinged_at.is_none() && last_heard_at.after(ping_at) <= now {
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
    pub(super) fn disconnect(&mut self, now: Instant) -> Vec<(Request, Fate)> {
        let State::Up { session, since, .. } = &mut self.state else { return Vec::new() };
        let pending = session.take_pending();
        let until = self.reconnects.ended(now, *since);
        self.pause(until);
        pending
    }

    /// Takes a request, which leaves when this is polled next.
    ///
    /// # Panics
    ///
    /// If there is no connection.
    pub(super) fn send(&mut self, now: Instant, request: Request, message: Message) {
        let State::Up { session, last_heard_at, .. } = &mut self.state else {
            unreachable!("nothing is submitted without a connection")
        };
        if session.is_idle() {
            *last_heard_at = now;
        }
        session.send(request, message);
    }

    /// When [`take`](Self::take), [`received`](Self::received) or [`broken`](Self::broken) must be
    /// called again.
    pub(super) fn next_wake(&self) -> Instant {
        match &self.state {
            State::Pausing { until } | State::Connecting { until, .. } => *until,
            State::Up { session, last_heard_at, pinged_at, .. } => match pinged_at {
                _ if session.is_idle() => last_heard_at.after(KEEP_ALIVE_EVERY),
                Some(at) => at.after(self.silence_max / 2),
                None => last_heard_at.after(self.silence_max / 2),
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
        self.reconnects.failures() as usize >= self.dial.nodes()
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// How long this attempt to connect may take.
    fn limit(&self) -> Duration {
        self.reconnects.limit(self.dial.nodes() > 1)
    }

    /// The next attempt is one to the next node.
    fn pause(&mut self, until: Instant) {
        self.node = (self.node + 1) % self.dial.nodes();
        self.state = State::Pausing { until };
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
