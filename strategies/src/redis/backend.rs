//! Redis as the granting side of the client core.

#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use redis::{ServerError, Value};

use super::{
    connect::{Connection, Dial, Handshake, NewConnection, PLAIN},
    error::{ConnectionError, Refusal, server_reason},
    lists::Lists,
    options::RedisOptions,
    protocol::{self, ForceUnlock, Malformed, Replies},
    replicas::ReplicaQueue,
    request::{Encoder, List, Request},
    waiters::Waiters,
};
use crate::{
    client::{
        backend::{Backend as ClientBackend, Cause, Failure, Profile},
        calls::Until,
        commands::{Command, Copies, Event, Fate},
        earlier,
    },
    clock::{Clock, Instant},
    error::{Error, UnavailableKind},
    lock::Nonce,
    random::Ids,
};

/// A Redis, as one handle uses it.
#[derive(Debug)]
pub struct Backend {
    options: RedisOptions,
    encoder: Encoder,
    connection: Connection,
    /// The first connection, until a turn takes it.
    first: Option<NewConnection>,
    /// The requests of this turn.
    lists: Lists,
    waiters: Waiters,
    unreported: ReplicaQueue,
    /// The latest time of the server that any reply has shown, in microseconds.
    seen: u64,
    /// Whether the last change of the connection was for the worse, and logged.
    is_failing: bool,
    /// Whether a malformed publication was logged.
    is_malformed_logged: bool,
    /// When a passing and a permanent refusal may be logged again.
    next_logs: [Instant; 2],
}

impl Backend {
    /// Begins to connect. `dial` replaces the sockets that the URL names, where it is given; `seed`
    /// decides everything that is generated.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`].
    pub fn new(
        options: RedisOptions,
        dial: Option<Box<dyn Dial>>,
        seed: u64,
        now: Instant,
    ) -> Result<Self, Error> {
        options.check()?;
        let (info, _) = options.server.info()?;
        let (dial, scheme) =
            dial.map_or_else(|| options.server.dial(&options), |dial| Ok((dial, PLAIN)))?;
        let mut ids = Ids::new(seed);
        let encoder = Encoder::new(&options, Nonce::from_u128(ids.next_wide()));
        let login = info.redis_settings();
        let handshake = Handshake::new(&options, &encoder, login, dial.address(), scheme);
        let rng = Ids::new(ids.next());
        Ok(Self {
            connection: Connection::new(dial, handshake, options.clone(), rng, now),
            first: None,
            lists: Lists::default(),
            waiters: Waiters::new(options.waiter_ttl),
            options,
            encoder,
            unreported: ReplicaQueue::default(),
            seen: 0,
            is_failing: false,
            is_malformed_logged: false,
            next_logs: [now; 2],
        })
    }

    /// Completes with the first attempt to connect that no look-up outlives.
    pub(crate) async fn connect(&mut self, clock: &dyn Clock) -> Result<(), ConnectionError> {
        loop {
            let wake = self.connection.next_wake().unwrap_or_default();
            tokio::select! {
                biased;
                () = poll_fn(|context| self.poll_arrived(context)) => {}
                () = clock.sleep_until(wake) => {}
            }
            match self.connection.take(clock.now()) {
                None => {}
                // A name server that does not reply: the next attempt awaits the same look-up.
                Some(Err(error))
                    if !error.cause().is_permanent() && self.connection.has_pending_look_up() => {}
                Some(connected) => {
                    self.first = Some(connected?);
                    return Ok(());
                }
            }
        }
    }

    fn send(&mut self, now: Instant, list: List) {
        let cmd = self.encoder.encode(&list, now, self.seen);
        self.connection.send(now, list, cmd);
    }

    fn published(&mut self, payload: &[u8], events: &mut Vec<Event>) {
        if let Some(grants) = protocol::published(payload) {
            events.extend(grants.into_iter().filter_map(|grant| self.waiters.granted(grant)));
        } else if let Some(ForceUnlock { nonce, token, key, note }) = protocol::forced(payload) {
            events.push(Event::Lost { nonce, key, token, forced: Some(note) });
        } else if payload != protocol::HELLO.as_bytes() {
            count!("gaggle_frames_dropped_total", "direction" => "incoming");
            // Only the first is logged: a stranger may publish without end.
            if !std::mem::replace(&mut self.is_malformed_logged, true) {
                tracing::warn!(bytes = payload.len(), "malformed publication from redis");
            }
        }
    }

