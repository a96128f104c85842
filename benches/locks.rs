//! The cases of the Gaggle 1.x benchmark, with criterion's statistics: `cargo bench --bench locks`.
//!
//! Five members make increments of four steps of 15 ms: all under one key (*contended*), or each
//! under its own (*uncontended*). In the *sequential* baseline one task makes all of them without
//! a lock. The workloads are those of `gaggle bench`.
//!
//! An iteration is one round, an increment by each member. Its time is stated by the increment: the
//! ms/operation of Gaggle 1.x.

use std::{cell::OnceCell, process::Command, sync::Arc, time::Duration};

use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, criterion_group, criterion_main,
    measurement::WallTime,
};
use gaggle::Locker;
use gaggle_fixtures::{RedisServer, free_port, redis_program};
use gaggle_workloads::{BoxError, Figures, NoLock, Workload, run};
use tokio::runtime::{Builder, Runtime};

type Group<'a> = BenchmarkGroup<'a, WallTime>;

const MEMBERS: usize = 5;

/// Ten samples of about five contended rounds, or of ten uncontended ones.
const CONTENDED: Duration = Duration::from_secs(16);
const UNCONTENDED: Duration = Duration::from_secs(6);

/// A lock to measure: its name, and a URL for each member.
type Setup = (String, Vec<String>);

fn gaggle1(criterion: &mut Criterion) {
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let redis = start_redis();
    let mut group = criterion.benchmark_group("gaggle1");
    group.sample_size(10).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_secs(1));
    group.measurement_time(CONTENDED);
    let tasks = u32::try_from(MEMBERS).expect("five members");
    measure(&mut group, BenchmarkId::from_parameter("sequential"), |rounds| {
        let workload = Workload::sequential(tasks).each(tasks * rounds);
        runtime.block_on(run(&[NoLock.into()], &workload, ""))
    });
    for setup in setups(redis.as_ref().map(RedisServer::url).as_deref()) {
        measure_both(&mut group, &runtime, &setup);
    }
    group.finish();
}

/// The server of the benchmark; without one, the cases that need it are left out.
fn start_redis() -> Option<RedisServer> {
    let program = redis_program();
    if let Err(error) = Command::new(&program).arg("--version").output() {
        let program = program.display();
        eprintln!("{program} does not start ({error}): the cases on Redis are left out");
        return None;
    }
    let server = RedisServer::start();
    eprintln!("started {} on port {} for this run", program.display(), server.port());
    Some(server)
}

/// Every strategy over every channel that this machine has.
fn setups(redis: Option<&str>) -> Vec<Setup> {
    // Another handle of `local:` would be another lock.
    let mut setups = vec![("local".to_owned(), vec!["local:".to_owned()])];
    setups.extend(redis.map(|url| ("redis".to_owned(), vec![url.to_owned(); MEMBERS])));
    let channels = ["memory", "tcp"].into_iter().chain(redis.map(|_| "redis"));
    for (family, channel) in channels.flat_map(|channel| ["gaggle", "raft"].map(|it| (it, channel)))
    {
        let urls = members(family, channel, redis.unwrap_or_default());
        setups.push((format!("{family} {channel}"), urls));
    }
    setups
}

/// The URLs of the members of a group.
fn members(family: &str, channel: &str, redis: &str) -> Vec<String> {
    let names: Vec<_> = (0..MEMBERS).map(|member| format!("m{member}")).collect();
    let listed = names.join(",");
    let addresses = || names.iter().map(|_| format!("127.0.0.1:{}", free_port()));
    let at: Vec<_> = if channel == "tcp" { addresses().collect() } else { Vec::new() };
    let peers: Vec<_> = names.iter().zip(&at).map(|(name, at)| format!("{name}@{at}")).collect();
    let peers = peers.join(",");
    let url = |(member, name): (usize, &String)| match channel {
        "memory" => format!("{family}+memory://bench-{family}?name={name}&members={listed}"),
        "redis" => format!("{family}+{redis}?cluster={family}&name={name}&members={listed}"),
        _ => format!("{family}+tcp://{}?cluster=bench&name={name}&peers={peers}", at[member]),
    };
    names.iter().enumerate().map(url).collect()
}

/// The contended and the uncontended case of one lock, which is opened unless a filter excludes
/// both.
fn measure_both(group: &mut Group<'_>, runtime: &Runtime, (name, urls): &Setup) {
    let opened = OnceCell::new();
    let lockers = || opened.get_or_init(|| runtime.block_on(open(urls)).expect("a lock opens"));
    let tasks = u32::try_from(MEMBERS).expect("five members");
    let cases = [
        ("contended", Workload::gaggle1_contended(tasks), CONTENDED),
        ("uncontended", Workload::gaggle1_uncontended(tasks), UNCONTENDED),
    ];
    for (case, workload, time) in cases {
        group.measurement_time(time);
        measure(group, BenchmarkId::new(case, name), |rounds| {
            let workload = workload.clone().each(rounds);
            runtime.block_on(run(lockers(), &workload, "bench"))
        });
    }
    for locker in opened.into_inner().unwrap_or_default() {
        runtime.block_on(locker.close());
    }
}

/// Members that vote, and have locked once, which opens lazy connections.
async fn open(urls: &[String]) -> Result<Vec<Arc<Locker>>, BoxError> {
    let mut lockers = Vec::new();
    for url in urls {
        lockers.push(Arc::new(gaggle::open(url).await?));
    }
    for locker in &lockers {
        locker.ready().await?;
        locker.lock("bench").await?.unlock().await?;
    }
    Ok(lockers)
}

fn measure(
    group: &mut Group<'_>,
    id: BenchmarkId,
    mut run: impl FnMut(u32) -> Result<Figures, BoxError>,
) {
    group.bench_function(id, |bencher| {
        bencher.iter_custom(|rounds| {
            let rounds = u32::try_from(rounds).expect("few rounds fit into the time");
            let figures = run(rounds).expect("every lock is granted and unlocked");
            assert!(!figures.broken.any(), "the lock broke a promise: {figures:?}");
            Duration::from_secs_f64(figures.ms_per_pair / 1e3) * rounds
        });
    });
}

criterion_group!(benches, gaggle1);
criterion_main!(benches);
