//! A cluster of members in one runtime, over any channel, as a fixture of the suite.

#![allow(dead_code, reason = "every test file uses its part")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use gaggle_channels::{Channel, NodeName};
use gaggle_fixtures::{Faults, FaultyChannel, RedisServer};
use gaggle_strategies::{
    Error, Gaggle, KeyedMutex, MemberOptions, Raft,
    capabilities::Order,
    clock::{BootClock, Clock, TokioClock},
    status::MemberSizes,
    testing::{Fixture, Lacking},
};
use tokio::time::{Instant, sleep, timeout};

use super::connect::{Connect, names};

/// The methods that `Raft` and `Gaggle` have in common besides the trait.
#[async_trait]
pub(crate) trait Member: KeyedMutex {
    async fn start(channel: Arc<dyn Channel>, options: MemberOptions) -> Arc<Self>;
    fn sizes(&self) -> Result<MemberSizes, Error>;
}

macro_rules! member {
    ($strategy:ident) => {
        #[async_trait]
        impl Member for $strategy {
            async fn start(channel: Arc<dyn Channel>, options: MemberOptions) -> Arc<Self> {
                Arc::new(Self::open(channel, options).await.expect("a member can be opened"))
            }

            fn sizes(&self) -> Result<MemberSizes, Error> {
                Self::sizes(self)
            }
        }
    };
}

member!(Raft);
member!(Gaggle);

pub(crate) struct Cluster<S> {
    pub(crate) names: Vec<NodeName>,
    pub(crate) faults: Faults,
    connect: Connect,
    clock: Arc<dyn Clock>,
    /// The server that carries the channel, where it can be stopped as a whole.
    server: Option<Mutex<RedisServer>>,
    pub(crate) slack: Duration,
    real_time: bool,
    /// By the position of the names; `None` where one was stopped.
    members: Mutex<Vec<Option<Arc<S>>>>,
    turn: AtomicUsize,
}

/// How long forming and elections may take in any test here.
const PATIENCE: Duration = Duration::from_secs(20);

impl<S: Member> Cluster<S> {
    /// `size` members in virtual time; they are not started yet.
    pub(crate) fn in_virtual_time(size: usize, connect: Connect) -> Self {
        // An election and a retry's jitter, as the contract bounds them.
        Self::new(size, connect, Arc::new(TokioClock::new()), Duration::from_millis(500))
    }

    /// `size` members in real time; they are not started yet.
    pub(crate) fn in_real_time(size: usize, connect: Connect) -> Self {
        let cluster = Self::new(size, connect, Arc::new(BootClock), Duration::from_secs(3));
        Self { real_time: true, ..cluster }
    }

    fn new(size: usize, connect: Connect, clock: Arc<dyn Clock>, slack: Duration) -> Self {
        Self {
            names: names(size),
            faults: Faults::default(),
            connect,
            clock,
            server: None,
            slack,
            real_time: false,
            members: Mutex::new((0..size).map(|_| None).collect()),
            turn: AtomicUsize::new(0),
        }
    }

    /// Has the backend go down with this server, which carries the channel.
    pub(crate) fn over(mut self, server: RedisServer) -> Self {
        self.server = Some(Mutex::new(server));
        self
    }

