//! Goal: a guard's deadline follows the contract's rules 2 and 4, whatever order answers come in.
//! Method: random extensions with random answers and delays, in virtual time, on a guard and on a
//! model of it in plain integers; after each step both say the same. Models with a planted fault
//! must be seen to differ.
//!
//! A failure prints its seed and the command that replays it: `GAGGLE_SEED=<seed> cargo test --test
//! guard_model`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Stub, lease, ms};
use gaggle::{Error, Guard, Locker};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{advance, timeout};

/// What the model gets wrong, to see that it would be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// An answer after the deadline counts.
    Revives,
    /// An extension may shorten.
    Shortens,
    /// An extension counts from its answer.
    CountsFromTheAnswer,
    /// Any error loses the guard.
    LosesOnAnyError,
    /// No error does.
    LosesOnNone,
    /// Valid at the deadline itself.
    ValidAtTheDeadline,
}

const FAULTS: [Fault; 6] = [
    Fault::Revives,
    Fault::Shortens,
    Fault::CountsFromTheAnswer,
    Fault::LosesOnAnyError,
    Fault::LosesOnNone,
    Fault::ValidAtTheDeadline,
];

/// A guard in milliseconds.
struct Model {
    fault: Fault,
    now: u64,
    deadline: u64,
    lost: bool,
}

impl Model {
    fn is_valid(&self) -> bool {
        let late = u64::from(self.fault == Fault::ValidAtTheDeadline);
        !self.lost && self.now < self.deadline + late
    }

    /// What the extension says, in one word.
    fn extend(&mut self, duration: u64, delay: u64, answer: &'static str) -> &'static str {
        if self.lost && self.now < self.deadline {
            return "not holder";
        }
        if !self.is_valid() {
            return "expired";
        }
        let sent = self.now;
        self.now += delay;
        let counted = if self.fault == Fault::CountsFromTheAnswer { self.now } else { sent };
        match answer {
            "ok" if !self.is_valid() && self.fault != Fault::Revives => {
                self.lost = true;
                "expired"
            }
            "ok" if self.fault == Fault::Shortens => {
                self.deadline = counted + duration;
                "ok"
            }
            "ok" => {
                self.deadline = self.deadline.max(counted + duration);
                "ok"
            }
            _ => {
                let ends = matches!(answer, "not holder" | "expired" | "spent");
                self.lost |= (ends && self.fault != Fault::LosesOnNone)
                    || self.fault == Fault::LosesOnAnyError;
                answer
            }
        }
    }
}

const ANSWERS: [(&str, common::Answer); 5] = [
    ("ok", || Ok(())),
    ("unknown", || Err(Error::Unknown)),
    ("unavailable", || Err(Error::no_quorum())),
    ("not holder", || Err(Error::NotHolder)),
    ("expired", || Err(Error::Expired)),
];

fn word(outcome: &Result<(), Error>) -> &'static str {
    match outcome {
        Ok(()) => "ok",
        Err(Error::Unknown) => "unknown",
        Err(Error::Unavailable { .. }) => "unavailable",
        Err(Error::NotHolder) => "not holder",
        Err(Error::Expired) => "expired",
        Err(_) => "another",
    }
}

/// The first difference between the guard and the model.
async fn difference(seed: u64, fault: Fault) -> Option<String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let stub = Stub::new();
    let first = rng.random_range(1..500);
    let guard = Locker::new(stub.clone()).lock_with("k", lease(ms(first))).await.unwrap();
    let mut model = Model { fault, now: 0, deadline: first, lost: false };
    for step in 0..20 {
        if rng.random_bool(0.4) {
            let by = rng.random_range(0..150);
            advance(ms(by)).await;
            model.now += by;
        } else {
            // Mostly good, or no guard would live long.
            let choice = if rng.random_bool(0.7) { 0 } else { rng.random_range(0..ANSWERS.len()) };
            let (answer, make) = ANSWERS[choice];
            let (duration, delay) = (rng.random_range(1..500), rng.random_range(0..120));
            let sent = guard.is_valid();
            if sent {
                stub.answer_extends(&[make]);
            }
            stub.delay_extends(ms(delay));
            let told = word(&guard.extend(ms(duration)).await);
            let expected = model.extend(duration, delay, answer);
            if told != expected {
                return Some(format!("step {step}: told {told}, the model says {expected}"));
            }
        }
        if let Some(difference) = compare(&guard, &model).await {
            return Some(format!("step {step}: {difference}"));
        }
    }
    None
}

async fn compare(guard: &Guard, model: &Model) -> Option<String> {
    let left = if model.is_valid() { model.deadline.saturating_sub(model.now) } else { 0 };
    let lost = timeout(ms(0), guard.lost()).await.is_ok();
    let same = guard.is_valid() == model.is_valid()
        && guard.remaining() == ms(left)
        && lost != model.is_valid();
    (!same).then(|| {
        let (valid, remaining) = (guard.is_valid(), guard.remaining());
        format!(
            "valid {valid}, remaining {remaining:?}, lost {lost}; the model at {} ms says valid {}, \
             {left} ms",
            model.now,
            model.is_valid()
        )
    })
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_what_the_model_says() {
    let replay = std::env::var("GAGGLE_SEED").map(|seed| seed.parse::<u64>().expect("a number"));
    let first = replay.clone().unwrap_or_else(|_| u64::from(rand::random::<u32>()));
    for seed in first..first + if replay.is_ok() { 1 } else { 2000 } {
        if let Some(difference) = difference(seed, Fault::None).await {
            panic!("{difference}\nreplay: GAGGLE_SEED={seed} cargo test --test guard_model");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_with_a_fault_is_seen_to_differ() {
    for fault in FAULTS {
        let mut found = false;
        for seed in 0..2000 {
            found = found || difference(seed, fault).await.is_some();
        }
        assert!(found, "{fault:?} was not seen");
    }
}
