//! The workloads of [`gaggle_cli::workloads`] over every strategy, with criterion's statistics.
//!
//! ```text
//! cargo bench --bench locks                 everything
//! cargo bench --bench locks -- headline     the seed's table: ms per increment
//! cargo bench --bench locks -- uncontended  one task, at the leader and at a follower
//! cargo bench --bench locks -- fan          64 tasks on 64 keys
//! cargo bench --bench locks -- handoff      8 and 64 tasks on one key
//! cargo bench --bench locks -- scale        by the number of members
//! ```
//!
//! The time of one iteration is the wall time of one lock and unlock, whoever made it. What a
//! throughput hides is printed beside it. Three members and a `redis-server` of the bench's own, all
//! in this process or on loopback.
#![allow(clippy::unwrap_used, reason = "a figure that cannot be taken must not be printed")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{Cluster, Over, beside, redis, runtime};
use criterion::{
    BenchmarkGroup, Criterion, SamplingMode, criterion_group, criterion_main, measurement::WallTime,
};
use gaggle::strategies::Local;
use gaggle_channels::testing::RedisServer;
use gaggle_cli::workloads::{self, Bare, Contender, NoLock, Workload};
use tokio::runtime::Runtime;

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// Measures one workload over these contenders.
fn measure<C: Contender>(
    group: &mut Group<'_>,
    runtime: &Runtime,
    name: &str,
    contenders: &[Arc<C>],
    workload: &Workload,
) {
    let mut last = None;
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let each = iterations.div_ceil(u64::from(workload.tasks));
            let workload = workload.clone().each(u32::try_from(each).unwrap());
            let run = workloads::run(contenders, &workload, "bench");
            let figures = runtime.block_on(run).unwrap();
            let one =
                Duration::from_secs_f64(figures.seconds) / u32::try_from(figures.pairs).unwrap();
            last = Some(figures);
            one * u32::try_from(iterations).unwrap()
        });
    });
    // None where a filter left it out.
    let Some(mut figures) = last else { return };
    if workload.inside().is_zero() {
        // Of a count, the slowest task makes its last locks alone: for a time, none is alone.
        let timed = workload.clone().lasting(Duration::from_secs(1));
        figures = runtime.block_on(workloads::run(contenders, &timed, "bench")).unwrap();
    }
    beside(name, &figures);
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> Group<'a> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(3));
    group
}

/// The seed's table: five members, 20 increments each, four steps of 15 ms.
fn headline(criterion: &mut Criterion) {
    const MEMBERS: usize = 5;
    let runtime = runtime();
    let server = RedisServer::start();
    let url = server.url();
    let mut group = group(criterion, "headline");
    // Ten samples of ten increments or more: 20 a member.
    group.sampling_mode(SamplingMode::Flat);
    group.measurement_time(Duration::from_millis(6400));
    measure(&mut group, &runtime, "sequential", &[Arc::new(NoLock)], &Workload::sequential(5));
    let both = |group: &mut Group<'_>, name: &str, contenders: &[Arc<Bare>]| {
        for (case, workload) in [("worst", Workload::worst(5)), ("best", Workload::best(5))] {
            measure(group, &runtime, &format!("{case}/{name}"), contenders, &workload);
        }
    };
    let handles = runtime.block_on(redis(&url, MEMBERS));
    both(&mut group, "redis", &handles);
    for over in [Over::Redis(&url), Over::Tcp, Over::Memory] {
        let cluster = runtime.block_on(Cluster::gaggle(MEMBERS, over));
        both(&mut group, &format!("gaggle-{}", over.name()), &cluster.members);
        runtime.block_on(cluster.close());
        let cluster = runtime.block_on(Cluster::raft(MEMBERS, over));
        both(&mut group, &format!("raft-{}", over.name()), &cluster.members);
        runtime.block_on(cluster.close());
    }
    group.finish();
}

/// Every strategy at its best place, and members also at a follower.
fn over_all(group: &mut Group<'_>, follower_too: bool, cases: &[(&str, Workload)]) {
    let runtime = runtime();
    let server = RedisServer::start();
    let url = server.url();
    let all = |group: &mut Group<'_>, name: &str, contenders: &[Arc<Bare>]| {
        for (case, workload) in cases {
            measure(group, &runtime, &format!("{case}{name}"), contenders, workload);
        }
    };
    all(group, "local", &[Arc::new(Bare(Arc::new(Local::new())))]);
    let handles = runtime.block_on(redis(&url, 1));
    all(group, "redis", &handles);
    for over in [Over::Memory, Over::Tcp, Over::Redis(&url)] {
        let cluster = runtime.block_on(Cluster::gaggle(3, over));
        all(group, &format!("gaggle-{}/leader", over.name()), &cluster.leader());
        if follower_too {
            all(group, &format!("gaggle-{}/follower", over.name()), &cluster.follower());
        }
        runtime.block_on(cluster.close());
    }
}

fn uncontended(criterion: &mut Criterion) {
    let mut group = group(criterion, "uncontended");
    over_all(&mut group, true, &[("", Workload::uncontended())]);
    group.finish();
}

fn fan(criterion: &mut Criterion) {
    let mut group = group(criterion, "fan");
    over_all(&mut group, true, &[("64/", Workload::fan(64))]);
    group.finish();
}

fn handoff(criterion: &mut Criterion) {
    let mut group = group(criterion, "handoff");
    let cases = [("8/", Workload::handoff(8)), ("64/", Workload::handoff(64))];
    over_all(&mut group, false, &cases);
    group.finish();
}

/// What more members cost.
fn scale(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = group(criterion, "scale");
    for members in [1, 3, 5, 7] {
        let cluster = runtime.block_on(Cluster::gaggle(members, Over::Memory));
        for (case, workload) in
            [("uncontended", Workload::uncontended()), ("fan64", Workload::fan(64))]
        {
            let name = format!("{case}/{members}");
            measure(&mut group, &runtime, &name, &cluster.leader(), &workload);
        }
        runtime.block_on(cluster.close());
    }
    group.finish();
}

criterion_group!(benches, headline, uncontended, fan, handoff, scale);
criterion_main!(benches);
