//! The driver of a handle: it reads the clock, and takes one turn after another.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::sync::{oneshot, watch};

use super::{
    backend::{Backend, Failure},
    busy_poll::BusyPoll,
    calls::{Call, CallId, Output, Reply},
    commands::Event,
    core::{Core, earlier},
    mailbox::{Mail, Receiver},
};
use crate::{
    clock::{Clock, Instant},
    lock::{Lock, LossCause},
    losses::LossRegistry,
};

/// How many messages one turn takes: enough to gather a batch, few enough to stay prompt.
const BATCH: usize = 512;
/// The shortest sleep: work that is scheduled and cannot be done yet must not spin.
pub const SHORTEST_SLEEP: std::time::Duration = std::time::Duration::from_millis(1);

/// The state that the driver shares with its handle.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) losses: LossRegistry,
    /// No lock that was lost or released so far has a greater token.
    pub(crate) lost_token: AtomicU64,
    pub(crate) failure: OnceLock<Failure>,
}

/// Gathers arrivals, runs one turn of core and backend, and delivers its outputs.
///
/// [`Client::run`](super::handle::Client::run) drives it on a runtime. Without one, its owner calls
/// [`step`](Self::step) when [`poll_arrived`](Backend::poll_arrived) is ready, when a call was
/// made, and at [`next_wake`](Self::next_wake).
pub struct Driver<B: Backend> {
    core: Core,
    backend: B,
    clock: Arc<dyn Clock>,
    mailbox: Receiver,
    shared: Arc<Shared>,
    status: watch::Sender<B::Status>,
    replies: BTreeMap<CallId, oneshot::Sender<Reply>>,
    events: Vec<Event>,
    /// The latest reading of the clock.
    now: Instant,
    /// Messages taken since the task last yielded.
    taken: usize,
    busy: BusyPoll,
    /// A caller that waits for its reply sent a request in this turn.
    awaited: bool,
    /// How the turns on threads of callers have ended since the task last looked.
    caller_flow: Option<ControlFlow<()>>,
}

