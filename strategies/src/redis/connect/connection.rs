//! The connection of a handle, which is opened again whenever it breaks.
//!
//! It needs no task, no timer and no randomness but its seed: [`poll`](Connection::poll) moves
//! bytes, and [`take`](Connection::take) decides by its argument `now`.

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use gaggle_channels::internal::net::HEAD_START;
use humantime::format_duration;
use redis::{Cmd, Value};
use tokio::task::unconstrained;

use super::{
    dial::{Dial, DialFuture, tls_at, unopened},
    handshake::Handshake,
    pipeline::Pipeline,
};
use crate::{
    client::{
        commands::{Fate, ServerState},
        reconnect::Reconnects,
    },
    clock::Instant,
    random::Ids,
    redis::{
        error::ConnectionError,
        options::RedisOptions,
        request::{List, Request},
    },
};

/// The server's time at a new connection, in microseconds, and what it may have lost.
pub(in crate::redis) type NewConnection = (u64, ServerState);

type Outcome = Result<Session, ConnectionError>;
type Attempt = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The attempts to reach a server, of which the first that succeeds wins. The next begins when one
/// has failed, or a head start after the one before: a host may not reply.
struct Race {
    handshake: Handshake,
    waiting: VecDeque<DialFuture>,
    running: Vec<Attempt>,
    failed: Option<ConnectionError>,
    next_at: Instant,
}

impl Race {
    fn start_next(&mut self) {
        if let Some(stream) = self.waiting.pop_front() {
            self.running.push(Box::pin(open(stream, self.handshake.clone())));
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut at = 0;
        while at < self.running.len() {
            match self.running[at].as_mut().poll(context) {
                Poll::Ready(Ok(opened)) => return Poll::Ready(Ok(opened)),
                Poll::Ready(Err(error)) => {
                    self.failed = Some(error.or_worse(self.failed.take()));
                    drop(self.running.swap_remove(at));
                    self.start_next();
                }
                Poll::Pending => at += 1,
            }
        }
        match self.running.is_empty() {
            true => Poll::Ready(Err(self.failed.take().expect("a server has a candidate"))),
            false => Poll::Pending,
        }
    }
}

/// A connection that is made again whenever it breaks.
pub(in crate::redis) struct Connection {
    dial: Box<dyn Dial>,
    handshake: Handshake,
    options: RedisOptions,
    reconnects: Reconnects,
    state: State,
}

enum State {
    Pausing {
        until: Instant,
    },
    Connecting {
        race: Box<Race>,
        until: Instant,
        outcome: Option<Outcome>,
    },
    Up {
        pipeline: Box<Pipeline>,
        since: Instant,
        /// When something was last received, or the first pending request was sent.
        silent_since: Instant,
    },
}

/// A pipeline after its handshake, and the server's time in microseconds.
type Session = (Box<Pipeline>, u64);

impl Connection {
    pub(in crate::redis) fn new(
        mut dial: Box<dyn Dial>,
        handshake: Handshake,
        options: RedisOptions,
        ids: Ids,
        now: Instant,
    ) -> Self {
        let until = now.after(options.connect_timeout);
        let state = connecting(dial.as_mut(), handshake.clone(), now, until);
        let reconnects = Reconnects::new(options.connect_timeout, ids);
        Self { dial, handshake, options, reconnects, state }
    }

    /// Sends and receives. Returns whether there is something to take.
    pub(in crate::redis) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        // The budget of a task is for its callers: half a write must not wait for the next turn.
        let polled = poll_fn(|context| Poll::Ready(self.state.poll(context)));
        matches!(pin!(unconstrained(polled)).poll(context), Poll::Ready(true))
    }

    /// Begins and ends attempts to connect.
    pub(in crate::redis) fn take(
        &mut self,
        now: Instant,
    ) -> Option<Result<NewConnection, ConnectionError>> {
        match &mut self.state {
            State::Pausing { until } if *until <= now => {
                let until = now.after(self.reconnects.limit(false));
                self.state = connecting(self.dial.as_mut(), self.handshake.clone(), now, until);
                None
            }
            State::Connecting { outcome, until, race } => {
                let outcome = match outcome.take() {
                    Some(outcome) => outcome,
                    None if *until <= now => {
                        let failed = race.failed.take();
                        Err(self.timeout().or_worse(failed))
                    }
                    None => {
                        self.start_due(now);
                        return None;
                    }
                };
                match outcome {
                    Ok((pipeline, time)) => {
                        self.state = State::Up { pipeline, since: now, silent_since: now };
                        Some(Ok((time, self.reconnects.opened())))
                    }
                    Err(error) => {
                        self.state = State::Pausing { until: self.reconnects.failed(now) };
                        Some(Err(error))
                    }
                }
            }
            State::Pausing { .. } | State::Up { .. } => None,
        }
    }

    /// Begins with the next candidate for the server, if that is due.
    fn start_due(&mut self, now: Instant) {
        let State::Connecting { race, .. } = &mut self.state else { return };
        if self.dial.may_move() && race.next_at <= now {
            if race.waiting.is_empty() {
                race.waiting.extend(self.dial.dial());
            }
            race.start_next();
            race.next_at = now.after(HEAD_START);
        }
    }

