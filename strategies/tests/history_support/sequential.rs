//! A tiny sequential lock, written apart from the models: it runs random calls, each of which takes
//! effect at a random moment, in an interval drawn around it. What it writes is legal by
//! construction.

use std::{collections::VecDeque, time::Duration};

use gaggle_strategies::{
    Nonce,
    testing::history::{Call, Operation, Outcome, Refusal},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::ms;

/// A lease that runs out often.
pub(crate) const SHORT: u64 = 1000;
/// One that outlives every run, for the model without expiry.
pub(crate) const LONG: u64 = 100_000_000;

/// The lock: one key, first come, first served, whole milliseconds. It writes what it did.
pub(crate) struct Run {
    rng: StdRng,
    lease: u64,
    now: u64,
    operations: Vec<Operation>,
    /// Who holds and until when, with the place of its LOCK.
    holder: Option<(u32, u64)>,
    /// Nonces in the queue.
    queue: VecDeque<u32>,
    last_token: u64,
    nonces: u32,
    /// Nonces that were granted and may unlock or extend: what their callers were told.
    told: Vec<(u32, u64)>,
    clients: u32,
}

impl Run {
    pub(crate) fn new(seed: u64, lease: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            lease,
            now: 100,
            operations: Vec::new(),
            holder: None,
            queue: VecDeque::new(),
            last_token: 0,
            nonces: 0,
            told: Vec::new(),
            clients: 0,
        }
    }

    pub(crate) fn history(mut self, calls: usize) -> Vec<Operation> {
        for _ in 0..calls {
            self.now += self.rng.random_range(0..200);
            self.expire();
            match self.rng.random_range(0..10) {
                0..4 => self.lock(),
                4..5 => self.try_lock(),
                5..8 => self.unlock(),
                _ => self.extend(),
            }
        }
        // Whoever still waits gets no answer.
        self.operations
    }

    /// An interval around the present, of a client of its own.
    fn record(&mut self, nonce: u32, call: Call, outcome: Outcome, unknown: f64) -> usize {
        let invoked = self.now - self.rng.random_range(0..100);
        let completed = self.now + self.rng.random_range(0..100);
        let lost = self.rng.random_bool(unknown);
        self.clients += 1;
        self.operations.push(Operation {
            client: self.clients,
            key: "k".into(),
            nonce: Nonce::from_u128(nonce.into()),
            call,
            invoked: ms(invoked),
            queued: None,
            completed: (!lost).then_some(ms(completed)),
            outcome: if lost { Outcome::Unknown } else { outcome },
        });
        self.operations.len() - 1
    }

    fn expire(&mut self) {
        // The granting side may be late.
        let late = self.rng.random_range(0..50);
        if let Some((_, until)) = self.holder
            && until + late <= self.now
        {
            self.holder = None;
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        while self.holder.is_none() {
            let Some(next) = self.queue.pop_front() else { return };
            let place = self.operations.iter().position(|operation| {
                operation.nonce == Nonce::from_u128(next.into()) && operation.call.is_lock()
            });
            let place = place.unwrap();
            if self.rng.random_bool(0.2) {
                // It gave up meanwhile, and held for nobody.
                let completed = self.now + self.rng.random_range(0..100);
                self.operations[place].completed = Some(ms(completed));
                self.operations[place].outcome = Outcome::Refused(Refusal::TimedOut);
                if self.rng.random_bool(0.5) {
                    self.holder = Some((next, self.now));
                }
                continue;
            }
            self.grant(next, place);
        }
    }

    fn grant(&mut self, nonce: u32, place: usize) {
        self.last_token += self.rng.random_range(1..3);
        let until = self.now + self.lease;
        self.holder = Some((nonce, until));
        let completed = self.now + self.rng.random_range(0..100);
        let told = until - self.rng.random_range(0..50);
        self.operations[place].completed = Some(ms(completed));
        self.operations[place].outcome =
            Outcome::Granted { token: self.last_token, until: ms(told) };
        self.told.push((nonce, told));
    }

    fn lock(&mut self) {
        let nonce = self.nonces;
        self.nonces += 1;
        let call = Call::Lock { duration: ms(2 * self.lease), max_wait: None };
        let place = self.record(nonce, call, Outcome::Unknown, 0.0);
        (self.operations[place].completed, self.operations[place].outcome) =
            (None, Outcome::Unknown);
        if self.holder.is_none() {
            if self.rng.random_bool(0.1) {
                // Granted, and the answer is lost.
                self.last_token += 1;
                self.holder = Some((nonce, self.now + SHORT));
            } else {
                self.grant(nonce, place);
            }
        } else {
            if self.rng.random_bool(0.7) {
                self.operations[place].queued = Some(ms(self.now));
            }
            self.queue.push_back(nonce);
        }
    }

    fn try_lock(&mut self) {
        let nonce = self.nonces;
        self.nonces += 1;
        let call = Call::Lock { duration: ms(2 * self.lease), max_wait: Some(Duration::ZERO) };
        if self.holder.is_some() {
            self.record(nonce, call, Outcome::Refused(Refusal::Held), 0.05);
        } else {
            let place = self.record(nonce, call, Outcome::Unknown, 0.0);
            self.grant(nonce, place);
        }
    }

    /// One of those that were granted once, mostly the present holder.
    fn somebody(&mut self) -> Option<(u32, u64)> {
        match self.holder {
            Some((nonce, _)) if self.rng.random_bool(0.7) => {
                self.told.iter().rev().find(|(told, _)| *told == nonce).copied()
            }
            _ if self.told.is_empty() => None,
            _ => Some(self.told[self.rng.random_range(0..self.told.len())]),
        }
    }

    fn gone(&self, told: u64) -> Outcome {
        Outcome::Refused(if self.now >= told { Refusal::Expired } else { Refusal::NotHolder })
    }

    fn unlock(&mut self) {
        let Some((nonce, told)) = self.somebody() else { return };
        if self.holder.is_some_and(|(holder, _)| holder == nonce) {
            self.record(nonce, Call::Unlock, Outcome::Done, 0.2);
            let lost = self.operations.last().is_some_and(|unlock| unlock.completed.is_none());
            // Without an answer it may also have had no effect, and the lease runs out.
            if !lost || self.lease == LONG || self.rng.random_bool(0.5) {
                self.holder = None;
                self.hand_over();
            }
        } else {
            let gone = self.gone(told);
            self.record(nonce, Call::Unlock, gone, 0.1);
        }
    }

    fn extend(&mut self) {
        let Some((nonce, told)) = self.somebody() else { return };
        let call = Call::Extend { duration: ms(2 * self.lease) };
        match self.holder {
            Some((holder, until)) if holder == nonce => {
                let until = until.max(self.now + self.lease);
                self.holder = Some((nonce, until));
                let outcome = Outcome::Extended { until: ms(until) };
                self.record(nonce, call, outcome, 0.1);
            }
            _ => {
                let gone = self.gone(told);
                self.record(nonce, call, gone, 0.1);
            }
        }
    }
}
