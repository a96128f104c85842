//! The granting side, as the client core sees it.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::commands::{Command, Copies, Event};
use crate::{
    capabilities::Capabilities,
    clock::Instant,
    deadline::Drift,
    error::{Error, UnavailableKind},
    status::MemberStatus,
};

/// A store, a consensus member, or a gate to one. One driver owns it.
///
/// Only [`poll_arrived`](Self::poll_arrived) waits, on the driver's task. Everything else returns
/// at once and needs no runtime: any thread can take a turn, and a test every turn. A turn is:
/// [`take`](Self::take), then the calls of users, then rounds of [`flush`](Self::flush) and
/// [`submit`](Self::submit) until neither does anything, then [`end_turn`](Self::end_turn).
///
/// # The order of events
///
/// 1. The first event that concerns the connection is [`Event::Up`], or [`Event::Down`] if there is
///    none. The core submits nothing before the first `Up`, and nothing between a `Down` or
///    [`Event::Reconnecting`] and the next `Up`. `Down` may be repeated with a later cause. `Up`
///    may come without a `Down` before it, as after a change of leader.
/// 2. When a connection is lost, each request without a reply that was submitted on it is reported
///    by one [`Event::Failed`]. The `Down` or `Reconnecting` of that loss comes after. Its
///    [`Fate`](super::commands::Fate) is `Unsent` only if no byte of it can have left. A backend
///    whose profile has [`resend`](Profile::resend) may lose requests without an event: the core
///    retransmits them.
/// 3. No reply to a request of an earlier connection follows the next `Up`. The core then submits
///    again all pending requests: unlocks and withdrawals first, then locks in the order of their
///    calls.
/// 4. `Up` says what may have been lost since the last one. After
///    [`MissedEvents`](super::commands::ServerState::MissedEvents) the core checks every waiter and
///    every held lock; after [`Replaced`](super::commands::ServerState::Replaced) every lock is
///    lost, and every wait starts again.
/// 5. Events of one acquisition come in the order in which they happened on the granting side.
///    Events and replies may arrive by separate queues whose order is unknown. A backend then
///    reports an [`Event::Lost`] twice. The report before the replies of the turn makes its cause
///    the first. The report after them is needed because an older reply may grant the lock. The
///    core ignores the repetition.
/// 6. A request has at most one reply for each time that it was submitted. A `Granted` without a
///    pending LOCK is that of a copy. The core then frees the key, unless it knows the nonce or was
///    granted a greater token.
/// 7. `Queued` is followed by `Granted`, `Held`, `Ended`, `Forgotten` or `Lost` at some time, or,
///    where the profile has [`check_every`](Profile::check_every), by a reply to a check. Each
///    `Queued` sets the time of the next check.
pub trait Backend: Send + 'static {
    /// The public state between turns: leader, term, connected, sizes. A state that is not equal to
    /// the last one wakes the tasks that wait for a change.
    type Status: Clone + Default + PartialEq + Send + Sync + 'static;

    /// The constant properties of this backend.
    fn profile(&self) -> Profile;

    /// Completes when [`take`](Self::take) has something to take, and wakes the task that polled
    /// last. A turn on another thread may take it first.
    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Takes a batch of arrivals, and acts on timers that are due at `now`, read after the wait.
    ///
    /// # Errors
    ///
    /// The backend can never serve again: the handle ends with
    /// [`Error::Failed`](crate::Error::Failed).
    fn take(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<(), Failure>;

    /// Takes a command, to be sent with the next flush. It never blocks; a command that cannot be
    /// sent becomes an [`Event::Failed`]. Not called between `Down` and `Up`.
    fn submit(&mut self, now: Instant, command: Command) -> Copies;

    /// Processes submitted commands and reports the events. `now` was read after the last request
    /// of the turn was taken (contract, rule 3). Returns whether another flush must follow in this
    /// turn although nothing more is submitted.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    fn flush(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<bool, Failure>;

    /// Sends the output of the turn, before its replies are delivered.
    fn end_turn(&mut self, now: Instant);

    /// When a turn must come although nothing arrives: ticks, keep-alives, reconnecting.
    fn next_wake(&self) -> Option<Instant>;

    /// The state after a turn. `pending` is the number of pending requests of the core.
    fn status(&self, pending: usize) -> Self::Status;

    /// Whether a handle with this state is [`ready`](crate::KeyedMutex::ready).
    #[must_use]
    fn is_ready(status: &Self::Status) -> bool {
        let _ = status;
        true
    }

    /// The status of the group that this member belongs to, if the strategy has groups.
    #[must_use]
    fn group_status(status: &Self::Status) -> Option<MemberStatus> {
        let _ = status;
        None
    }

    /// Called while closing, once nothing is pending: whether it may be closed now.
    fn leave(&mut self, now: Instant) -> bool {
        let _ = now;
        true
    }

    /// Closes sockets and ends tasks.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}

/// The constant properties of a backend.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The guarantees of the strategy.
    pub capabilities: Capabilities,
    /// Whether waiters queue on the granting side; if not, a refused call retries.
    pub queues: bool,
    /// The range of the random pause between a refusal and the next attempt.
    pub retry: (Duration, Duration),
    /// The pause before a pending request is sent again, and its limit: it doubles each time.
    /// `None` where the channel loses nothing without a [`Event::Failed`] or [`Event::Up`].
    pub resend: Option<(Duration, Duration)>,
    /// The longest time between two checks of a waiter, without a longer [`Event::MinCheckInterval`].
    /// `None` where no event is lost without an
    /// [`Event::Up`].
    pub check_every: Option<Duration>,
    /// The longest lease, [`DURATION_MAX`](crate::limits::DURATION_MAX) at most.
    pub lease_max: Duration,
    /// How long `unlock`, `extend`, `inspect` and a LOCK that does not wait may take.
    pub request_timeout: Duration,
    /// How many requests may be pending.
    pub requests_max: usize,
    /// How far the clock rates of the two sides may differ.
    pub drift: Drift,
    /// How long the driver polls before it sleeps.
    pub busy_poll: Duration,
}

/// Why a backend cannot serve. Cheap to clone: one cause may end many calls.
#[derive(Clone, Debug)]
pub struct Cause {
    kind: UnavailableKind,
    text: Arc<str>,
}

impl Cause {
    /// A cause with a human-readable text.
    pub fn new(kind: UnavailableKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Whether repeating the request is of no use.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.kind == UnavailableKind::Misconfigured
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The public error.
    #[must_use]
    pub fn to_error(&self) -> Error {
        Error::unavailable(self.kind, &*self.text)
    }
}

/// Why a handle stopped for good.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The backend can never serve again.
    #[error("the backend stopped: {0}")]
    Backend(String),
    /// A turn panicked.
    #[error("a broken invariant: {0}")]
    Panic(String),
    /// The handle is used in a fork of the process that opened it.
    #[error("opened by process {0} before a fork: open a new handle in this process")]
    Forked(u32),
}

impl Failure {
    /// The public error.
    #[must_use]
    pub fn to_error(&self) -> Error {
        Error::Failed { cause: Box::new(self.clone()) }
    }
}
