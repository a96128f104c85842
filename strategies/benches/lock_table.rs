//! The time of a step of the lock table, small and large: it must grow like the logarithm of what the
//! table holds.
//!
//! `cargo bench -p gaggle-strategies --bench lock_table -- 'by keys held'`; a sample is one filling of a
//! table, of which the mean step counts.
#![allow(clippy::disallowed_methods)] // a benchmark reads the clock
use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, SamplingMode, criterion_group, criterion_main};
use gaggle_strategies::{
    Nonce, Owner,
    lock_table::{
        ClusterTime, Command, Effect, LockRequest, LockTable, ProcessId, Seen, TableConfig, Wait,
    },
};

type Measure = fn(u64) -> f64;

const KEYS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const WAITERS: [u64; 4] = [1, 100, 10_000, 100_000];

const BY_KEYS: [(&str, Measure); 5] = [
    ("lock one more and unlock it", keys_pair),
    ("lock, until they are held", keys_fill),
    ("extend one", keys_extend),
    ("all leases end in one step", keys_expire),
    ("snapshot and restore, per key", keys_snapshot),
];

const BY_WAITERS: [(&str, Measure); 5] = [
    ("queue one", waiters_queue),
    ("unlock and hand over", waiters_hand_over),
    ("withdraw one in the middle", waiters_withdraw),
    ("all die in one step", waiters_deadline),
    ("their process is gone", waiters_gone),
];

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(1));
    targets = by_keys, by_waiters
}
criterion_main!(benches);

fn by_keys(criterion: &mut Criterion) {
    measured(criterion, "by keys held", KEYS, &BY_KEYS);
}

fn by_waiters(criterion: &mut Criterion) {
    measured(criterion, "by waiters on one key", WAITERS, &BY_WAITERS);
}

fn measured(criterion: &mut Criterion, title: &str, sizes: [u64; 4], measures: &[(&str, Measure)]) {
    let mut group = criterion.benchmark_group(title);
    group.sampling_mode(SamplingMode::Flat).measurement_time(Duration::from_millis(100));
    for (name, measure) in measures {
        for size in sizes {
            let step = || Duration::from_secs_f64(measure(size) / 1e9);
            group.bench_function(BenchmarkId::new(*name, size), |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| step()).sum());
            });
        }
    }
    group.finish();
}

struct Bench {
    table: LockTable,
    effects: Vec<Effect>,
    owner: Arc<Owner>,
}

impl Bench {
    fn new() -> Self {
        let config = TableConfig { nonce_memory_ms: 0, ..TableConfig::default() };
        let owner = Arc::new(Owner::this_process(None));
        Self { table: LockTable::new(config), effects: Vec::new(), owner }
    }

    fn apply(&mut self, at: u64, command: &Command) {
        self.effects.clear();
        self.table.apply(ClusterTime(at), command, &mut self.effects);
        black_box(&self.effects);
    }

    fn lock(&self, key: Arc<str>, nonce: u64, wait: Wait) -> Command {
        Command::Lock(LockRequest {
            key,
            nonce: spread(nonce),
            request: 0,
            process: ProcessId(nonce % 16),
            duration_ms: 10_000 + nonce % 1000,
            wait,
            seen: Seen::Now,
            owner: self.owner.clone(),
        })
    }

    /// The ns per step over `count` steps of these commands.
    fn time(&mut self, at: u64, commands: &[Command], count: u64) -> f64 {
        let begun = Instant::now();
        for command in commands {
            self.apply(at, command);
        }
        begun.elapsed().as_nanos() as f64 / count as f64
    }
}

