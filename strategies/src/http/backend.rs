//! A `gaggle serve` as the granting side of the client core.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::{
    connection::Connection,
    dial::{Dial, Sockets},
    options::HttpOptions,
    reply::{self, Claim, Claimed, Refusal},
    session::Response,
    wire::{self, ClaimRequest, Request},
};
use crate::{
    client::{
        Backend as ClientBackend, Cause, Command, Copies, Event, Failure, Fate, Profile,
        ServerState, Until,
    },
    clock::{Clock, Instant},
    error::Error,
    lock::{Nonce, Owner},
    random::Ids,
};

/// How long the first response to a waiter may wait, in seconds: a server that does not grant says
/// so then.
const FIRST_WAIT: u64 = 1;
/// How long each further one may wait.
const WAIT: u64 = 20;
/// How many long polls may be open; other waiters are checked once a second. A server has 1,024
/// open requests of a connection, and those that do not wait need some.
const LONG_POLLS_MAX: usize = 512;
/// The limit of [`Event::Limit`].
const CLAIMS: &str = "claims of the server";

/// A service, as one handle uses it.
#[derive(Debug)]
pub struct Backend {
    options: HttpOptions,
    connection: Connection,
    /// The first connection, until a turn takes it.
    first: Option<ServerState>,
    /// The LOCKs without a grant or an end. One leaves with its UNLOCK.
    waiters: BTreeMap<Nonce, Waiter>,
    /// How many long polls are open.
    long_polls: usize,
    /// The events of commands that were not sent.
    early: Vec<Event>,
    /// Whether the last change of the connection was for the worse, and logged.
    is_failing: bool,
}

#[derive(Debug)]
struct Waiter {
    key: Arc<str>,
    lease: Duration,
    owner: Arc<Owner>,
    /// Whether it waits if the key is held.
    may_wait: bool,
    /// When the first LOCK of its nonce was sent.
    since: Instant,
    /// A server has said that it waits.
    is_queued: bool,
    /// A long poll for its grant is open.
    is_polled: bool,
}

impl Backend {
    /// Begins to connect with the first turn. `dial` replaces the sockets that the options name,
    /// where it is given; `seed` decides everything that is generated.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`], and [`Error::Unavailable`] for files of TLS that cannot be used.
    pub fn new(
        options: HttpOptions,
        dial: Option<Box<dyn Dial>>,
        seed: u64,
        now: Instant,
    ) -> Result<Self, Error> {
        options.check()?;
        let dial = match dial {
            Some(dial) => dial,
            None => Box::new(Sockets::new(&options)?),
        };
        Ok(Self {
            connection: Connection::new(dial, &options, Ids::new(seed), now),
            options,
            first: None,
            waiters: BTreeMap::new(),
            long_polls: 0,
            early: Vec::new(),
            is_failing: false,
        })
    }

    /// Completes with the first connection, or once each node has failed: with the cause that most
    /// needs an operator.
    pub(super) async fn connect(&mut self, clock: &dyn Clock) -> Result<(), Cause> {
        let mut worst: Option<Cause> = None;
        loop {
            match self.connection.take(clock.now()) {
                None => {}
                Some(Ok(state)) => {
                    self.first = Some(state);
                    return Ok(());
                }
                Some(Err(cause)) => {
                    let cause = worst.take().filter(Cause::is_permanent).unwrap_or(cause);
                    if self.connection.has_tried_all() {
                        return Err(cause);
                    }
                    worst = Some(cause);
                }
            }
            let wake = self.connection.next_wake();
            tokio::select! {
                biased;
                () = poll_fn(|context| self.poll_arrived(context)) => {}
                () = clock.sleep_until(wake) => {}
            }
        }
    }

    /// Sends the `POST` of a waiter.
    fn claim(&mut self, now: Instant, nonce: Nonce, is_check: bool) {
        let Some(waiter) = self.waiters.get_mut(&nonce) else {
            return self.early.push(Event::Forgotten { nonce });
        };
        if waiter.is_polled {
            // The long poll finds out what a check asks.
            return;
        }
        let wait = match waiter {
            Waiter { may_wait: false, .. } => 0,
            _ if self.long_polls >= LONG_POLLS_MAX => 0,
            Waiter { is_queued: true, .. } => WAIT,
            _ => FIRST_WAIT,
        };
        waiter.is_polled = wait > 0;
        self.long_polls += usize::from(wait > 0);
        let Waiter { key, lease, owner, may_wait, .. } = waiter;
        let message = wire::claim(nonce, key, *lease, owner, (*may_wait, wait));
        let request = Request::Claim(ClaimRequest { nonce, is_check, sent: now, wait });
        self.connection.send(now, request, message);
    }