    /// Takes the reply to a list. Returns an error that ends the connection.
    fn replied(
        &mut self,
        now: Instant,
        list: List,
        value: Value,
        events: &mut Vec<Event>,
    ) -> Option<ConnectionError> {
        let count = list.len();
        let replies = match value {
            // A script that fails as a whole has run none of the requests.
            Value::ServerError(_) => Ok(Replies::without_time(vec![value; count])),
            _ if list[0].verb().is_none() => Ok(Replies::without_time(vec![value])),
            _ => protocol::replies(value, count),
        };
        let Replies { now: time, grants, results } = match replies {
            Ok(replies) => replies,
            Err(what) => {
                list.iter().for_each(|request| self.malformed(request, what, events));
                return None;
            }
        };
        self.seen = self.seen.max(time);
        let mut broken = None;
        for (request, result) in list.into_iter().zip(results) {
            if let Value::ServerError(error) = result {
                broken = self.refused(now, request, &error, events).or(broken);
            } else if let Err(what) = self.read(&request, time, result, events) {
                self.malformed(&request, what, events);
            }
        }
        // Last: the script may have queued a waiter before it granted it the key.
        events.extend(grants.into_iter().filter_map(|grant| self.waiters.granted(grant)));
        broken
    }

    fn malformed(&self, request: &Request, what: Malformed, events: &mut Vec<Event>) {
        let (address, of) = (self.connection.address(), request.for_key());
        let mut error = format!("malformed reply from Redis at {address}{of}: {what}");
        if let Request::Command(Command::Inspect { key, .. }) = request {
            error += &self.encoder.names.remedy(key);
        }
        tracing::warn!(error, "no script of ours sends this reply");
        let cause = Cause::new(UnavailableKind::Misconfigured, error);
        match request {
            Request::Command(Command::Inspect { id, .. }) => {
                events.push(Event::Inspected { id: *id, found: Err(cause) });
            }
            _ => request.fail(Fate::NoReply, &cause, events),
        }
    }

    /// Takes the result of a request that a script returned at this time of the server.
    fn read(
        &mut self,
        request: &Request,
        time: u64,
        result: Value,
        events: &mut Vec<Event>,
    ) -> Result<(), Malformed> {
        match request {
            Request::Command(Command::Lock { nonce, key, lease, .. }) => {
                let event = protocol::locked(result, *nonce, key, *lease)?;
                match event {
                    Event::Queued { holder_lease: Some(lease), .. } => {
                        self.waiters.queued(*nonce);
                        self.encoder.names.warn_endless(key, lease);
                    }
                    _ => self.waiters.remove(*nonce),
                }
                events.push(event);
            }
            Request::Command(Command::Unlock { nonce, .. }) => {
                let held = protocol::held(result)?;
                events.push(Event::Unlocked { nonce: *nonce, held });
            }
            Request::Command(Command::Extend { id, nonce, token, .. }) => {
                let token = protocol::held(result)?.then_some(*token);
                events.push(Event::Extended { id: *id, nonce: *nonce, token });
            }
            Request::Command(Command::Inspect { id, key }) => {
                let found = protocol::inspected(result, time)?;
                if let Some(found) = &found {
                    self.encoder.names.warn_endless(key, found.remaining);
                }
                events.push(Event::Inspected { id: *id, found: Ok(found) });
            }
            Request::Command(Command::Scan { id, .. }) => {
                let (names, next) = protocol::scanned(result)?;
                let keys =
                    names.iter().filter_map(|name| Some(self.encoder.names.key_of(name)?.into()));
                events.push(Event::Scanned { id: *id, keys: keys.collect(), next });
            }
            Request::Poll(poll) => {
                let nonces = poll.checks.iter().map(|check| check.nonce);
                let found = protocol::found(result, nonces)?;
                self.waiters.polled(poll, &found, events);
            }
            Request::Mark => self.unreported.marked(),
            Request::Wait | Request::Command(_) => {}
        }
        Ok(())
    }

    /// Handles an error reply. Returns an error that ends the connection.
    fn refused(
        &mut self,
        now: Instant,
        request: Request,
        error: &ServerError,
        events: &mut Vec<Event>,
    ) -> Option<ConnectionError> {
        let refusal = Refusal::of_request(error);
        let (address, mut reason) = (self.connection.address().to_owned(), server_reason(error));
        if let (Request::Command(command), "WRONGTYPE") = (&request, error.code())
            && let Some(key) = command.key()
        {
            reason += &self.encoder.names.remedy_for_type(key);
        }
        let text = format!("Redis at {address} refused the request{}: {reason}", request.for_key());
        // Each WRONGTYPE is logged: most concern one key.
        if error.code() == "WRONGTYPE" || refusal.is_logged(now, &mut self.next_logs) {
            tracing::warn!(error = text, "redis refused a request");
        }
        // A LOCK that is sent again at once could overtake its own withdrawal. A new connection
        // loads the scripts, and pending requests then follow in order.
        let fate = if refusal == Refusal::NoScript { Fate::NoReply } else { Fate::Refused };
        let cause = Cause::new(refusal.kind(), text);
        match request {
            Request::Command(Command::Inspect { id, .. }) if error.code() == "WRONGTYPE" => {
                events.push(Event::Inspected { id, found: Err(cause) });
                return None;
            }
            Request::Command(Command::Lock { nonce, .. }) => self.waiters.remove(nonce),
            _ => {}
        }
        request.fail(fate, &cause, events);
        let of_connection = matches!(refusal, Refusal::NoScript | Refusal::OfConnection);
        of_connection.then(|| ConnectionError::lost(&address, &reason))
    }

