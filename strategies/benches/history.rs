//! How fast histories are checked, in time of the processor:
//! `cargo bench -p gaggle-strategies --bench history`.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::Duration;

use gaggle_strategies::{
    Drift, Nonce,
    testing::history::{
        Call, History, ModelKind, Operation, Outcome, Refusal, Settings, check, check_intervals,
    },
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Clients that lock, hold and unlock one of `keys` for ever, first come, first served; `unknown`
/// of their unlocks get no answer.
fn history(operations: u64, keys: u64, clients: u32, unknown: f64) -> Vec<Operation> {
    let mut rng = StdRng::seed_from_u64(1);
    let mut recorded = Vec::new();
    let mut nonce = 0;
    for key in 0..keys {
        let name = format!("key-{key}");
        // Of each client of this key, when it asked last.
        let clients = (clients / u32::try_from(keys).unwrap().min(clients)).max(1);
        let mut asked = vec![us(0); clients as usize];
        let mut now = us(1000);
        for turn in 0..operations / keys / 2 {
            nonce += 1;
            let client = usize::try_from(turn % u64::from(clients)).unwrap();
            let number = u32::try_from(key).unwrap() * clients + u32::try_from(client).unwrap();
            let invoked = asked[client].max(us(1));
            let granted = now.max(invoked) + us(10);
            let unlocked = granted + us(30);
            let completed = granted + us(rng.random_range(0..10));
            let until = granted + us(1_000_000);
            let call = Call::Lock { duration: us(2_000_000), max_wait: None };
            let operation = Operation {
                client: number,
                key: name.as_str().into(),
                nonce: Nonce::from_u128(nonce),
                call,
                invoked,
                queued: (invoked < now).then_some(invoked + us(1)),
                completed: Some(completed),
                outcome: Outcome::Granted { token: turn + 1, until },
            };
            let end = unlocked + us(rng.random_range(0..20));
            let lost = rng.random_bool(unknown);
            recorded.push(Operation {
                call: Call::Unlock,
                invoked: completed + us(5),
                queued: None,
                completed: Some(end),
                outcome: if lost { Outcome::Unknown } else { Outcome::Done },
                ..operation.clone()
            });
            recorded.push(Operation { queued: None, ..operation });
            asked[client] = end + us(1);
            now = unlocked + us(1);
        }
    }
    recorded
}

/// What this process has used of the processor: other work on the machine does not count.
fn spent() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.try_into().unwrap(), spent.tv_nsec.try_into().unwrap())
}

fn time(what: &str, operations: Vec<Operation>, check: impl Fn(&History) -> String) {
    let count = operations.len();
    let begun = spent();
    let history = History::new(operations).unwrap();
    let made = spent() - begun;
    let begun = spent();
    let told = check(&history);
    println!("{what}: {count} operations, validated in {made:.1?}, {told} {:.1?}", spent() - begun);
}

fn intervals(history: &History) -> String {
    let report = check_intervals(history, &ModelKind::ALL, Drift::default());
    report.assert_passed();
    "intervals".into()
}

fn search(model: ModelKind) -> impl Fn(&History) -> String {
    move |history| {
        let settings = Settings { search_all: true, ..Settings::default() };
        let report = check(history, &[model], &settings);
        let (steps, undecided) = (report.steps, report.undecided.len());
        format!(
            "{model}: {steps} steps, {undecided} undecided, {} violations,",
            report.violations_found
        )
    }
}

/// One refusal that nothing explains, at the end.
fn spoilt(mut operations: Vec<Operation>) -> Vec<Operation> {
    let last = operations.iter().filter_map(|operation| operation.completed).max().unwrap();
    operations.push(Operation {
        client: u32::MAX,
        key: operations[0].key.clone(),
        nonce: Nonce::from_u128(u128::MAX),
        call: Call::Lock { duration: us(1000), max_wait: Some(Duration::ZERO) },
        invoked: last + us(1),
        queued: None,
        completed: Some(last + us(2)),
        outcome: Outcome::Refused(Refusal::Held),
    });
    operations
}

fn main() {
    time("100 keys, low contention", history(100_000, 100, 100, 0.0), intervals);
    time("100 keys, low contention", history(1_000_000, 100, 100, 0.0), intervals);
    time("one key, 1,000 waiters", history(1_000_000, 1, 1000, 0.05), intervals);
    for model in ModelKind::ALL {
        time("one key, 2 waiters", history(100_000, 1, 2, 0.0), search(model));
    }
    for waiters in [64, 256, 1000] {
        for model in [ModelKind::Fenced, ModelKind::Queued] {
            let what = format!("one key, {waiters} waiters");
            time(&what, history(20_000, 1, waiters, 0.0), search(model));
        }
    }
    let what = "64 waiters, 5 % unanswered";
    time(what, history(20_000, 1, 64, 0.05), search(ModelKind::Leased));
    let what = "64 waiters, illegal";
    time(what, spoilt(history(20_000, 1, 64, 0.0)), search(ModelKind::Fenced));
    time(what, spoilt(history(20_000, 1, 64, 0.0)), search(ModelKind::Leased));
    let what = "64 waiters, 5 % unanswered, illegal";
    time(what, spoilt(history(20_000, 1, 64, 0.05)), search(ModelKind::Fenced));
    time(what, spoilt(history(20_000, 1, 64, 0.05)), search(ModelKind::Leased));
}
