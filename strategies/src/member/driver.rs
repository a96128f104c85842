use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    time::Duration,
};

use gaggle_channels::{Channel, Received};
use tokio::{
    sync::{oneshot, watch},
    task::yield_now,
};

use super::{
    group::GroupError,
    handle::{MemberSizes, REQUESTS},
    mailbox::{self, Mail},
    node::{Node, Output, Status},
    requests::{Answer, Call, CallerId, LockCall},
};
use crate::{
    Clock, Error, Holds, Instant, Lock,
    spin::{Spin, Vigil},
};

/// How much of each queue one turn takes: enough to gather a batch, little enough to stay prompt.
const BATCH: usize = 512;
/// After a stall, the engine is fed at most this many of the ticks it missed, beyond those that were
/// slept over on purpose: a leader must not
/// depose itself, nor a follower campaign, because its own process stood still.
const TICKS_AT_ONCE: u32 = 3;
/// How long a leader that closes tries to pass leadership on.
const HAND_OVER: Duration = Duration::from_millis(100);

/// Why a member stopped.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the member stopped: {0}")]
    Group(#[source] GroupError),
    #[error("the member stopped on a broken invariant: {0}")]
    Panic(String),
}

/// One task per member: gathers what waits, runs one turn of the node, sends what came out.
pub(super) struct Driver {
    pub(super) node: Node,
    pub(super) channel: Arc<dyn Channel>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) mailbox: mailbox::Receiver,
    pub(super) pending_max: usize,
    pub(super) tick: Duration,
    pub(super) request_timeout: Duration,
    pub(super) status: watch::Sender<Status>,
    pub(super) holds: Holds,
    pub(super) failure: Arc<OnceLock<Failure>>,
    pub(super) replies: BTreeMap<CallerId, oneshot::Sender<Answer>>,
    /// The newest reading of the clock.
    pub(super) now: Instant,
    pub(super) next_tick: Instant,
    pub(super) closing: Option<Closing>,
    /// Frames and requests since others last had their turn.
    pub(super) taken: usize,
    pub(super) spin: Spin,
    /// A caller that waits for the answer has asked in this turn.
    pub(super) awaited: bool,
    /// While it stays awake for an answer.
    pub(super) vigil: Option<Vigil>,
}

/// A member that is closing.
pub(super) struct Closing {
    until: Instant,
    handed_over: bool,
    /// Whoever closes.
    done: Vec<oneshot::Sender<()>>,
}

impl Driver {
    /// Runs until closed, until every handle is gone, or until the member fails.
    pub(super) async fn run(mut self) {
        let clock = self.clock.clone();
        // Kept over turns that leave the time of the next waking as it is: nearly all.
        let mut wake = self.next_wake();
        let mut sleep = Some(clock.sleep_until(wake));
        loop {
            let next = self.next_wake();
            if next != wake || sleep.is_none() {
                (wake, sleep) = (next, Some(clock.sleep_until(next)));
            }
            let slept = sleep.as_mut().expect("it was just made");
            let mut first = None;
            tokio::select! {
                biased;
                received = self.channel.receive() => match received {
                    Some(received) => first = Some(Arrived::Frame(received)),
                    None => break self.fail(Failure::Panic("the channel was disconnected".into())),
                },
                mail = self.mailbox.recv() => match mail {
                    Some(mail) => first = Some(Arrived::Mail(mail)),
                    None => break,
                },
                () = slept => sleep = None,
                () = yield_now(), if self.vigil.is_some() => {
                    self.watch();
                    continue;
                }
            }
            if self.step(first) == Next::End {
                break;
            }
            if self.taken >= BATCH {
                self.taken = 0;
                // Under load there is always more, and this task would keep its thread; whoever it
                // has woken last, the driver of another member perhaps, waits for that very thread.
                yield_now().await;
            }
        }
        self.end().await;
    }

    /// When a turn must come although nothing arrives. Not before a millisecond: what is due and
    /// cannot be done yet must not spin.
    pub(super) fn next_wake(&self) -> Instant {
        let due = self.node.next_wake().map(|at| self.in_a_millisecond(at));
        let tick = self.next_tick.after(self.tick * self.quiet_ticks());
        let closing = self.closing.as_ref();
        let end = closing.map_or(tick, |closing| self.in_a_millisecond(closing.until).min(tick));
        due.map_or(end, |at| at.min(end))
    }

    /// This time, or a millisecond from now where that is later. The clock is not read for a time that is
    /// well ahead of the turn: nearly all.
    fn in_a_millisecond(&self, at: Instant) -> Instant {
        const SOONEST: Duration = Duration::from_millis(1);
        if at > self.now.after(SOONEST) { at } else { at.max(self.clock.now().after(SOONEST)) }
    }

    /// How many ticks may be slept over.
    fn quiet_ticks(&self) -> u32 {
        if self.closing.is_some() { 0 } else { self.node.quiet_ticks() }
    }

