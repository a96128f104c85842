//! Clients and members that the simulation drives: the handle, the driver and the backend as they
//! ship, without a runtime. The simulation takes each turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use gaggle_channels::{Channel, NodeName};
use gaggle_strategies::{
    KeyedMutex, MemberOptions, RedisOptions,
    client::{Backend, Client, Driver, Failure},
    clock::{Clock, Instant},
    lock::Owner,
    lock_table::LockTable,
    member::{self, Group, GroupView, LogEntry, Policy, RunOptions},
    redis::{self, Dial},
};

/// A driver with its backend, one turn at a time.
pub(super) struct Machine<B: Backend> {
    driver: Driver<B>,
    woken: Arc<Woken>,
}

/// A member of a group.
pub(super) type Member = Machine<member::Backend>;
/// A client of a Redis.
pub(super) type RedisClient = Machine<redis::Backend>;

/// Whether one future of a backend has woken another.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<B: Backend> Machine<B> {
    /// The strategy as users hold it, and its driver. The seed decides all that is generated.
    fn start(
        backend: B,
        clock: Arc<dyn Clock>,
        owner: Owner,
        seed: u64,
    ) -> (Arc<dyn KeyedMutex>, Self) {
        let (client, driver) = Client::new(backend, clock, owner, Some(seed));
        (Arc::new(client), Self { driver, woken: Arc::default() })
    }

    /// Runs one turn. Returns whether it goes on.
    pub(super) fn step(&mut self) -> bool {
        self.driver.step().is_continue()
    }

    /// When the next turn must come although nothing arrives.
    pub(super) fn next_wake(&self) -> Instant {
        self.driver.next_wake()
    }

    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.driver.failure()
    }

    /// How many requests of this process are pending.
    pub(super) fn pending(&self) -> usize {
        self.driver.pending()
    }
}

impl Member {
    /// A member under `policy`.
    pub(super) fn join(
        channel: Arc<dyn Channel>,
        clock: Arc<dyn Clock>,
        options: &MemberOptions,
        policy: Policy,
        run: RunOptions,
    ) -> (Arc<dyn KeyedMutex>, Self) {
        let backend = member::Backend::new(channel, options, policy, &run);
        let backend = backend.expect("the options of a plan are valid");
        Self::start(backend, clock, run.owner, run.seed)
    }

    /// The state of the consensus side, for a failure.
    pub(super) fn forming(&self) -> String {
        format!("{:?}", self.driver.backend().node())
    }

    /// Whether this member votes in a settled group with a leader.
    pub(super) fn is_ready(&self) -> bool {
        self.driver.backend().node().status().ready
    }

    pub(super) fn leader(&self) -> Option<NodeName> {
        self.driver.backend().node().status().leader
    }

    /// How many frames it has dropped.
    pub(super) fn frames_dropped(&self) -> u64 {
        self.driver.backend().node().sizes(0).frames_dropped
    }

    fn group(&self) -> Option<&Group> {
        self.driver.backend().node().group()
    }

    pub(super) fn view(&self) -> Option<GroupView> {
        self.group().map(Group::view)
    }

    pub(super) fn table(&self) -> Option<&LockTable> {
        self.group().map(Group::table)
    }

    /// The entry at `index`, unless it was compacted or does not exist.
    pub(super) fn entry(&self, index: u64) -> Option<LogEntry<'_>> {
        self.group()?.entry(index)
    }

    /// Transfers leadership, if this member leads; whether that has begun.
    pub(super) fn transfer_leadership(&mut self) -> bool {
        self.driver.backend_mut().transfer_leadership()
    }
}

impl RedisClient {
    /// A client of the server that `dial` connects to.
    pub(super) fn connect(
        options: RedisOptions,
        clock: Arc<dyn Clock>,
        dial: Box<dyn Dial>,
        seed: u64,
    ) -> (Arc<dyn KeyedMutex>, Self) {
        let backend = redis::Backend::new(options, Some(dial), seed, clock.now());
        let backend = backend.expect("the options of a plan are valid");
        Self::start(backend, clock, Owner::this_process(None), seed)
    }

    /// Moves the bytes that have arrived, as the wait before a turn does, until nothing more moves.
    pub(super) fn move_bytes(&mut self) {
        let waker = Waker::from(self.woken.clone());
        let context = &mut Context::from_waker(&waker);
        while self.driver.backend_mut().poll_arrived(context).is_pending()
            && self.woken.0.swap(false, Ordering::Relaxed)
        {}
    }

    pub(super) fn is_connected(&self) -> bool {
        self.driver.backend().status(0)
    }
}
