//! What members pay for a frame, and users for a URL.
//!
//! ```text
//! cargo bench --bench codec
//! ```
#![allow(clippy::unwrap_used, reason = "a figure that cannot be taken must not be printed")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gaggle::{strategies::testing::decoders, testing::parse_url};

/// Every example of a frame, an entry or a snapshot, through every decoder, and what decodes back
/// into bytes and out of them again.
fn frames(criterion: &mut Criterion) {
    let examples = decoders::examples();
    let bytes: usize = examples.iter().map(Vec::len).sum();
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("round-trip", |bencher| {
        bencher.iter(|| {
            examples.iter().map(|example| decoders::feed(black_box(example))).sum::<u32>()
        });
    });
    group.finish();
}

fn urls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("url");
    for (name, url) in [
        ("local", "local:"),
        ("redis", "redis://user:password@127.0.0.1:6379/0?queue=fifo&namespace=orders"),
        (
            "gaggle-tcp",
            "gaggle+tcp://127.0.0.1:7001?cluster=orders&name=a\
             &peers=a@127.0.0.1:7001,b@127.0.0.1:7002,c@127.0.0.1:7003",
        ),
    ] {
        group.bench_function(name, |bencher| bencher.iter(|| parse_url(black_box(url)).unwrap()));
    }
    group.finish();
}

criterion_group!(benches, frames, urls);
criterion_main!(benches);
