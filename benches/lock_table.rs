//! The time of one step of the lock table alone: `cargo bench --bench lock_table`.
//!
//! It must grow no faster than the logarithm of the table's size.

mod table;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use table::Path;

/// A path by the size of its table.
type Prepare = fn(u64) -> Path;

/// What a step is, the path, and the sizes of the table.
const PATHS: [(&str, Prepare, [u64; 3]); 5] = [
    ("lock and unlock beside keys", table::pairs, [0, 10_000, 100_000]),
    ("enqueue behind waiters", table::queue, [500, 10_000, 100_000]),
    ("unlock and hand-off to waiters", table::hand_off, [500, 10_000, 100_000]),
    ("end the leases of keys", table::expire, [500, 10_000, 100_000]),
    ("snapshot and restore keys", table::snapshot, [500, 10_000, 100_000]),
];

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lock table");
    group.sample_size(10).warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    for (step, prepare, sizes) in PATHS {
        for size in sizes {
            group.bench_function(BenchmarkId::new(step, size), |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| time(prepare(size))).sum());
            });
        }
    }
    group.finish();
}

/// The time of one step.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn time((mut path, steps): Path) -> Duration {
    let begun = Instant::now();
    path();
    begun.elapsed() / u32::try_from(steps).expect("a path has few steps")
}

criterion_group!(benches, steps);
criterion_main!(benches);
