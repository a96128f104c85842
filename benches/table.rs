//! The paths of the lock table that `instructions` counts and `lock_table` times.

use std::{hint::black_box, sync::Arc};

use gaggle::{
    Nonce, Owner,
    strategies::lock_table::{
        ClusterTime, Command as Entry, Effect, LockRequest, LockTable, ProcessId, Seen,
        TableConfig, Wait,
    },
};

/// The closure to measure, and its number of steps.
pub(crate) type Path = (Box<dyn FnMut()>, u64);

/// The steps of a path that does not touch every key.
const STEPS: u64 = 500;

struct Bench {
    table: LockTable,
    effects: Vec<Effect>,
    owner: Arc<Owner>,
}

impl Bench {
    fn new() -> Self {
        let config = TableConfig { nonce_memory_ms: 0, ..TableConfig::default() };
        // The same on every machine.
        let owner = Arc::new(Owner { host: "host".into(), pid: 1, label: None });
        Self { table: LockTable::new(config), effects: Vec::with_capacity(64), owner }
    }

    fn holding(keys: u64) -> Self {
        let mut bench = Self::new();
        for number in 0..keys {
            bench.apply(0, &bench.lock(key(number), number, Wait::No));
        }
        bench
    }

    fn waiting(waiters: u64) -> Self {
        let mut bench = Self::new();
        for number in 0..=waiters {
            bench.apply(0, &bench.lock("k".into(), number, Wait::Forever));
        }
        bench
    }

    fn apply(&mut self, at: u64, entry: &Entry) {
        self.effects.clear();
        self.table.apply(ClusterTime(at), entry, &mut self.effects);
        black_box(&self.effects);
    }

    fn lock(&self, key: Arc<str>, nonce: u64, wait: Wait) -> Entry {
        Entry::Lock(LockRequest {
            key,
            nonce: spread(nonce),
            process: ProcessId(nonce % 16),
            duration_ms: 10_000,
            wait,
            seen: Seen::Now,
            owner: self.owner.clone(),
        })
    }

    fn run(mut self, entries: Vec<Entry>) -> (Box<dyn FnMut()>, u64) {
        let steps = entries.len() as u64;
        let path = move || entries.iter().for_each(|entry| self.apply(1, entry));
        (Box::new(path), steps)
    }
}

/// Nonces are random: neighbours in time are far from each other in the table.
pub(crate) fn spread(nonce: u64) -> Nonce {
    let high = (nonce + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Nonce::from_u128(u128::from(high) << 64 | u128::from(nonce))
}

fn key(number: u64) -> Arc<str> {
    format!("orders/{:020}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into()
}

fn unlock(key: Arc<str>, nonce: u64) -> Entry {
    Entry::Unlock { key, nonce: spread(nonce), forget: true }
}

/// Locks and unlocks free keys while others are held.
pub(crate) fn pairs(keys: u64) -> Path {
    let bench = Bench::holding(keys);
    let pair = |n| [bench.lock(key(n), n, Wait::No), unlock(key(n), n)];
    let entries: Vec<_> = (keys..keys + STEPS).flat_map(pair).collect();
    bench.run(entries)
}

/// Enqueues waiters behind this many.
pub(crate) fn queue(waiters: u64) -> Path {
    let bench = Bench::waiting(waiters);
    let nonces = 2 * waiters..2 * waiters + STEPS;
    let entries = nonces.map(|n| bench.lock("k".into(), n, Wait::Ms(60_000))).collect();
    bench.run(entries)
}

/// Unlocks a key for which this many wait.
pub(crate) fn hand_off(waiters: u64) -> Path {
    Bench::waiting(waiters).run((0..STEPS).map(|n| unlock("k".into(), n)).collect())
}

/// Takes a snapshot of held keys, and restores it.
pub(crate) fn snapshot(keys: u64) -> Path {
    let bench = Bench::holding(keys);
    let path = move || {
        let bytes = bench.table.snapshot();
        black_box(LockTable::restore(&bytes).expect("our own snapshot"));
    };
    (Box::new(path), keys)
}

/// Ends all leases in one step.
pub(crate) fn expire(keys: u64) -> Path {
    let mut bench = Bench::holding(keys);
    (Box::new(move || bench.apply(20_000, &Entry::Noop)), keys)
}