    fn changed(&mut self, opened: Result<NewConnection, ConnectionError>, events: &mut Vec<Event>) {
        match opened {
            Ok((time, state)) => {
                self.seen = self.seen.max(time);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(address = self.connection.address(), "redis available again");
                }
                count!("gaggle_connections_total", "to" => "redis");
                events.push(Event::Up { state });
            }
            Err(error) => {
                self.log_outage(&error);
                events.push(Event::Down { cause: Some(error.cause()) });
            }
        }
    }

    fn log_outage(&mut self, error: &ConnectionError) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(%error, "redis unavailable");
        }
    }
}

impl ClientBackend for Backend {
    type Status = bool;

    fn profile(&self) -> Profile {
        self.options.profile()
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.first.is_some() || self.connection.poll(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn take(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<(), Failure> {
        if let Some(opened) = self.first.take().map(Ok).or_else(|| self.connection.take(now)) {
            self.changed(opened, events);
        }
        events.extend(self.waiters.changed_min_interval().map(Event::MinCheckInterval));
        let (published, replies) = self.connection.received(now);
        let before = events.len();
        for payload in published {
            self.published(&payload, events);
        }
        let is_lost = |event: &&Event| matches!(event, Event::Lost { .. });
        let lost: Vec<Event> = events[before..].iter().filter(is_lost).cloned().collect();
        let (mut broken, mut waited) = (None, None);
        for (list, value) in replies {
            waited = matches!(list[..], [Request::Wait]).then(|| value.clone()).or(waited);
            broken = self.replied(now, list, value, events).or(broken);
        }
        self.waiters.log_forgotten();
        // Repeated: a reply of this turn may be of the time before the loss.
        events.extend(lost);
        let (wanted, address) = (self.options.replicas, self.connection.address());
        if wanted > 0 {
            // Grants are held back until the reply to a `WAIT` counts enough replicas.
            self.unreported.take_from(events, wanted, address);
            let too_few = waited
                .and_then(|reply| self.unreported.waited(&reply, wanted, address, events))
                .filter(|_| Refusal::Passing.is_logged(now, &mut self.next_logs));
            if let Some(cause) = too_few {
                tracing::warn!(error = %cause.text(), "too few replicas");
            }
        }
        if let Some(error) = broken.or_else(|| self.connection.broken(now)) {
            self.log_outage(&error);
            let cause = error.cause();
            for (request, fate) in self.connection.disconnect(now) {
                if let Request::Command(Command::Lock { nonce, .. }) = &request {
                    // A LOCK that is repeated enters it again.
                    self.waiters.remove(*nonce);
                }
                request.fail(fate, &cause, events);
            }
            self.unreported.fail(&cause, events);
            events.push(Event::Reconnecting { cause });
        } else if self.connection.is_to_be_tested(now) {
            // No caller has this id, and no call this key. Its reply has the server's time. In a
            // Cluster, an error reply names the node that serves the slot now.
            self.lists.push(Request::Command(Command::Inspect { id: 0, key: "".into() }));
        }
        Ok(())
    }

    fn submit(&mut self, now: Instant, command: Command) -> Copies {
        match command {
            Command::Check { nonce, key, token } => {
                self.waiters.check(key, nonce, token);
                return Copies::One;
            }
            Command::Lock { nonce, ref key, until, .. } if until != Until::Now => {
                let end = if let Until::At(end) = until { Some(end) } else { None };
                self.waiters.insert(now, nonce, key.clone(), end);
            }
            Command::Unlock { nonce, .. } => self.waiters.remove(nonce),
            _ => {}
        }
        self.lists.push(Request::Command(command));
        Copies::One
    }

    fn flush(&mut self, now: Instant, _: &mut Vec<Event>) -> Result<bool, Failure> {
        let mut polls = self.waiters.polls(now);
        if self.connection.is_up() && !self.connection.is_congested() {
            polls.extend(self.waiters.signs(now));
        }
        polls.into_iter().for_each(|poll| self.lists.push(Request::Poll(poll)));
        Ok(false)
    }

    fn end_turn(&mut self, now: Instant) {
        let mut lists = self.lists.take();
        // Sent after the withdrawals of this turn.
        if self.unreported.begins() {
            lists.extend([vec![Request::Mark], vec![Request::Wait]]);
        }
        lists.into_iter().for_each(|list| self.send(now, list));
        // Only an open connection is polled here: connecting needs the runtime.
        if self.connection.is_up() {
            self.connection.poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let signs = self.connection.is_up() && !self.connection.is_congested();
        earlier(self.connection.next_wake(), self.waiters.next_sign().filter(|_| signs))
    }

    fn status(&self, _: usize) -> bool {
        self.connection.is_up()
    }

    async fn close(&mut self) {}
}
