//! A granting side that replies as its test says, under a handle and a driver in virtual time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;

use super::{Instant, Owner, Profile};
use crate::{
    client::{
        Client, Driver,
        backend::{Backend, Failure},
        commands::{Command, Copies, Event, ServerState},
    },
    clock::TokioClock,
};

/// The events with which the granting side replies to a command.
type Reply = Box<dyn FnMut(&Command) -> Vec<Event> + Send>;

/// What the granting side was sent, and what it reports next.
#[derive(Clone, Default)]
pub(super) struct Script {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    arrived: AtomicBool,
    waker: AtomicWaker,
}

#[derive(Default)]
struct State {
    commands: Vec<Command>,
    events: Vec<Event>,
    failure: Option<Failure>,
    status: u32,
    next_wake: Option<Instant>,
    /// How many requests were pending after the last turn.
    pending: usize,
    closed: bool,
    close_takes: Duration,
    /// How many turns come without a wait.
    busy_turns: u32,
}

impl Shared {
    fn wake(&self) {
        self.arrived.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

impl Script {
    fn with<T>(&self, of: impl FnOnce(&mut State) -> T) -> T {
        of(&mut self.shared.state.lock().unwrap())
    }

    /// The granting side reports this in the next turn, which comes at once.
    pub(super) fn report(&self, event: Event) {
        self.with(|state| state.events.push(event));
        self.shared.wake();
    }

    /// The granting side fails for good.
    pub(super) fn fail(&self, failure: Failure) {
        self.with(|state| state.failure = Some(failure));
        self.shared.wake();
    }

    pub(super) fn set_status(&self, status: u32) {
        self.with(|state| state.status = status);
        self.shared.wake();
    }

    pub(super) fn wake_at(&self, at: Instant) {
        self.with(|state| state.next_wake = Some(at));
    }

    /// The commands since the last call of this.
    pub(super) fn sent(&self) -> Vec<Command> {
        self.with(|state| std::mem::take(&mut state.commands))
    }

    pub(super) fn pending(&self) -> usize {
        self.with(|state| state.pending)
    }

    pub(super) fn set_close_takes(&self, span: Duration) {
        self.with(|state| state.close_takes = span);
    }

    pub(super) fn set_busy_turns(&self, turns: u32) {
        self.with(|state| state.busy_turns = turns);
        self.shared.wake();
    }

    pub(super) fn busy_turns(&self) -> u32 {
        self.with(|state| state.busy_turns)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.with(|state| state.closed)
    }
}

/// The granting side itself.
pub(super) struct Scripted {
    script: Script,
    profile: Profile,
    reply: Reply,
    replies: Vec<Event>,
}

impl Backend for Scripted {
    type Status = u32;

    fn profile(&self) -> Profile {
        self.profile
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.script.shared.waker.register(context.waker());
        let busy = self.script.with(|state| {
            let busy = state.busy_turns > 0;
            state.busy_turns = state.busy_turns.saturating_sub(1);
            busy
        });
        match self.script.shared.arrived.swap(false, Ordering::SeqCst) || busy {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn take(&mut self, _: Instant, events: &mut Vec<Event>) -> Result<(), Failure> {
        self.script.with(|state| {
            events.append(&mut state.events);
            state.failure.take().map_or(Ok(()), Err)
        })
    }

    fn submit(&mut self, _: Instant, command: Command) -> Copies {
        self.replies.extend((self.reply)(&command));
        self.script.with(|state| state.commands.push(command));
        Copies::One
    }

    fn flush(&mut self, _: Instant, events: &mut Vec<Event>) -> Result<bool, Failure> {
        events.append(&mut self.replies);
        Ok(false)
    }

    fn end_turn(&mut self, _: Instant) {}

    fn next_wake(&self) -> Option<Instant> {
        self.script.with(|state| state.next_wake)
    }

    fn status(&self, pending: usize) -> u32 {
        self.script.with(|state| {
            state.pending = pending;
            state.status
        })
    }

    async fn close(&mut self) {
        tokio::time::sleep(self.script.with(|state| state.close_takes)).await;
        self.script.with(|state| state.closed = true);
    }
}

/// Grants and confirms everything, with the token 41. No key is listed, or found by an inspection.
pub(super) fn obliging(command: &Command) -> Vec<Event> {
    vec![match command {
        Command::Lock { nonce, key, lease, .. } => Event::Granted {
            nonce: *nonce,
            key: key.clone(),
            token: 41,
            waited: Duration::ZERO,
            lease: *lease,
        },
        Command::Unlock { nonce, .. } => Event::Unlocked { nonce: *nonce, held: true },
        Command::Extend { id, nonce, token, .. } => {
            Event::Extended { id: *id, nonce: *nonce, token: Some(*token) }
        }
        Command::Inspect { id, .. } => Event::Inspected { id: *id, found: Ok(None) },
        Command::Scan { id, .. } => Event::Scanned { id: *id, keys: vec![], next: None },
        Command::Check { .. } => return vec![],
    }]
}

/// Replies to nothing.
pub(super) fn silent(_: &Command) -> Vec<Event> {
    vec![]
}

/// A handle whose driver is the caller's to run, and its granting side, which is up.
pub(super) fn assemble(
    profile: Profile,
    reply: impl FnMut(&Command) -> Vec<Event> + Send + 'static,
) -> (Client<Scripted>, Driver<Scripted>, Script) {
    let script = Script::default();
    script.report(Event::Up { state: ServerState::Same });
    let (reply, replies) = (Box::new(reply), Vec::new());
    let backend = Scripted { script: script.clone(), profile, reply, replies };
    let clock = Arc::new(TokioClock::new());
    let (client, driver) = Client::new(backend, clock, Owner::default(), Some(7));
    (client, driver, script)
}

/// The same, with its driver on the current runtime.
pub(super) fn open(
    profile: Profile,
    reply: impl FnMut(&Command) -> Vec<Event> + Send + 'static,
) -> (Client<Scripted>, Script) {
    let (client, driver, script) = assemble(profile, reply);
    tokio::spawn(client.run(driver));
    (client, script)
}
