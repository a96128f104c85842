//! Random calls against a granting side of one key whose messages are lost, repeated and delayed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::random::mix;

/// How long the faults last (ms); then everything must come to rest.
const FAULTS: u64 = 20_000;
const REST: u64 = 200_000;

/// Draws from a seed.
struct Draw(u64, u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.1 += 1;
        mix(&[self.0, self.1]) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The simplest granting side: one key, no forgetting.
#[derive(Default)]
struct Server {
    /// Nonce, token, when the lease ends.
    holder: Option<(Nonce, u64, u64)>,
    /// Nonce, when it was queued.
    queue: VecDeque<(Nonce, u64)>,
    ended: BTreeSet<Nonce>,
    tokens: u64,
}

impl Server {
    fn grant(&mut self, now: u64, nonce: Nonce, waited: u64) -> Event {
        self.tokens += 1;
        self.holder = Some((nonce, self.tokens, now + 10_000));
        let waited = Duration::from_millis(waited);
        Event::Granted { nonce, key: "k".into(), token: self.tokens, waited, lease: LEASE }
    }

    /// Ends the lease that is over, and grants the key to the next waiter.
    fn settle(&mut self, now: u64, events: &mut Vec<Event>) {
        if let Some((nonce, token, _)) = self.holder.filter(|(.., ends)| *ends <= now) {
            self.holder = None;
            self.ended.insert(nonce);
            events.push(Event::Lost { nonce, key: "k".into(), token });
        }
        if self.holder.is_none()
            && let Some((nonce, queued)) = self.queue.pop_front()
        {
            let granted = self.grant(now, nonce, now - queued);
            events.push(granted);
        }
    }

    fn state(&self, now: u64, nonce: Nonce) -> Option<Event> {
        if let Some((_, token, ends)) = self.holder.filter(|(holder, ..)| *holder == nonce) {
            let lease = Duration::from_millis(ends - now);
            let (key, waited) = ("k".into(), Duration::ZERO);
            return Some(Event::Granted { nonce, key, token, waited, lease });
        }
        if self.ended.contains(&nonce) {
            return Some(Event::Ended { nonce });
        }
        let waits = self.queue.iter().any(|(queued, _)| *queued == nonce);
        waits.then_some(Event::Queued { nonce, check_in: Some(TIMEOUT) })
    }

    fn apply(&mut self, now: u64, command: Command, events: &mut Vec<Event>) {
        self.settle(now, events);
        match command {
            Command::Lock { nonce, until, .. } => {
                let event = match self.state(now, nonce) {
                    Some(known) => known,
                    None if self.holder.is_none() => self.grant(now, nonce, 0),
                    None if until == Until::Now => Event::Held { nonce },
                    None => {
                        self.queue.push_back((nonce, now));
                        Event::Queued { nonce, check_in: Some(TIMEOUT) }
                    }
                };
                events.push(event);
            }
            Command::Unlock { nonce, .. } => {
                let held = self.holder.is_some_and(|(holder, ..)| holder == nonce);
                if held {
                    self.holder = None;
                }
                let before = self.queue.len();
                self.queue.retain(|(queued, _)| *queued != nonce);
                self.ended.insert(nonce);
                events.push(Event::Unlocked { nonce, held: held || self.queue.len() < before });
                self.settle(now, events);
            }
            Command::Extend { id, nonce, token, .. } => {
                let held = self.holder.filter(|holder| (holder.0, holder.1) == (nonce, token));
                if held.is_some() {
                    self.holder = Some((nonce, token, now + 10_000));
                }
                events.push(Event::Extended { id, token: held.map(|holder| holder.1) });
            }
            Command::CheckWaiter { nonce, .. } => {
                events.push(self.state(now, nonce).unwrap_or(Event::Forgotten { nonce }));
            }
            Command::CheckHold { nonce, key, token } => {
                if self.holder.is_none_or(|holder| (holder.0, holder.1) != (nonce, token)) {
                    events.push(Event::Lost { nonce, key, token });
                }
            }
            Command::Inspect { id, .. } => events.push(Event::Inspected { id, found: None }),
        }
    }
}

/// What a test knows of one call.
#[derive(Debug, Default)]
struct Caller {
    answers: u32,
    limit: u64,
    holds: Option<Lock>,
}

struct World {
    seed: u64,
    draw: Draw,
    core: Core,
    server: Server,
    /// Requests and reports that travel, by arrival.
    requests: BTreeMap<(u64, u64), Command>,
    reports: BTreeMap<(u64, u64), Event>,
    callers: BTreeMap<CallId, Caller>,
    resend: bool,
    up: bool,
    travelled: u64,
    ids: CallId,
}

impl World {
    fn new(seed: u64) -> Self {
        let resend = seed.is_multiple_of(2);
        Self {
            seed,
            draw: Draw(seed, 0),
            core: core(resend),
            server: Server::default(),
            requests: BTreeMap::new(),
            reports: BTreeMap::new(),
            callers: BTreeMap::new(),
            resend,
            up: true,
            travelled: 0,
            ids: 0,
        }
    }

    fn run(&mut self) {
        let mut now = 0;
        while now < REST {
            let faults = now < FAULTS;
            now += 1 + self.draw.below(if faults { 15 } else { 40 });
            if faults {
                self.act(now);
            }
            self.travel(now, faults);
            self.turn(now, faults);
            self.judge(now);
        }
        assert!(self.core.is_idle(), "seed {}: {:?}", self.seed, self.core);
        assert!(self.server.queue.is_empty(), "seed {}: a waiter is left", self.seed);
        assert!(self.server.holder.is_none(), "seed {}: a holder is left", self.seed);
        let answered = self.callers.values().all(|caller| caller.answers == 1);
        assert!(answered, "seed {}: {:?}", self.seed, self.callers);
    }

    /// A caller does something, or the connection changes.
    fn act(&mut self, now: u64) {
        self.ids += 1;
        let id = self.ids;
        match self.draw.below(12) {
            0..=2 => {
                let limit = now + 1 + self.draw.below(4_000);
                self.callers.insert(id, Caller { limit, ..Caller::default() });
                self.core.call(at(now), waits(id, limit));
            }
            3 => {
                let limit = now + 1_000;
                self.callers.insert(id, Caller { limit, ..Caller::default() });
                self.core.call(at(now), lock_call(id, Until::Now, Some(at(limit))));
            }
            4 => {
                // The future of a lock is dropped.
                let open = self.callers.iter().find(|(_, caller)| caller.answers == 0);
                if let Some((&id, _)) = open {
                    self.core.call(at(now), Call::Withdraw { id, nonce: nonce(id.into()) });
                    self.callers.remove(&id);
                }
            }
            5..=7 => {
                if let Some(lock) = self.holding(now) {
                    self.core.call(
                        at(now),
                        Call::Unlock { caller: None, lock, until: at(now + 10_000) },
                    );
                }
            }
            8 if !self.resend => {
                self.up = !self.up;
                if self.up {
                    self.core.handle(at(now), Event::Up { memory: Memory::Perhaps });
                } else {
                    self.cut(now);
                }
            }
            8 => self.core.handle(at(now), Event::Up { memory: Memory::Kept }),
            _ => {}
        }
    }

    fn holding(&mut self, _now: u64) -> Option<Lock> {
        self.callers.values_mut().find_map(|caller| caller.holds.take())
    }

    /// The connection breaks: requests may have arrived, their answers do not.
    fn cut(&mut self, now: u64) {
        self.reports.clear();
        for (_, command) in std::mem::take(&mut self.requests) {
            let of = command.subject();
            if self.draw.one_in(2) {
                self.server.apply(now, command, &mut Vec::new());
            }
            self.core.handle(at(now), failed(of, Fate::Unanswered));
        }
        let cause = self.draw.one_in(2).then(|| Cause::new(UnavailableKind::Refused, Refused));
        self.core.handle(at(now), Event::Down { cause });
    }

    fn travel(&mut self, now: u64, faults: bool) {
        let mut events = Vec::new();
        self.server.settle(now, &mut events);
        while let Some(entry) = self.requests.first_entry().filter(|entry| entry.key().0 <= now) {
            let command = entry.remove();
            if self.resend && faults && self.draw.one_in(8) {
                self.post(now + 500, command.clone());
            }
            self.server.apply(now, command, &mut events);
        }
        for event in events {
            // Publications and answers are lost with a connection; a log loses nothing.
            if self.up {
                self.travelled += 1;
                let delay = if self.resend { 0 } else { 1 };
                self.reports.insert((now + delay, self.travelled), event);
            }
        }
        while let Some(entry) = self.reports.first_entry().filter(|entry| entry.key().0 <= now) {
            let event = entry.remove();
            self.core.handle(at(now), event);
        }
    }

    fn post(&mut self, when: u64, command: Command) {
        self.travelled += 1;
        self.requests.insert((when, self.travelled), command);
    }

    fn turn(&mut self, now: u64, faults: bool) {
        if !faults && !self.up {
            self.up = true;
            self.core.handle(at(now), Event::Up { memory: Memory::Perhaps });
        }
        self.core.expire(at(now));
        let mut commands = Vec::new();
        let copies = if self.resend { Copies::Many } else { Copies::One };
        self.core.send_due(at(now), |command| {
            commands.push(command);
            copies
        });
        for command in commands {
            if self.resend && faults && self.draw.one_in(4) {
                continue;
            }
            // A connection keeps the order of requests; a network does not.
            let delay = if self.resend { self.draw.below(50) } else { 1 };
            self.post(now + delay, command);
        }
    }

    fn judge(&mut self, now: u64) {
        let outputs: Vec<Output> = self.core.outputs().collect();
        for output in outputs {
            let Output::Answer { id, answer } = output else { continue };
            let Some(caller) = self.callers.get_mut(&id) else {
                // Dropped in this very turn: the withdrawal frees what it was granted.
                continue;
            };
            caller.answers += 1;
            if let Answer::Granted { lock, claim } = answer
                && claim.take()
            {
                let (holder, token, ends) = self.server.holder.unwrap_or_else(|| (nonce(0), 0, 0));
                if (holder, token) == (lock.nonce(), lock.fencing_token()) {
                    let deadline = lock.deadline().expect("granted here");
                    assert!(deadline <= at(ends), "seed {}: {deadline:?} after {ends}", self.seed);
                } else {
                    let over = lock.deadline().is_some_and(|deadline| deadline <= at(now));
                    assert!(over, "seed {}: {id} was granted what it does not hold", self.seed);
                }
                caller.holds = Some(lock);
            }
        }
        for (id, caller) in &self.callers {
            let late = caller.answers == 0 && now > caller.limit + 50;
            assert!(!late, "seed {}: call {id} is over since {}", self.seed, caller.limit);
            assert!(caller.answers < 2, "seed {}: call {id} was answered twice", self.seed);
        }
    }
}

#[test]
fn random_calls_end_in_time_and_leave_nothing_behind() {
    let from = std::env::var("GAGGLE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = from.map_or(0..400, |seed: u64| seed..seed + 1);
    for seed in seeds {
        World::new(seed).run();
    }
}
