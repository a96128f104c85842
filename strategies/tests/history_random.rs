//! Goal: the history checker accepts every history of a correct lock and finds most corruptions.
//! Method: a tiny sequential lock, written apart from the models, runs random calls; each takes
//! effect at a random moment, in an interval drawn around it. Such a history is legal by
//! construction. Then one random corruption is made.
//!
//! A failure prints its seed, cut to the fewest calls that show it, and the command that replays it:
//! `GAGGLE_SEED=<seed> cargo test -p gaggle-strategies --test history_random`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod history_support;

use std::{collections::VecDeque, time::Duration};

use gaggle_strategies::{
    Nonce,
    testing::history::{Call, History, ModelKind, Operation, Outcome, Refusal, Report, check},
};
use history_support::{exact, ms};
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A lease that runs out often.
const SHORT: u64 = 1000;
/// One that outlives every run, for the model without expiry.
const LONG: u64 = 100_000_000;

/// The lock: one key, first come, first served, whole milliseconds. It writes what it did.
struct Run {
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
    fn new(seed: u64, lease: u64) -> Self {
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

    fn history(mut self, calls: usize) -> Vec<Operation> {
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

const WITH_EXPIRY: [ModelKind; 3] = [ModelKind::Fenced, ModelKind::Leased, ModelKind::Queued];
const WITHOUT: [ModelKind; 1] = [ModelKind::Owner];

fn judge(operations: Vec<Operation>, models: &[ModelKind]) -> Report {
    check(&History::new(operations).unwrap(), models, &exact())
}

/// Seeds of this run: the one to replay, or fresh ones.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let replay = std::env::var("GAGGLE_SEED").map(|seed| seed.parse::<u64>().expect("a number"));
    replay.map_or_else(
        |_| {
            let first = u64::from(rand::random::<u32>());
            first..first + count
        },
        |seed| seed..seed + 1,
    )
}

fn calls(seed: u64) -> usize {
    usize::try_from(seed % 120).unwrap() + 1
}

#[test]
fn a_correct_lock_is_never_accused() {
    for (lease, models) in [(SHORT, &WITH_EXPIRY[..]), (LONG, &WITHOUT[..])] {
        for seed in seeds(1500) {
            let report = judge(Run::new(seed, lease).history(calls(seed)), models);
            if report.passed() {
                continue;
            }
            let fewest = (1..=calls(seed))
                .map(|calls| judge(Run::new(seed, lease).history(calls), models))
                .find(|report| !report.passed())
                .unwrap_or(report);
            panic!(
                "{fewest}\nreplay: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --test \
                 history_random"
            );
        }
    }
}

/// What can be wrong with one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Corruption {
    TokensSwapped,
    TokenRepeated,
    UnlockOfAnother,
    RefusalOfHolder,
    GrantOfWaiter,
    GrantInsteadOfHeld,
    HeldInsteadOfGrant,
    DeadlineLonger,
    GrantEarlier,
    OperationForgotten,
}

const CORRUPTIONS: [Corruption; 10] = [
    Corruption::TokensSwapped,
    Corruption::TokenRepeated,
    Corruption::UnlockOfAnother,
    Corruption::RefusalOfHolder,
    Corruption::GrantOfWaiter,
    Corruption::GrantInsteadOfHeld,
    Corruption::HeldInsteadOfGrant,
    Corruption::DeadlineLonger,
    Corruption::GrantEarlier,
    Corruption::OperationForgotten,
];

/// Makes it at a random place; `None` where nothing of its kind happened.
fn corrupt(
    corruption: Corruption,
    mut operations: Vec<Operation>,
    rng: &mut StdRng,
) -> Option<Vec<Operation>> {
    let mut pick = |matches: &dyn Fn(&Operation) -> bool| {
        let places: Vec<usize> =
            (0..operations.len()).filter(|&place| matches(&operations[place])).collect();
        (!places.is_empty()).then(|| places[rng.random_range(0..places.len())])
    };
    let is_grant = |operation: &Operation| matches!(operation.outcome, Outcome::Granted { .. });
    let token_of = |operation: &Operation| match operation.outcome {
        Outcome::Granted { token, .. } => token,
        _ => 0,
    };
    let with_token = |operation: &mut Operation, new: u64| {
        if let Outcome::Granted { token, .. } = &mut operation.outcome {
            *token = new;
        }
    };
    match corruption {
        Corruption::TokensSwapped | Corruption::TokenRepeated => {
            let (one, other) = (pick(&is_grant)?, pick(&is_grant)?);
            if one == other {
                return None;
            }
            let (first, second) = (token_of(&operations[one]), token_of(&operations[other]));
            with_token(&mut operations[other], first);
            if corruption == Corruption::TokensSwapped {
                with_token(&mut operations[one], second);
            }
        }
        Corruption::UnlockOfAnother => {
            let place = pick(&|operation| {
                operation.call == Call::Unlock && matches!(operation.outcome, Outcome::Refused(_))
            })?;
            operations[place].outcome = Outcome::Done;
        }
        Corruption::RefusalOfHolder => {
            let place = pick(&|operation| {
                matches!(operation.outcome, Outcome::Done | Outcome::Extended { .. })
            })?;
            operations[place].outcome = Outcome::Refused(Refusal::NotHolder);
        }
        Corruption::GrantOfWaiter => {
            let place =
                pick(&|operation| operation.outcome == Outcome::Refused(Refusal::TimedOut))?;
            grant_after_the_last(&mut operations, place);
        }
        Corruption::GrantInsteadOfHeld => {
            let place = pick(&|operation| operation.outcome == Outcome::Refused(Refusal::Held))?;
            grant_after_the_last(&mut operations, place);
        }
        Corruption::HeldInsteadOfGrant => {
            let place = pick(&|operation| {
                let tried =
                    matches!(operation.call, Call::Lock { max_wait: Some(Duration::ZERO), .. });
                tried && matches!(operation.outcome, Outcome::Granted { .. })
            })?;
            operations[place].outcome = Outcome::Refused(Refusal::Held);
        }
        Corruption::DeadlineLonger => {
            // Of one that ran out, and after which somebody was granted: else nobody sees it.
            let others = operations.clone();
            let place = pick(&|operation| {
                let Outcome::Granted { until, .. } = operation.outcome else { return false };
                let last = until + ms(SHORT / 2);
                let ran_out = others.iter().all(|other| {
                    other.nonce != operation.nonce || other.invoked == operation.invoked
                });
                ran_out
                    && others.iter().any(|other| {
                        is_grant(other)
                            && other.invoked > operation.invoked
                            && other.completed.is_some_and(|at| at > until && at < last)
                    })
            })?;
            if let Outcome::Granted { until, .. } = &mut operations[place].outcome {
                *until += ms(SHORT / 2);
            }
        }
        Corruption::GrantEarlier => {
            let place = pick(&is_grant)?;
            let operation = &mut operations[place];
            operation.queued = None;
            operation.invoked = operation.invoked.saturating_sub(ms(SHORT));
            operation.completed = operation.completed.map(|at| at.saturating_sub(ms(SHORT)));
        }
        Corruption::OperationForgotten => {
            let place = pick(&|operation| operation.completed.is_some())?;
            operations.remove(place);
        }
    }
    Some(operations)
}

/// The greatest token so far by the time of the call, and a whole lease.
fn grant_after_the_last(operations: &mut [Operation], place: usize) {
    let completed = operations[place].completed;
    let token = operations
        .iter()
        .filter(|operation| operation.completed <= completed)
        .map(|operation| match operation.outcome {
            Outcome::Granted { token, .. } => token,
            _ => 0,
        })
        .max();
    let until = completed.unwrap() + ms(SHORT);
    operations[place].outcome = Outcome::Granted { token: token.unwrap_or(0) + 1, until };
}

#[test]
fn most_corruptions_are_found() {
    let (mut made_in_all, mut found_in_all) = (0, 0);
    for corruption in CORRUPTIONS {
        let (mut made, mut found) = (0_u64, 0_u64);
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let operations = Run::new(seed, SHORT).history(100);
            let Some(corrupted) = corrupt(corruption, operations, &mut rng) else { continue };
            let report = judge(corrupted, &WITH_EXPIRY);
            made += 1;
            found += u64::from(!report.passed());
        }
        println!("{corruption:?}: {found} of {made} found");
        assert!(found * 10 > made, "{corruption:?}: {found} of {made} found");
        (made_in_all, found_in_all) = (made_in_all + made, found_in_all + found);
    }
    println!("{found_in_all} of {made_in_all} found");
    assert!(found_in_all * 10 > made_in_all * 6, "{found_in_all} of {made_in_all} found");
}