    /// One turn and its deliveries: everything between two waits. `first` is what ended the wait.
    pub(super) fn step(&mut self, first: Option<Arrived>) -> Next {
        let asked = self.node.unanswered();
        match self.turn(first) {
            Ok(outputs) => self.deliver(outputs),
            Err(failure) => {
                self.fail(failure);
                return Next::End;
            }
        }
        self.attend(asked);
        if self.is_closed() { Next::End } else { Next::Wait }
    }

    /// Begins to stay awake, or ends it: `asked` requests were unanswered before this turn.
    fn attend(&mut self, asked: usize) {
        let unanswered = self.node.unanswered();
        let awaited = std::mem::take(&mut self.awaited);
        if unanswered == 0 {
            if self.vigil.take().is_some() {
                self.spin.ended(true);
            }
        } else if asked == 0 && awaited {
            self.vigil = self.spin.begin(self.clock.now());
        }
    }

    /// Nothing has come yet.
    fn watch(&mut self) {
        self.now = self.clock.now();
        if self.vigil.as_mut().is_some_and(|vigil| !vigil.goes_on(self.now)) {
            self.vigil = None;
            self.spin.ended(false);
        }
    }

    pub(super) async fn end(mut self) {
        // Whoever still waits for an answer sees its sender go.
        self.replies.clear();
        self.holds.lose_all();
        self.channel.disconnect().await;
        if let Some(closing) = self.closing.take() {
            for done in closing.done {
                let _ = done.send(());
            }
        }
    }