    /// Takes a response. Returns a cause that ends the connection.
    fn replied(
        &mut self,
        now: Instant,
        request: Request,
        response: &Response,
        events: &mut Vec<Event>,
    ) -> Option<Cause> {
        let read = match &request {
            Request::KeepAlive => Ok(()),
            Request::Claim(claim) => self.claimed(now, *claim, response, events),
            Request::Command(command) => read(command, response, events),
        };
        let refusal = read.err()?;
        let cause = refusal.cause(self.connection.address());
        let fate = match &request {
            Request::Claim(ClaimRequest { nonce, .. }) => {
                let may_wait = self.waiters.get(nonce).is_some_and(|waiter| waiter.may_wait);
                // The claim may wait at the server, although that does not serve now.
                if may_wait && !cause.is_permanent() { Fate::NoReply } else { refusal.fate() }
            }
            // A server repeats its UNLOCK until the lease ends.
            Request::Command(Command::Unlock { .. }) => Fate::NoReply,
            _ => refusal.fate(),
        };
        self.fail(&request, fate, &cause, events);
        refusal.is_of_node(self.connection.nodes()).then_some(cause)
    }

    fn claimed(
        &mut self,
        now: Instant,
        request: ClaimRequest,
        response: &Response,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let ClaimRequest { nonce, sent, wait, .. } = request;
        let claimed = reply::claimed(response)?;
        self.long_polls -= usize::from(wait > 0);
        // A waiter that was withdrawn has no reply.
        let Some(waiter) = self.waiters.get_mut(&nonce) else { return Ok(()) };
        waiter.is_polled = false;
        let event = match claimed {
            Claimed::Waiting => {
                let was_open = wait > 0 && mem::replace(&mut waiter.is_queued, true);
                if !was_open || self.long_polls >= LONG_POLLS_MAX {
                    events.push(Event::Queued { nonce, holder_lease: None });
                }
                if self.long_polls < LONG_POLLS_MAX {
                    self.claim(now, nonce, true);
                }
                return Ok(());
            }
            Claimed::Granted { token, waited, lease } => {
                // The server has measured the wait since this request.
                let waited = sent.since(waiter.since).saturating_add(waited);
                Event::Granted { nonce, key: waiter.key.clone(), token, waited, lease }
            }
            Claimed::Held => Event::Held { nonce },
            Claimed::Ended => Event::Ended { nonce },
            Claimed::Limit(limit) => Event::Limit { nonce, what: CLAIMS, limit },
        };
        self.waiters.remove(&nonce);
        events.push(event);
        Ok(())
    }

    /// Reports that a request failed.
    fn fail(&mut self, request: &Request, fate: Fate, cause: &Cause, events: &mut Vec<Event>) {
        if let Request::Claim(ClaimRequest { nonce, is_check, wait, .. }) = request {
            self.long_polls -= usize::from(*wait > 0);
            match self.waiters.get_mut(nonce) {
                None => return,
                // A LOCK that had no effect has no UNLOCK.
                Some(_) if fate != Fate::NoReply && !is_check => _ = self.waiters.remove(nonce),
                Some(waiter) => waiter.is_polled = false,
            }
        }
        request.fail(fate, cause, events);
    }

    fn changed(&mut self, opened: Result<ServerState, Cause>, events: &mut Vec<Event>) {
        match opened {
            Ok(state) => {
                if mem::take(&mut self.is_failing) {
                    let address = self.connection.address();
                    tracing::info!(address, "lock server available again");
                }
                count!("gaggle_connections_total", "to" => "http");
                events.push(Event::Up { state });
            }
            Err(cause) => {
                self.log_outage(&cause);
                // Another node may serve at once.
                events.push(match self.connection.has_tried_all() {
                    true => Event::Down { cause: Some(cause) },
                    false => Event::Reconnecting { cause },
                });
            }
        }
    }

