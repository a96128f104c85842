//! Goal: a key that is passed on in a process is nobody else's meanwhile, and its tokens rise
//! (contract, rules 1, 2 and 5), whatever becomes of what is sent.
//! Method: the waiters of two processes and a server that does what the scripts do, with commands and
//! answers that come in any order, late, twice or not at all, leases and waits that run out, processes
//! that fall silent, callers that go, and unlocks of what was unlocked before. After each step at most
//! one caller believes that it holds the key, and either the server would extend its lease or the process knows
//! that it is ahead of the server.

mod server;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use server::{Command, Reply, Server};

use super::*;
use crate::redis::{
    keys,
    reply::Found,
    waiters::entry::{CallerId, Request},
};

const TASKS: usize = 5;

fn at(time: u64) -> Instant {
    Instant::from_origin(Duration::from_millis(time))
}

/// What a task is about.
#[derive(Default)]
enum Task {
    #[default]
    Idle,
    Waiting {
        id: CallerId,
        request: Arc<Request>,
    },
    Holding {
        request: Arc<Request>,
        deadline: Instant,
    },
}

/// One handle, with what its relay has not sent yet.
struct Process {
    waiters: Waiters<usize>,
    tasks: [Task; TASKS],
    unsent: Vec<Nonce>,
}

/// What is under way.
enum Message {
    Command(usize, Command),
    Reply(usize, Reply),
}