impl<B: Backend> Driver<B> {
    pub(super) fn new(
        backend: B,
        clock: Arc<dyn Clock>,
        mailbox: Receiver,
        shared: Arc<Shared>,
        status: watch::Sender<B::Status>,
        seed: u64,
    ) -> Self {
        let profile = backend.profile();
        let now = clock.now();
        Self {
            core: Core::new(profile, seed),
            backend,
            clock,
            mailbox,
            shared,
            status,
            replies: BTreeMap::new(),
            events: Vec::new(),
            now,
            taken: 0,
            busy: BusyPoll::new(profile.busy_poll),
            awaited: false,
            caller_flow: None,
        }
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// When the next turn must come, and whether to poll until then.
    pub(super) fn plan(&mut self) -> (Instant, bool) {
        (self.next_wake(), self.busy.is_polling())
    }

    /// Takes a turn if something has arrived. Also completes after a turn on another thread, which
    /// may have changed when the next one must come.
    pub(super) fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<ControlFlow<()>> {
        if let Some(flow) = self.caller_flow.take() {
            return Poll::Ready(flow);
        }
        if self.backend.poll_arrived(context).is_ready() {
            return Poll::Ready(self.step());
        }
        if self.mailbox.is_disconnected() {
            return Poll::Pending;
        }
        self.mailbox.poll_recv(context).map(|mail| self.step_with(mail))
    }

    /// Takes all mail on the thread of a caller. The mail has woken the driver's task, which then
    /// waits again.
    pub(super) fn step_on_caller(&mut self) {
        for _ in 0..self.mailbox.len().div_ceil(BATCH) {
            if self.caller_flow == Some(ControlFlow::Break(())) {
                return;
            }
            self.caller_flow = Some(self.step());
        }
    }

    /// No reply has come while this driver polls.
    pub(super) fn poll_again(&mut self) {
        self.now = self.clock.now();
        self.busy.poll(self.now);
    }

    /// Whether the messages since the last call of this make a batch.
    pub(super) fn has_taken_batch(&mut self) -> bool {
        let taken = self.taken >= BATCH;
        if taken {
            self.taken = 0;
        }
        taken
    }

    /// When a turn must come although nothing arrives.
    #[must_use]
    pub fn next_wake(&self) -> Instant {
        let wake = earlier(self.core.next_wake(), self.backend.next_wake());
        match earlier(wake, self.core.close_deadline()) {
            // Nothing is scheduled: any arrival ends the sleep.
            None => self.now.after(std::time::Duration::from_secs(3600)),
            Some(at) if at > self.now.after(SHORTEST_SLEEP) => at,
            Some(at) => at.max(self.clock.now().after(SHORTEST_SLEEP)),
        }
    }

    /// Takes a turn and delivers its replies: everything between two waits. Breaks when the handle
    /// ends.
    pub fn step(&mut self) -> ControlFlow<()> {
        self.step_with(None)
    }

    /// A turn after a wait that `mail` has ended.
    pub(crate) fn step_with(&mut self, mail: Option<Mail>) -> ControlFlow<()> {
        if self.shared.failure.get().is_some() {
            return ControlFlow::Break(());
        }
        let in_flight = self.core.in_flight();
        // The consensus engine panics on broken invariants: that ends this handle and nothing else.
        let turn = AssertUnwindSafe(|| self.turn(mail));
        let ended =
            catch_unwind(turn).unwrap_or_else(|panic| Err(Failure::Panic(text_of(&*panic))));
        if let Err(failure) = ended {
            tracing::error!(error = %failure, "handle failed");
            let _ = self.shared.failure.set(failure);
            return ControlFlow::Break(());
        }
        self.deliver();
        self.adjust_polling(in_flight);
        if self.may_close() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn turn(&mut self, mail: Option<Mail>) -> Result<(), Failure> {
        let arrived = self.clock.now();
        self.backend.take(arrived, &mut self.events)?;
        if let Some(mail) = mail {
            self.take_mail(arrived, mail);
        }
        for _ in 0..BATCH {
            let Some(mail) = self.mailbox.try_recv() else { break };
            self.take_mail(arrived, mail);
        }
        if self.mailbox.is_disconnected() && self.core.close_deadline().is_none() {
            // The last handle was dropped: its unlocks are still sent.
            self.core.call(arrived, Call::Close { watched: Vec::new() });
        }
        // Read after the last request was taken (contract, rule 3).
        let now = self.clock.now();
        self.now = now;
        let Self { core, backend, events, .. } = self;
        loop {
            let again = backend.flush(now, events)?;
            for event in events.drain(..) {
                core.handle(now, event);
            }
            core.expire(now);
            let sent = core.send_due(now, |command| backend.submit(now, command));
            if !again && !sent {
                break;
            }
        }
        backend.end_turn(now);
        Ok(())
    }

    fn take_mail(&mut self, now: Instant, Mail { call, reply }: Mail) {
        self.taken += 1;
        if let Some((id, reply)) = reply {
            self.awaited = true;
            self.replies.insert(id, reply);
        }
        self.core.call(now, call);
    }

    /// Delivers the outputs of the turn: losses and grants, then the rest, so that the next holder
    /// runs before the former.
    fn deliver(&mut self) {
        let status = self.backend.status(self.core.pending());
        self.status.send_if_modified(|shown| {
            let changed = *shown != status;
            *shown = status;
            changed
        });
        let Self { core, replies, shared, now, .. } = self;
        let outputs = core.outputs();
        let mut later = Vec::with_capacity(outputs.len());
        for output in outputs {
            match output {
                Output::Reply { id, reply: reply @ Reply::Granted { .. } } => {
                    send(replies, id, reply);
                }
                Output::Reply { id, reply } => later.push((id, reply)),
                Output::Lost { lock, forced } => shared.lose(*now, &lock, forced.as_ref()),
                Output::Unextended { lock, cause } => {
                    shared.losses.note_extend_error(&lock, cause.text());
                }
                Output::Released { lock, is_loss } => {
                    if is_loss {
                        count!("gaggle_locks_lost_total", "cause" => "reported");
                        warn_of(&lock, None);
                    }
                    shared.note_lost(lock.fencing_token());
                    shared.losses.report(&lock, LossCause::Ended, None);
                }
            }
        }
        for (id, reply) in later {
            send(replies, id, reply);
        }
    }

    fn adjust_polling(&mut self, in_flight_before: usize) {
        let awaited = std::mem::take(&mut self.awaited);
        if self.core.in_flight() == 0 {
            self.busy.replied();
        } else if in_flight_before == 0 && awaited {
            self.busy.begin(self.now);
        }
    }

    /// Whether a closing has come to its end: every call has its reply, and the backend agrees.
    fn may_close(&mut self) -> bool {
        let Some(until) = self.core.close_deadline() else { return false };
        (self.now >= until || self.core.pending() == 0) && self.backend.leave(self.now)
    }

    /// Ends the handle: callers that still wait see the senders of the replies dropped.
    pub(super) async fn end(mut self) {
        self.replies.clear();
        // Their callers do not wait for the end of the backend.
        self.mailbox.close_and_drain();
        self.shared.losses.lose_all();
        self.backend.close().await;
    }

    /// The backend, between turns.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The backend, to be polled before a turn.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Why the handle has failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.shared.failure.get()
    }

    /// Whether the handle is closing: a turn must come at [`next_wake`](Self::next_wake).
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.core.close_deadline().is_some()
    }

    /// How many requests are pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.core.pending()
    }
}

impl Shared {
    fn lose(&self, now: Instant, lock: &Lock, forced: Option<&Arc<str>>) {
        self.note_lost(lock.fencing_token());
        let cause = match forced {
            Some(_) => LossCause::Forced,
            // A lock without a deadline is no longer held here: its deadline has passed.
            None if lock.deadline().is_none_or(|deadline| deadline <= now) => LossCause::Deadline,
            None => LossCause::Ended,
        };
        let is_unlogged = self.losses.report(lock, cause, forced);
        if is_unlogged {
            warn_of(lock, forced.map(|note| &**note));
        }
    }

    /// Called before watches are notified: a watch that begins after that sees the loss.
    fn note_lost(&self, token: u64) {
        self.lost_token.fetch_max(token, Ordering::SeqCst);
    }
}

fn send(replies: &mut BTreeMap<CallId, oneshot::Sender<Reply>>, id: CallId, reply: Reply) {
    if let Some(sender) = replies.remove(&id) {
        // A caller whose future was dropped has closed the channel.
        let _ = sender.send(reply);
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").into()
}

/// `forced`: the process and the reason, if it was force-unlocked.
fn warn_of(lost: &Lock, forced: Option<&str>) {
    let (key, token) = (lost.key(), lost.fencing_token());
    tracing::warn!(%key, token, nonce = %lost.nonce(), forced, "lock lost");
}

/// Reports the loss of all locks, also if the driver's task is dropped with its runtime.
impl<B: Backend> Drop for Driver<B> {
    fn drop(&mut self) {
        // First, so that a later watch finds the handle closed.
        self.mailbox.close();
        self.shared.losses.lose_all();
        self.status.send_replace(B::Status::default());
    }
}
