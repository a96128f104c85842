//! A run: nodes and clients start, faults are injected, and at the end every key can be locked.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use gaggle_server::Service;
use gaggle_strategies::{
    Error, HttpOptions, KeyedMutex, Lock, LockOptions, client::Client, clock::Clock as _,
    http::Backend, lock::Owner,
};
use tokio::{
    runtime::Builder,
    task::{AbortHandle, JoinHandle},
    time::{self, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    beliefs::Beliefs,
    channel::Network,
    clock::ProcessClock,
    node::{MAX_TTL, Node},
    plan::Plan,
    stream::{Connections, Wires},
    user::User,
};
use crate::simulator::{
    clock::TRUE_RATE,
    digest::digest,
    process::node_name,
    random::{Random, mixed},
    run::Run,
    totals::Totals,
};

/// How far the rates of clocks are from true time, in millionths.
const DRIFT: u64 = 4_900;
/// Within this time of the end of the faults every key can be locked: a group forms and waits for
/// [`MAX_TTL`], and claims of absent clients end.
const SETTLED: Duration = Duration::from_secs(30);
/// After this time no claim of an absent client waits or holds: twice its `waiting_ttl`, and a lease.
const ABSENT: Duration = Duration::from_secs(2 * 3 + 2);

/// What the parts of a run share.
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) network: Arc<Network>,
    pub(super) connections: Connections,
    nodes: Mutex<Vec<Option<Node>>>,
    beliefs: Mutex<Beliefs>,
    totals: Mutex<Totals>,
    violation: Mutex<Option<String>>,
    begun: time::Instant,
    /// The digest of all that was reached, with its times.
    digest: AtomicU64,
    numbers: AtomicU64,
    calm: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The next number: another one for each process and connection.
    pub(super) fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// The clock of a process that starts now.
    pub(super) fn clock(&self) -> Arc<ProcessClock> {
        let mut random = Random::new(self.plan.seed, 1_000_000 + self.next());
        let rate = random.between(TRUE_RATE - DRIFT, TRUE_RATE + DRIFT);
        Arc::new(ProcessClock::new(self.begun, rate))
    }

    /// Whether the faults are over.
    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Relaxed)
    }

    pub(super) fn reach(&self, what: &'static str) {
        let mut totals = locked(&self.totals);
        totals.events += 1;
        totals.coverage.reach(what);
        let at = u64::try_from(self.begun.elapsed().as_nanos()).expect("centuries");
        let step = digest(what.as_bytes()) ^ at;
        self.digest.fetch_update(Relaxed, Relaxed, |before| Some(mixed(before ^ step))).ok();
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut Totals)) {
        add(&mut locked(&self.totals));
    }

    /// The first violation stays.
    pub(super) fn judge(&self, step: impl FnOnce(&mut Beliefs) -> Result<(), String>) {
        if let Err(violation) = step(&mut locked(&self.beliefs)) {
            self.violate(violation);
        }
    }

    fn violate(&self, violation: String) {
        let at = self.begun.elapsed();
        locked(&self.violation).get_or_insert(format!("{violation}, after {at:?}"));
    }

    /// An operator begins to end a grant, or knows that it has ended.
    pub(super) fn force(&self, key: &str, token: u64, has_ended: bool) {
        locked(&self.beliefs).force(key, token, has_ended);
    }

    /// Whether an operator knows that the lock has ended.
    pub(super) fn has_ended(&self, lock: &Lock) -> bool {
        locked(&self.beliefs).has_ended(lock)
    }

    /// A user stops relying on its lock.
    pub(super) fn end(&self, lock: &Lock) {
        locked(&self.beliefs).end(lock);
    }

    /// The server of a node that runs, and the end of its process.
    pub(super) fn server(&self, node: usize) -> Option<(Service, CancellationToken)> {
        let nodes = locked(&self.nodes);
        nodes[node].as_ref().map(|node| (node.service.clone(), node.ended.clone()))
    }

    fn start_node(self: &Arc<Self>, number: usize) {
        let node = Node::start(self, number);
        locked(&self.nodes)[number] = Some(node);
    }

    /// Takes a node, unless another does not run: a majority stays.
    fn take_node(&self, number: usize) -> Option<Node> {
        let mut nodes = locked(&self.nodes);
        let all = nodes.iter().all(Option::is_some);
        nodes[number].take_if(|_| all)
    }
}

/// A client process.
struct Process {
    number: u64,
    strategy: Arc<dyn KeyedMutex>,
    ended: CancellationToken,
    driver: AbortHandle,
    users: Vec<JoinHandle<()>>,
}

impl Process {
    fn start(shared: &Arc<Shared>, users: usize) -> Self {
        let (number, clock, ended) = (shared.next(), shared.clock(), CancellationToken::new());
        let seed = mixed(mixed(shared.plan.seed) ^ mixed(number << 32));
        let limit = Duration::from_secs(1);
        let options = HttpOptions::new((0..shared.plan.nodes).map(|node| format!("node-{node}:1")))
            .clock(clock.clone())
            .request_timeout(limit)
            .connect_timeout(limit);
        let dial = Wires { shared: shared.clone(), process: ended.clone() };
        let backend = Backend::new(options, Some(Box::new(dial)), seed, clock.now());
        let backend = backend.expect("the options are valid");
        let owner = Owner { host: format!("client {number}"), pid: 0, label: None };
        let (client, driver) = Client::new(backend, clock.clone(), owner, Some(seed));
        let driver = tokio::spawn(client.run(driver)).abort_handle();
        let strategy: Arc<dyn KeyedMutex> = Arc::new(client);
        let users = (0..users).map(|_| {
            let random = Random::new(shared.plan.seed, 2_000_000 + shared.next());
            let (shared, strategy) = (shared.clone(), strategy.clone());
            let user = User { process: number, shared, strategy, clock: clock.clone(), random };
            tokio::spawn(user.run())
        });
        let users = users.collect();
        Self { number, strategy, ended, driver, users }
    }