    fn server(&self) -> Option<std::sync::MutexGuard<'_, RedisServer>> {
        self.server.as_ref().map(|server| server.lock().expect("no test panics with it"))
    }

    /// Starts every member that does not run and waits until all vote.
    pub(crate) async fn started(self) -> Self {
        self.start_all().await;
        self
    }

    pub(crate) async fn start_all(&self) {
        self.start(0..self.names.len()).await;
        self.all_ready().await;
    }

    /// Starts these members, where they do not run, and does not wait for anything.
    pub(crate) async fn start(&self, which: impl IntoIterator<Item = usize>) {
        for index in which {
            if self.slot(index).is_some() {
                continue;
            }
            let channel = (self.connect)(&self.names[index]);
            let channel = FaultyChannel::new(channel, self.faults.clone());
            let options = MemberOptions::named("test", self.names.clone());
            let options = options.clock(self.clock.clone());
            let member = S::start(Arc::new(channel), options).await;
            self.members()[index] = Some(member);
        }
    }

    /// Ends a member, as a process that stops without a word about its locks.
    pub(crate) async fn stop(&self, index: usize) {
        let member = self.members()[index].take();
        if let Some(member) = member {
            member.close().await;
        }
    }

    pub(crate) async fn stop_all(&self) {
        for index in 0..self.names.len() {
            self.stop(index).await;
        }
    }

    pub(crate) async fn all_ready(&self) {
        for (member, name) in self.running().into_iter().zip(&self.names) {
            let ready = timeout(PATIENCE, member.ready()).await;
            assert!(matches!(ready, Ok(Ok(()))), "{name} has not become ready: {ready:?}");
        }
    }

    pub(crate) fn member(&self, index: usize) -> Arc<S> {
        self.slot(index).expect("the test has not stopped this member")
    }

    pub(crate) fn running(&self) -> Vec<Arc<S>> {
        self.members().iter().flatten().cloned().collect()
    }

    /// Waits until these members agree on a leader that is one of them.
    pub(crate) async fn agreed_leader(&self, among: &[usize]) -> usize {
        let limit = Instant::now() + PATIENCE;
        loop {
            let leader = |&index: &usize| self.member(index).group_status()?.leader;
            let seen: Vec<_> = among.iter().map(leader).collect();
            let same = seen.windows(2).all(|pair| pair[0] == pair[1]);
            let leader = seen[0].as_ref().filter(|_| same);
            let index = leader.and_then(|name| self.names.iter().position(|other| other == name));
            if let Some(index) = index.filter(|index| among.contains(index)) {
                return index;
            }
            assert!(Instant::now() < limit, "no agreement on a leader: {seen:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// All members but this one.
    pub(crate) fn others(&self, index: usize) -> Vec<usize> {
        (0..self.names.len()).filter(|other| *other != index).collect()
    }

    /// Cuts this member off from all others.
    pub(crate) fn isolate(&self, index: usize) {
        self.faults.isolate(&self.names[index]);
    }

    /// The leader that all members agree on.
    pub(crate) async fn leader(&self) -> usize {
        let all: Vec<usize> = (0..self.names.len()).collect();
        self.agreed_leader(&all).await
    }

    fn slot(&self, index: usize) -> Option<Arc<S>> {
        self.members()[index].clone()
    }

    fn members(&self) -> std::sync::MutexGuard<'_, Vec<Option<Arc<S>>>> {
        self.members.lock().expect("no test panics with it")
    }
}

#[async_trait]
impl<S: Member> Fixture for Cluster<S> {
    /// The members in turn.
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        let running = self.running();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        running[turn % running.len()].clone()
    }

    /// Members go on for the next case.
    async fn done(&self, _: Arc<dyn KeyedMutex>) {}

    /// Replaces members that a case has closed.
    async fn settle(&self) {
        self.faults.heal();
        for index in 0..self.names.len() {
            let closed = match self.slot(index) {
                Some(member) => matches!(member.sizes(), Err(Error::Closed)),
                None => false,
            };
            if closed {
                self.stop(index).await;
            }
        }
        self.start_all().await;
    }

    async fn residue(&self) -> Option<u64> {
        let mut residue = 0;
        for member in self.running() {
            let sizes = member.sizes().ok()?;
            residue += sizes.table.keys + sizes.table.waiters + sizes.pending as u64;
        }
        Some(residue)
    }

    fn slack(&self) -> Duration {
        self.slack
    }

    /// Over sockets each key costs two rounds of consensus in a debug build: 10,000 show a leak as
    /// well, and Memory has them all.
    fn keys(&self) -> usize {
        if self.real_time { 10_000 } else { 100_000 }
    }

    /// Each waiter without a queue asks every few milliseconds: a thousand of them over sockets
    /// measure a debug build's throughput and nothing else. Memory has them all.
    fn waiters(&self) -> usize {
        let queue = self.member(0).capabilities().order == Order::Fifo;
        if self.real_time && !queue { 200 } else { 1_000 }
    }

    /// Cuts all links: no member has a quorum.
    async fn backend_down(&self) -> Result<(), Lacking> {
        match self.server() {
            Some(mut server) => server.stop(),
            None => (0..self.names.len()).for_each(|index| self.isolate(index)),
        }
        Ok(())
    }

    async fn backend_up(&self) -> Result<(), Lacking> {
        match self.server() {
            Some(mut server) => server.restart(),
            None => self.faults.heal(),
        }
        Ok(())
    }

    async fn restart_backend(&self) -> Result<(), Lacking> {
        self.stop_all().await;
        self.start_all().await;
        Ok(())
    }

    async fn change_leader(&self) -> Result<(), Lacking> {
        let old = self.leader().await;
        self.isolate(old);
        self.agreed_leader(&self.others(old)).await;
        self.faults.heal();
        self.leader().await;
        Ok(())
    }
}