struct World {
    rng: StdRng,
    now: u64,
    server: Server,
    processes: [Process; 2],
    under_way: Vec<Message>,
    /// How often the first process is at work, and how fast time goes.
    first: f64,
    pace: u64,
    nonces: u128,
    /// The token of the last that believed to hold the key.
    token: u64,
    held: Vec<Nonce>,
    /// Nonces that another process unlocked when they held the key: whoever gets them is told late.
    ended: Vec<Nonce>,
    passed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let drift = Drift::from_ppm(0).unwrap();
        let process = || Process {
            waiters: Waiters::new(drift, Duration::from_millis(server::WAITER_TTL)),
            tasks: Default::default(),
            unsent: Vec::new(),
        };
        let mut rng = StdRng::seed_from_u64(seed);
        Self {
            first: *[0.5, 0.8, 0.95].choose(&mut rng).unwrap(),
            pace: *[1, 2, 10].choose(&mut rng).unwrap(),
            rng,
            now: 1_000,
            server: Server::default(),
            processes: [process(), process()],
            under_way: Vec::new(),
            nonces: 0,
            token: 0,
            held: Vec::new(),
            ended: Vec::new(),
            passed: 0,
        }
    }

    fn step(&mut self) {
        let process = usize::from(!self.rng.random_bool(self.first));
        let task = self.rng.random_range(0..TASKS);
        match self.rng.random_range(0..100) {
            0..24 => self.act(process, task),
            24..25 => self.withdraw(process, task),
            25..26 => {
                // Somebody who was given the lock unlocks it, or it is unlocked once more.
                if let Some(&nonce) = self.held.choose(&mut self.rng) {
                    let tasks = self.processes.iter_mut().flat_map(|process| &mut process.tasks);
                    for task in tasks {
                        if matches!(task, Task::Holding { request, .. } if request.nonce == nonce) {
                            *task = Task::Idle;
                        }
                    }
                    self.unlock(process, nonce);
                }
            }
            26..27 => self.give_up_elsewhere(process),
            27..34 => self.relay(process),
            34..37 => self.poll(process),
            37..90 => self.deliver(),
            90..99 => self.now += self.rng.random_range(0..=self.pace),
            _ => self.now += self.rng.random_range(0..=20 * self.pace),
        }
        self.check();
    }

    fn check(&self) {
        let now = at(self.now);
        let mut holders = 0;
        for process in &self.processes {
            for task in &process.tasks {
                let Task::Holding { request, deadline } = task else { continue };
                let nonce = request.nonce;
                if now < *deadline && !self.ended.contains(&nonce) {
                    holders += 1;
                    let bucket = keys::bucket("k");
                    let ahead = process.waiters.is_ahead("k", bucket, nonce, now);
                    assert!(
                        self.server.holds(nonce) || ahead,
                        "an extend would be refused for good"
                    );
                }
            }
        }
        assert!(holders <= 1, "two hold the key");
    }

    /// Asks for the key, or gives it back.
    fn act(&mut self, process: usize, task: usize) {
        let now = at(self.now);
        match std::mem::take(&mut self.processes[process].tasks[task]) {
            Task::Idle => {
                self.nonces += 1;
                let request = Arc::new(Request {
                    key: "k".into(),
                    bucket: keys::bucket("k"),
                    nonce: Nonce::from_u128(self.nonces),
                    given: self.rng.random_bool(0.1),
                    duration: Duration::from_millis(*[8, 40, 400].choose(&mut self.rng).unwrap()),
                    owner: "1 host -".into(),
                });
                let waiters = &mut self.processes[process].waiters;
                let id = waiters.join(&request, now, None, task).unwrap();
                waiters.asking(&request, id).unwrap();
                self.ask(process, &request);
                self.processes[process].tasks[task] = Task::Waiting { id, request };
            }
            waiting @ Task::Waiting { .. } => self.processes[process].tasks[task] = waiting,
            Task::Holding { request, .. } => self.unlock(process, request.nonce),
        }
    }

    fn ask(&mut self, process: usize, request: &Request) {
        let lock = server::Lock {
            nonce: request.nonce,
            heir: !request.given,
            duration: u64::try_from(request.duration.as_millis()).unwrap(),
            wait: self.rng.random_range(1..200),
        };
        self.send(process, Command::Lock(lock));
    }

    /// As the handle does it.
    fn unlock(&mut self, process: usize, nonce: Nonce) {
        let (now, bucket) = (at(self.now), keys::bucket("k"));
        let waiters = &mut self.processes[process].waiters;
        if let Some(effects) = waiters.pass("k", bucket, nonce, now) {
            self.passed += 1;
            self.processes[process].unsent.push(nonce);
            self.tell(process, effects);
        } else {
            self.send_unlocks(process, vec![nonce]);
        }
    }

    fn send_unlocks(&mut self, process: usize, nonces: Vec<Nonce>) {
        let known = self.processes[process].waiters.known("k", keys::bucket("k"));
        self.send(process, Command::Unlock { nonces, known, sent: self.now });
    }

    fn send(&mut self, process: usize, command: Command) {
        self.under_way.push(Message::Command(process, command));
    }

    /// The relay sends what was passed on; perhaps again, because no answer came.
    fn relay(&mut self, process: usize) {
        let unsent = self.processes[process].unsent.clone();
        if unsent.is_empty() {
            return;
        }
        if self.rng.random_bool(0.7) {
            self.processes[process].unsent.clear();
        }
        self.send_unlocks(process, unsent);
    }

    /// A caller goes.
    fn withdraw(&mut self, process: usize, task: usize) {
        let state = std::mem::take(&mut self.processes[process].tasks[task]);
        if let Task::Waiting { id, request } = state {
            self.leave(process, id, &request);
        } else {
            self.processes[process].tasks[task] = state;
        }
    }

    /// A process that knows a nonce with which another waits wants it no more.
    fn give_up_elsewhere(&mut self, process: usize) {
        let given = self.processes[1 - process].tasks.iter().find_map(|task| match task {
            Task::Waiting { request, .. } if request.given => Some(request.nonce),
            _ => None,
        });
        if let Some(nonce) = given {
            self.send_unlocks(process, vec![nonce]);
        }
    }

    fn leave(&mut self, process: usize, id: CallerId, request: &Request) {
        let withdrawal = self.processes[process].waiters.leave(request, id, false);
        if let Some(withdrawal) = withdrawal {
            if withdrawal.copies {
                self.send_unlocks(process, vec![request.nonce]);
            } else {
                self.unlock(process, request.nonce);
            }
        }
    }

    /// Asks after all that wait.
    fn poll(&mut self, process: usize) {
        let waiters = &mut self.processes[process].waiters;
        waiters.poll_all(at(self.now));
        let due = waiters.due(at(self.now)).map(|(_, waiting)| waiting).unwrap_or_default();
        if !due.is_empty() {
            let nonces = due.iter().map(|waiting| waiting.request.nonce).collect();
            self.send(process, Command::Poll(nonces));
        }
    }

    fn deliver(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        // Mostly in their order.
        let count = self.under_way.len();
        let place = if self.rng.random_bool(0.8) { 0 } else { self.rng.random_range(0..count) };
        let message = self.under_way.remove(place);
        if self.rng.random_bool(0.03) {
            // Lost. What is not unlocked is sent again by whoever unlocked it.
            if let Message::Command(process, Command::Unlock { nonces, .. }) = message {
                self.processes[process].unsent.extend(nonces);
            }
            return;
        }
        match message {
            Message::Command(process, command) => {
                if self.rng.random_bool(0.05) && matches!(command, Command::Unlock { .. }) {
                    self.send(process, command.clone());
                }
                if let Command::Unlock { nonces, .. } = &command {
                    self.end_elsewhere(process, nonces);
                }
                let replies = self.server.run(self.now, process, command);
                for (to, reply) in replies {
                    self.under_way.push(Message::Reply(to, reply));
                }
            }
            Message::Reply(process, reply) => self.hear(process, reply),
        }
    }

    /// A nonce that another process uses as well is unlocked while it holds the key.
    fn end_elsewhere(&mut self, process: usize, nonces: &[Nonce]) {
        let given = |task: &Task| match task {
            Task::Waiting { request, .. } | Task::Holding { request, .. } => {
                request.given && nonces.contains(&request.nonce)
            }
            Task::Idle => false,
        };
        if self.processes[1 - process].tasks.iter().any(given) {
            self.ended.extend(nonces.iter().filter(|nonce| self.server.holds(**nonce)));
        }
    }

    fn hear(&mut self, process: usize, reply: Reply) {
        let (now, bucket) = (at(self.now), keys::bucket("k"));
        match reply {
            Reply::Granted { nonce, token } => {
                let Some((id, task, request)) = self.waiting(process, nonce) else { return };
                let waiters = &mut self.processes[process].waiters;
                waiters.settled(&request);
                let (grant, effects) = waiters.granted_at_once(&request, token, now);
                self.tell(process, effects);
                // One that was queueing again is among those who are told.
                if let Some(grant) = grant
                    && self.waiting(process, nonce).is_some()
                {
                    self.take(process, task, (id, request), grant);
                }
            }
            Reply::Queued { nonce } => {
                let Some((id, task, request)) = self.waiting(process, nonce) else { return };
                let waiters = &mut self.processes[process].waiters;
                waiters.settled(&request);
                let (overtaken, _) = waiters.park(&request, id, Duration::from_millis(5), now, 0.5);
                if let Some(grant) = overtaken {
                    self.take(process, task, (id, request), grant);
                }
            }
            Reply::Told { granted, heirs, sent } => {
                let waiters = &mut self.processes[process].waiters;
                let effects = match heirs {
                    Some(heirs) => {
                        let line = (&Arc::from("k"), bucket);
                        waiters.granted_in_line(line, granted, heirs, at(sent), now)
                    }
                    None => waiters.granted(bucket, granted, now),
                };
                self.tell(process, effects);
            }
            Reply::Found(found) => {
                for (nonce, found) in found {
                    let unknown = found == Found::Unknown;
                    let waiters = &mut self.processes[process].waiters;
                    let effects = waiters.found(bucket, nonce, found, now, 0.5);
                    self.tell(process, effects);
                    if unknown && let Some((_, _, request)) = self.waiting(process, nonce) {
                        let again = self.processes[process].waiters.queueing_again(&request);
                        if again.is_some() {
                            self.ask(process, &request);
                        }
                    }
                }
            }
        }
    }

    fn waiting(&self, process: usize, nonce: Nonce) -> Option<(CallerId, usize, Arc<Request>)> {
        let tasks = self.processes[process].tasks.iter().enumerate();
        tasks
            .filter_map(|(task, state)| match state {
                Task::Waiting { id, request } if request.nonce == nonce => {
                    Some((*id, task, request.clone()))
                }
                _ => None,
            })
            .next()
    }

    fn tell(&mut self, process: usize, effects: Effects<usize>) {
        for (task, outcome) in effects {
            let state = std::mem::take(&mut self.processes[process].tasks[task]);
            let Task::Waiting { id, request } = state else { panic!("told without waiting") };
            match outcome {
                Outcome::Granted(grant) => self.take(process, task, (id, request), grant),
                _ => self.leave(process, id, &request),
            }
        }
    }

    /// A caller gets its grant, and counts on it if enough of it is left.
    fn take(
        &mut self,
        process: usize,
        task: usize,
        (id, request): (CallerId, Arc<Request>),
        grant: Grant,
    ) {
        self.processes[process].tasks[task] = Task::Idle;
        if !lasts(grant.deadline, at(self.now), request.duration) || self.rng.random_bool(0.05) {
            return self.leave(process, id, &request);
        }
        self.processes[process].waiters.leave(&request, id, true);
        if !self.ended.contains(&request.nonce) {
            assert!(grant.token > self.token, "{} after {}", grant.token, self.token);
            self.token = grant.token;
        }
        self.held.push(request.nonce);
        if self.held.len() > 4 {
            self.held.remove(0);
        }
        self.processes[process].tasks[task] = Task::Holding { request, deadline: grant.deadline };
        self.check();
    }
}

#[test]
fn a_key_that_is_passed_on_is_nobody_elses() {
    let first = std::env::var("GAGGLE_SEED")
        .map_or_else(|_| rand::random::<u32>().into(), |seed| seed.parse().expect("a number"));
    let runs = std::env::var("GAGGLE_RUNS").map_or(300, |runs| runs.parse().expect("a number"));
    let mut passed = 0;
    for seed in first..first + runs {
        println!(
            "replay: GAGGLE_SEED={seed} GAGGLE_RUNS=1 cargo test -p gaggle-strategies --lib \
             waiters::line"
        );
        let mut world = World::new(seed);
        for _ in 0..2_000 {
            world.step();
        }
        passed += world.passed;
    }
    println!("passed on {passed} times in {runs} runs");
    assert!(passed > runs, "a key is hardly ever passed on: {passed}");
}