    fn log_outage(&mut self, cause: &Cause) {
        if !mem::replace(&mut self.is_failing, true) {
            tracing::warn!(error = %cause.text(), "lock server unavailable");
        }
    }
}

/// Reads the response to a command that is not a claim.
fn read(command: &Command, response: &Response, events: &mut Vec<Event>) -> Result<(), Refusal> {
    match command {
        Command::Unlock { nonce, token, .. } => {
            let held = reply::unlocked(response)? == Some(*token);
            events.push(Event::Unlocked { nonce: *nonce, held });
        }
        &Command::Extend { id, nonce, ref key, token, .. } => {
            let held = holder(response, nonce, (key, token), events)?;
            events.push(Event::Extended { id, nonce, token: held });
        }
        &Command::Check { nonce, ref key, token } => {
            let token = token.unwrap_or_default();
            if holder(response, nonce, (key, token), events)? != Some(token) {
                events.push(Event::Lost { nonce, key: key.clone(), token, forced: None });
            }
        }
        Command::Inspect { id, .. } => {
            let found: Vec<Claim> = reply::parsed(response)?;
            let found = found.into_iter().find_map(Claim::inspection);
            events.push(Event::Inspected { id: *id, found: Ok(found) });
        }
        Command::Scan { id, .. } => {
            let found: Vec<Claim> = reply::parsed(response)?;
            let keys = found.into_iter().map(|claim| claim.resource).collect();
            let next = reply::next_cursor(response);
            events.push(Event::Scanned { id: *id, keys, next });
        }
        Command::Lock { .. } => unreachable!("a LOCK is a claim"),
    }
    Ok(())
}

/// The token of a claim, if it is active. A force-unlock is reported first.
fn holder(
    response: &Response,
    nonce: Nonce,
    (key, token): (&Arc<str>, u64),
    events: &mut Vec<Event>,
) -> Result<Option<u64>, Refusal> {
    let (active, revoked_by) = match reply::parsed::<Claim>(response) {
        Ok(claim) => (claim.active_token(), claim.revoked_by),
        Err(refusal) if refusal.is_final() => (None, refusal.revoked_by()),
        Err(refusal) => return Err(refusal),
    };
    if let Some(by) = revoked_by {
        let forced = Some(by.into());
        events.push(Event::Lost { nonce, key: key.clone(), token, forced });
    }
    Ok(active)
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
        let mut broken = None;
        for (request, response) in self.connection.received(now) {
            broken = self.replied(now, request, &response, events).or(broken);
        }
        if let Some(cause) = broken.or_else(|| self.connection.broken(now)) {
            self.log_outage(&cause);
            for (request, fate) in self.connection.disconnect(now) {
                self.fail(&request, fate, &cause, events);
            }
            events.push(Event::Reconnecting { cause });
        }
        Ok(())
    }

    fn submit(&mut self, now: Instant, command: Command) -> Copies {
        match command {
            Command::Check { nonce, token: None, .. } => self.claim(now, nonce, true),
            Command::Lock { nonce, key, lease, until, owner, .. } => {
                let may_wait = until != Until::Now;
                let (since, is_queued, is_polled) = (now, false, false);
                let waiter = Waiter { key, lease, owner, may_wait, since, is_queued, is_polled };
                self.waiters.entry(nonce).or_insert(waiter);
                self.claim(now, nonce, false);
            }
            command => {
                if let Command::Unlock { nonce, .. } = &command {
                    self.waiters.remove(nonce);
                }
                let message = wire::command(&command);
                self.connection.send(now, Request::Command(command), message);
            }
        }
        Copies::One
    }

    fn flush(&mut self, _: Instant, events: &mut Vec<Event>) -> Result<bool, Failure> {
        events.append(&mut self.early);
        Ok(false)
    }

    fn end_turn(&mut self, _: Instant) {
        // Only an open connection is polled here: connecting needs the runtime.
        if self.connection.is_up() {
            self.connection.poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        Some(self.connection.next_wake())
    }

    fn status(&self, _: usize) -> bool {
        self.connection.is_up()
    }

    async fn close(&mut self) {}
}