/// Nonces that callers give may be far from each other in the table, where drawn ones are neighbours in
/// time: the harder case.
fn spread(nonce: u64) -> Nonce {
    let high = (nonce + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Nonce::from_u128(u128::from(high) << 64 | u128::from(nonce))
}

fn key(number: u64) -> Arc<str> {
    format!("orders/{}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into()
}

fn unlock(key: Arc<str>, nonce: u64) -> Command {
    Command::Unlock { key, nonce: spread(nonce), forget: true }
}

fn with_keys(count: u64) -> (Bench, f64) {
    let mut bench = Bench::new();
    let commands: Vec<_> = (0..count).map(|n| bench.lock(key(n), n, Wait::No)).collect();
    let ns = bench.time(0, &commands, count);
    assert_eq!(bench.table.sizes().keys, count);
    (bench, ns)
}

fn with_waiters(count: u64, wait: Wait) -> (Bench, f64) {
    let mut bench = Bench::new();
    let holder = bench.lock("k".into(), 0, Wait::No);
    bench.apply(0, &holder);
    let commands: Vec<_> = (1..=count).map(|n| bench.lock("k".into(), n, wait)).collect();
    let ns = bench.time(0, &commands, count);
    assert_eq!(bench.table.sizes().waiters, count);
    (bench, ns)
}

fn keys_fill(count: u64) -> f64 {
    with_keys(count).1
}

fn keys_pair(count: u64) -> f64 {
    let (mut bench, _) = with_keys(count);
    let pairs = (count..count + 20_000).flat_map(|n| {
        let key = key(n);
        [bench.lock(key.clone(), n, Wait::No), unlock(key, n)]
    });
    let commands: Vec<_> = pairs.collect();
    bench.time(1, &commands, 40_000)
}

fn keys_extend(count: u64) -> f64 {
    let (mut bench, _) = with_keys(count);
    let extend = |n| Command::Extend {
        key: key(n),
        nonce: spread(n),
        process: ProcessId(0),
        request: n,
        duration_ms: 20_000,
    };
    let commands: Vec<_> = (0..1000).map(|n| extend(n * (count / 1000))).collect();
    bench.time(1, &commands, 1000)
}

fn keys_expire(count: u64) -> f64 {
    let (mut bench, _) = with_keys(count);
    let ns = bench.time(20_000, &[Command::Noop], count);
    assert_eq!(bench.table.sizes().keys, 0);
    ns
}

fn keys_snapshot(count: u64) -> f64 {
    let (bench, _) = with_keys(count);
    let begun = Instant::now();
    let bytes = bench.table.snapshot();
    let restored = LockTable::restore(&bytes).expect("our own snapshot");
    let ns = begun.elapsed().as_nanos() as f64 / count as f64;
    assert_eq!(restored.sizes(), bench.table.sizes());
    ns
}

fn waiters_queue(count: u64) -> f64 {
    with_waiters(count, Wait::Ms(60_000)).1
}

fn waiters_hand_over(count: u64) -> f64 {
    let (mut bench, _) = with_waiters(count, Wait::Forever);
    let commands: Vec<_> = (0..=count).map(|n| unlock("k".into(), n)).collect();
    let ns = bench.time(1, &commands, count);
    assert!(!bench.table.has_leases());
    ns
}

fn waiters_withdraw(count: u64) -> f64 {
    let (mut bench, _) = with_waiters(count, Wait::Ms(60_000));
    let (middle, few) = (count.div_ceil(2), count.min(400));
    let commands: Vec<_> = (middle..middle + few).map(|n| unlock("k".into(), n)).collect();
    bench.time(1, &commands, few)
}

fn waiters_deadline(count: u64) -> f64 {
    let (mut bench, _) = with_waiters(count, Wait::Ms(5000));
    let ns = bench.time(5000, &[Command::Noop], count);
    assert_eq!(bench.table.sizes().waiters, 0);
    ns
}

fn waiters_gone(count: u64) -> f64 {
    let (mut bench, _) = with_waiters(count, Wait::Ms(60_000));
    let commands: Vec<_> =
        (0..16).map(|process| Command::Gone { process: ProcessId(process) }).collect();
    let ns = bench.time(1, &commands, count);
    assert_eq!(bench.table.sizes().waiters, 0);
    ns
}