    /// One turn. The engine panics on broken invariants: that ends this member and nothing else.
    fn turn(&mut self, first: Option<Arrived>) -> Result<Vec<Output>, Failure> {
        let turn = AssertUnwindSafe(|| {
            let slept = self.gather(first);
            // Read after the last request was taken (contract, rule 3).
            self.now = self.clock.now();
            self.run_ticks(self.now, slept);
            self.node.flush(self.now)
        });
        match catch_unwind(turn) {
            Ok(outputs) => outputs.map_err(Failure::Group),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(Failure::Panic(text.unwrap_or("a panic without a message").into()))
            }
        }
    }

    /// Takes what has arrived. Returns whether ticks had been slept over.
    fn gather(&mut self, first: Option<Arrived>) -> bool {
        let now = self.clock.now();
        let slept = self.run_quiet_ticks(now);
        match first {
            Some(Arrived::Frame(received)) => self.take_frame(now, received),
            Some(Arrived::Mail(mail)) => self.take_mail(now, mail),
            None => {}
        }
        for _ in 0..BATCH {
            let Some(received) = self.channel.try_receive() else { break };
            self.take_frame(now, received);
        }
        // A request's deadline counts from before it was sent: its own time, not the turn's.
        for _ in 0..BATCH {
            let Some(mail) = self.mailbox.try_recv() else { break };
            self.take_mail(now, mail);
        }
        slept
    }

    fn take_frame(&mut self, now: Instant, received: Received) {
        self.taken += 1;
        match received {
            Received::Frame { from, frame } => self.node.receive(now, &from, &frame),
            Received::Down { peer: Some(peer) } => self.node.unreachable(&peer),
            Received::Down { peer: None } | Received::Up { .. } => {}
        }
    }

    fn take_mail(&mut self, now: Instant, mail: Mail) {
        self.taken += 1;
        match mail {
            Mail::Call { call, reply } => self.take_call(now, call, reply),
            Mail::Inspect { key, reply } => {
                let _ = reply.send(self.node.inspect(&key));
            }
            Mail::Sizes { reply } => {
                let (table, log) = self.node.sizes();
                let pending = self.node.pending();
                let (frames_dropped, overlong) = (self.node.frames_dropped(), self.node.overlong());
                let _ = reply.send(MemberSizes { table, log, pending, frames_dropped, overlong });
            }
            Mail::Recheck { lock } => {
                if !self.node.holds(&lock) {
                    self.lose(&lock);
                }
            }
            Mail::Close { unlock, done } => {
                self.node.withdraw_all(now);
                self.replies.clear();
                let until = now.after(self.request_timeout);
                for lock in unlock {
                    let (key, nonce) = (lock.key().clone(), lock.nonce());
                    self.node.call(now, Call::Unlock { caller: None, key, nonce, until });
                }
                let fresh = || Closing { until, handed_over: false, done: Vec::new() };
                // A second one waits for the first, and no longer.
                self.closing.get_or_insert_with(fresh).done.push(done);
            }
        }
    }

    fn take_call(&mut self, now: Instant, call: Call, reply: Option<oneshot::Sender<Answer>>) {
        let asks = match &call {
            Call::Lock { caller, .. } | Call::Extend { caller, .. } => Some((*caller, true)),
            Call::Unlock { caller, .. } => caller.map(|caller| (caller, false)),
            Call::Cancel { caller, .. } | Call::GiveUp { caller } => {
                self.replies.remove(caller);
                None
            }
        };
        if self.closing.is_some() && matches!(call, Call::Lock { .. } | Call::Extend { .. }) {
            // Its caller sees the sender of its answer go.
            return;
        }
        // Unlocks and withdrawals are never refused: they make room.
        let refusable = matches!(asks, Some((_, true)));
        if refusable && self.node.pending() >= self.pending_max {
            let limit = self.pending_max as u64;
            if let Some(reply) = reply {
                let _ = reply.send(Answer::Limit { what: REQUESTS, limit });
            }
            // It may have been asked before, and refused, and a copy of its LOCK be under way.
            if let Call::Lock { caller, lock: LockCall { key, nonce, .. } } = call {
                self.node.call(now, Call::Cancel { caller, key, nonce });
            }
            return;
        }
        if let (Some((caller, _)), Some(reply)) = (asks, reply) {
            self.awaited = true;
            self.replies.insert(caller, reply);
        }
        self.node.call(now, call);
    }

    /// How many ticks are due.
    fn ticks_due(&self, now: Instant) -> u32 {
        if now < self.next_tick {
            return 0;
        }
        let missed = now.since(self.next_tick).as_nanos() / self.tick.as_nanos();
        u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// The ticks that were slept over on purpose, before what arrived meanwhile is looked at: a
    /// frame of the leader must set back the count of the time that passed before it. Returns
    /// whether there were any.
    fn run_quiet_ticks(&mut self, now: Instant) -> bool {
        let ticks = self.ticks_due(now).min(self.quiet_ticks());
        if ticks > 0 {
            self.node.count(now, ticks);
            self.next_tick = self.next_tick.after(self.tick * ticks);
        }
        ticks > 0
    }

    fn run_ticks(&mut self, now: Instant, slept: bool) {
        let ticks = self.ticks_due(now);
        if ticks == 0 {
            if slept {
                self.node.attend(now);
            }
            return;
        }
        for _ in 0..ticks.min(TICKS_AT_ONCE) {
            self.node.tick(now, self.clock.wall_nanos());
        }
        let next = self.next_tick.after(self.tick * ticks.min(TICKS_AT_ONCE));
        self.next_tick = if next > now { next } else { now.after(self.tick) };
    }

    fn deliver(&mut self, mut outputs: Vec<Output>) {
        // Before losses are told: whoever begins to watch after that sees what was lost.
        let status = self.node.status();
        self.status.send_if_modified(|shown| {
            let changed = *shown != status;
            if changed {
                *shown = status;
            }
            changed
        });
        for output in outputs.drain(..) {
            let sent = match output {
                Output::Send { to, frame } => self.channel.send(&to, frame),
                Output::Broadcast { frame } => self.channel.broadcast(frame),
                Output::Answer { caller, answer } => {
                    // A caller that has gone sends its own cancellation.
                    if let Some(reply) = self.replies.remove(&caller) {
                        let _ = reply.send(answer);
                    }
                    Ok(())
                }
                Output::Lost { lock } => {
                    self.lose(&lock);
                    Ok(())
                }
                Output::Ended { lock } => {
                    self.holds.lose(lock.key(), lock.nonce(), lock.fencing_token());
                    Ok(())
                }
                Output::LostAll => {
                    self.holds.lose_all().iter().for_each(warn_of);
                    Ok(())
                }
            };
            if let Err(error) = sent {
                tracing::debug!(%error, "a frame was not sent");
            }
        }
        self.node.give_back(outputs);
    }

    fn lose(&self, lock: &Lock) {
        if self.holds.lose(lock.key(), lock.nonce(), lock.fencing_token()) {
            warn_of(lock);
        }
    }

    /// Whether a closing has come to its end: all is answered, and leadership passed on.
    fn is_closed(&mut self) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        let now = self.clock.now();
        if self.node.pending() > 0 && now < closing.until {
            return false;
        }
        if !self.node.status().leads {
            return true;
        }
        if !closing.handed_over {
            closing.handed_over = true;
            closing.until = now.after(HAND_OVER);
            self.node.transfer_leadership();
            return false;
        }
        now >= closing.until
    }

    fn fail(&mut self, failure: Failure) {
        tracing::error!(error = %failure, "member failed");
        let _ = self.failure.set(failure);
    }
}

fn warn_of(lost: &Lock) {
    tracing::warn!(nonce = %lost.nonce(), "lock lost");
}

/// Also where the driver's task is dropped, with its runtime or by a panic: nobody would tell the
/// guards that the group has gone on without this member.
impl Drop for Driver {
    fn drop(&mut self) {
        // First: who begins to watch from now on finds it closed.
        self.mailbox.close();
        self.holds.lose_all();
        self.status.send_replace(Status::default());
    }
}

/// What ended a wait.
#[derive(Debug)]
pub(super) enum Arrived {
    Frame(Received),
    Mail(Mail),
}

/// What follows a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    End,
}

impl Failure {
    pub(super) fn to_error(&self) -> Error {
        Error::Failed { source: self.to_string().into() }
    }
}
