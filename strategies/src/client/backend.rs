//! The granting side, as the client core sees it.

use std::task::{Context, Poll};

use super::command::{Command, Copies, Event, Profile};
use crate::{Error, Instant, MemberStatus};

/// A store, a consensus member, or a gate to one. One driver owns it.
///
/// Only [`poll_arrived`](Self::poll_arrived) waits, on the driver's task. Everything else returns
/// at once and needs no runtime: any thread can take a turn, and a test every turn. A turn is:
/// [`take`](Self::take), then the calls of users, then rounds of [`flush`](Self::flush) and
/// [`submit`](Self::submit) until neither does anything, then [`end_turn`](Self::end_turn).
pub trait Backend: Send + 'static {
    /// Its public state between turns: leader, term, connected, sizes. A state that is not equal to
    /// the last one wakes the tasks that wait for a change.
    type Status: Clone + Default + PartialEq + Send + Sync + 'static;

    /// Its constant properties.
    fn profile(&self) -> Profile;

    /// Completes when [`take`](Self::take) has something to take, and wakes the task that polled
    /// last. A turn on another thread may take it first.
    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Takes a batch of arrivals, and acts on timers that are due at `now`, read after the wait.
    ///
    /// # Errors
    ///
    /// It can never serve again: the handle ends with [`Error::Failed`](crate::Error::Failed).
    fn take(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<(), Failure>;

    /// Takes a command, to be sent with the next flush. It never blocks; a command that cannot be
    /// sent becomes an [`Event::Failed`] or [`Event::Unchecked`]. Not called between `Down` and
    /// `Up`.
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

    /// Its state after a turn. `pending` is the number of pending requests of the core.
    fn status(&self, pending: usize) -> Self::Status;

    /// Whether [`ready`](crate::KeyedMutex::ready) may return in this state.
    fn is_ready(status: &Self::Status) -> bool {
        let _ = status;
        true
    }

    /// The state of the group, where there is one.
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

/// Why a handle stopped for good.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// Its backend said so.
    #[error("the backend stopped: {0}")]
    Backend(String),
    /// A turn panicked.
    #[error("a broken invariant: {0}")]
    Panic(String),
    /// This process is a fork of the one that opened it.
    #[error("opened by process {0} before a fork: open a new handle in this process")]
    Forked(u32),
}

impl Failure {
    pub(crate) fn to_error(&self) -> Error {
        Error::Failed { cause: Box::new(self.clone()) }
    }
}