    /// Ends the process without any clean-up.
    fn kill(&self, shared: &Shared) {
        self.users.iter().for_each(JoinHandle::abort);
        self.driver.abort();
        self.ended.cancel();
        locked(&shared.beliefs).forget(self.number);
    }
}

/// Runs the plan of a seed.
///
/// A broken invariant is returned, not thrown.
///
/// # Panics
///
/// If the runtime cannot start.
#[must_use]
pub fn simulate_claims(seed: u64) -> Run {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    runtime.block_on(async {
        let plan = Plan::generate(seed);
        let text = format!("{plan:?}");
        let shared = Arc::new(Shared {
            network: Network::new(seed, plan.delay),
            connections: Connections::default(),
            nodes: Mutex::new((0..plan.nodes).map(|_| None).collect()),
            beliefs: Mutex::default(),
            totals: Mutex::default(),
            violation: Mutex::default(),
            begun: time::Instant::now(),
            digest: AtomicU64::new(seed),
            numbers: AtomicU64::new(0),
            calm: AtomicBool::new(false),
            plan,
        });
        let settled_after = run(&shared).await;
        let mut totals = std::mem::take(&mut *locked(&shared.totals));
        totals.virtual_time = shared.begun.elapsed();
        let violation = locked(&shared.violation).take();
        let digest = shared.digest.load(Relaxed);
        let plan = text;
        Run { seed, claims: true, plan, violation, settled_after, totals, digest, ..Run::default() }
    })
}

async fn run(shared: &Arc<Shared>) -> Duration {
    let plan = &shared.plan;
    (0..plan.nodes).for_each(|node| shared.start_node(node));
    let mut clients: Vec<_> =
        (0..plan.clients).map(|_| Process::start(shared, plan.users)).collect();
    // A new group grants nothing for the longest lease.
    sleep(MAX_TTL).await;
    let over = time::Instant::now() + plan.chaos;
    let mut random = Random::new(plan.seed, 13);
    while time::Instant::now() < over {
        let step = Duration::from_millis(random.between(1, 100));
        sleep(step).await;
        let mut is_due = |mean: Option<Duration>| {
            mean.is_some_and(|mean| {
                let ppm = step.as_nanos() * 1_000_000 / mean.as_nanos();
                random.chance(u64::try_from(ppm).unwrap_or(u64::MAX))
            })
        };
        let faults = &plan.faults;
        let [kill, close, isolate, die, cut] =
            [faults.kill, faults.close, faults.isolate, faults.die, faults.cut].map(&mut is_due);
        let number = random.index(plan.nodes);
        let down = Duration::from_millis(random.between(0, 1_500));
        if (kill || close)
            && let Some(node) = shared.take_node(number)
        {
            shared.reach(if kill { "node killed" } else { "node closed" });
            let shared = shared.clone();
            tokio::spawn(async move {
                if kill {
                    node.kill();
                } else {
                    node.close().await;
                }
                sleep(down).await;
                shared.start_node(number);
            });
        } else if isolate {
            shared.reach("member isolated");
            shared.network.isolate(&node_name(number));
            let network = shared.network.clone();
            tokio::spawn(async move {
                sleep(down).await;
                network.heal();
            });
        }
        if die {
            shared.reach("client died");
            let place = random.index(clients.len());
            clients[place].kill(shared);
            clients[place] = Process::start(shared, plan.users);
        }
        if cut && shared.connections.cut(random.index(64)) {
            shared.reach("connection cut");
        }
    }
    shared.calm.store(true, Relaxed);
    settle(shared, clients).await
}

/// Waits for the users, then locks every key. Returns how long that took.
async fn settle(shared: &Arc<Shared>, clients: Vec<Process>) -> Duration {
    let began = time::Instant::now();
    for mut client in clients {
        for user in client.users.drain(..) {
            let limit = SETTLED + Duration::from_millis(shared.plan.wait_max);
            match timeout(limit, user).await {
                Ok(Ok(())) => {}
                Ok(Err(panic)) => shared.violate(format!("a user has panicked: {panic}")),
                Err(_) => shared.violate(format!("a call of client {} hangs", client.number)),
            }
        }
        client.kill(shared);
    }
    sleep(ABSENT).await;
    let probe = Process::start(shared, 0);
    for key in 1..=shared.plan.keys {
        if let Err(error) = lock_free(&*probe.strategy, &format!("key {key}")).await {
            shared.violate(format!("key {key} cannot be locked when all is calm: {error}"));
        }
    }
    began.elapsed()
}

/// Locks a key that will be free, and then, as it is free, by one attempt.
async fn lock_free(strategy: &dyn KeyedMutex, key: &str) -> Result<Lock, Error> {
    let options = LockOptions::default().duration(MAX_TTL / 2);
    let waited = strategy.lock(key, options.clone().max_wait(SETTLED)).await?;
    strategy.unlock(&waited).await?;
    strategy.lock(key, options.max_wait(Duration::ZERO)).await
}