    /// Takes the publications to this process and the replies.
    pub(in crate::redis) fn received(
        &mut self,
        now: Instant,
    ) -> (Vec<Vec<u8>>, Vec<(List, Value)>) {
        let State::Up { pipeline, silent_since, .. } = &mut self.state else {
            return Default::default();
        };
        let (published, replies) = pipeline.received();
        if !published.is_empty() || !replies.is_empty() {
            *silent_since = now;
        }
        (published, replies)
    }

    /// Why the connection is unusable, if it is.
    pub(in crate::redis) fn broken(&self, now: Instant) -> Option<ConnectionError> {
        let State::Up { pipeline, silent_since, .. } = &self.state else { return None };
        let address = self.address();
        if let Some(reason) = pipeline.end() {
            return Some(ConnectionError::lost(address, reason));
        }
        let timeout = self.options.request_timeout;
        let silent = !pipeline.is_idle() && silent_since.after(timeout) <= now;
        silent.then(|| {
            let timeout = format_duration(timeout);
            ConnectionError::silent(format!("Redis at {address} has not replied for {timeout}"))
        })
    }

    /// Drops the connection. Returns its pending requests.
    pub(in crate::redis) fn disconnect(&mut self, now: Instant) -> Vec<(Request, Fate)> {
        let State::Up { pipeline, since, .. } = &mut self.state else { return Vec::new() };
        let pending = pipeline.take_pending();
        self.state = State::Pausing { until: self.reconnects.ended(now, *since) };
        pending
    }

    /// Takes a list, encoded as `cmd`, which leaves when this is polled next.
    ///
    /// # Panics
    ///
    /// If there is no connection.
    pub(in crate::redis) fn send(&mut self, now: Instant, list: List, cmd: Cmd) {
        let State::Up { pipeline, silent_since, .. } = &mut self.state else {
            unreachable!("nothing is submitted without a connection")
        };
        if pipeline.is_idle() {
            *silent_since = now;
        }
        pipeline.send(list, cmd);
    }

    /// Whether an idle connection needs a test.
    pub(in crate::redis) fn is_to_be_tested(&self, now: Instant) -> bool {
        let State::Up { pipeline, silent_since, .. } = &self.state else { return false };
        pipeline.is_idle() && silent_since.after(self.options.waiter_ttl) <= now
    }

    /// When [`take`](Self::take) or [`broken`](Self::broken) must be called again.
    pub(in crate::redis) fn next_wake(&self) -> Option<Instant> {
        Some(match &self.state {
            State::Pausing { until } => *until,
            State::Connecting { until, race, .. } => match self.dial.may_move() {
                true => race.next_at.min(*until),
                false => *until,
            },
            State::Up { pipeline, silent_since, .. } if pipeline.is_idle() => {
                silent_since.after(self.options.waiter_ttl)
            }
            State::Up { silent_since, .. } => silent_since.after(self.options.request_timeout),
        })
    }

    /// Whether a look-up goes on that the next attempt would await.
    pub(in crate::redis) fn has_pending_look_up(&self) -> bool {
        self.dial.has_pending_look_up()
    }

    pub(in crate::redis) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Whether lists wait for replies to as many as may be in flight.
    pub(in crate::redis) fn is_congested(&self) -> bool {
        matches!(&self.state, State::Up { pipeline, .. } if pipeline.is_congested())
    }

    pub(in crate::redis) fn address(&self) -> &str {
        self.handshake.address()
    }

    fn timeout(&self) -> ConnectionError {
        let address = self.address().to_owned();
        ConnectionError::unreachable_within(address, "no connection", self.reconnects.limit(false))
    }
}

/// Begins an attempt to connect.
fn connecting(dial: &mut dyn Dial, handshake: Handshake, now: Instant, until: Instant) -> State {
    let mut race = Race {
        handshake,
        waiting: dial.dial().into(),
        running: Vec::new(),
        failed: None,
        next_at: now.after(HEAD_START),
    };
    race.start_next();
    State::Connecting { race: Box::new(race), until, outcome: None }
}

async fn open(stream: DialFuture, handshake: Handshake) -> Outcome {
    let opened = stream.await.map_err(|error| unopened(handshake.address().to_owned(), error));
    let (stream, peer) = opened?;
    match Pipeline::open(&handshake, stream).await {
        Ok((pipeline, time)) => Ok((Box::new(pipeline), time)),
        Err(error @ (ConnectionError::Unreachable { .. } | ConnectionError::NotRedis { .. })) => {
            Err(tls_at(peer).await.unwrap_or(error))
        }
        Err(error) => Err(error),
    }
}

impl State {
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Pausing { .. } => false,
            Self::Connecting { outcome: Some(_), .. } => true,
            Self::Connecting { race, outcome, .. } => match race.poll(context) {
                Poll::Ready(done) => {
                    *outcome = Some(done);
                    true
                }
                Poll::Pending => false,
            },
            Self::Up { pipeline, .. } => pipeline.poll(context),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("up", &self.is_up()).finish_non_exhaustive()
    }
}
