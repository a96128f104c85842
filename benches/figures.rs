//! The figures of the README that `gaggle increment` does not show.
//!
//! ```text
//! cargo bench --bench figures -- latency    lock p50 and p99, uncontended, leader and follower
//! cargo bench --bench figures -- failover   leader stopped, to the next grant, ten times
//! cargo bench --bench figures -- memory     before and after a million lock/unlock pairs
//! ```
//!
//! Three members in one process, each with a channel of its own. This is a program and not a
//! statistics harness: each figure is printed as it was measured, once.
#![allow(clippy::unwrap_used)] // a figure that cannot be taken must not be printed
#![allow(clippy::disallowed_methods)] // a benchmark reads the clock

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use gaggle_channels::{
    Channel, Hub, NodeName, Redis, RedisOptions, Tcp, TcpOptions, testing::RedisServer,
};
use gaggle_strategies::{
    Gaggle, KeyedMutex, Local, LockOptions, MemberOptions, Redis as RedisStrategy,
    RedisOptions as RedisStrategyOptions,
};

const NAMES: [&str; 3] = ["a", "b", "c"];
const PAIRS: usize = 5_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // `cargo bench` adds an argument of its own.
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let all = asked.is_empty();
    let wants = |what: &str| all || asked.iter().any(|asked| asked == what);
    if wants("latency") {
        latency().await;
    }
    if wants("failover") {
        failover().await;
    }
    if wants("memory") {
        memory().await;
    }
}

fn names() -> Vec<NodeName> {
    NAMES.iter().map(|name| NodeName::new(name).unwrap()).collect()
}

async fn open(channel: Arc<dyn Channel>) -> Arc<Gaggle> {
    Arc::new(Gaggle::open(channel, MemberOptions::named("bench", names())).await.unwrap())
}

async fn ready(members: Vec<Arc<Gaggle>>) -> Vec<Arc<Gaggle>> {
    for member in &members {
        member.ready().await.unwrap();
    }
    members
}

async fn over_memory(hub: &Hub) -> Vec<Arc<Gaggle>> {
    let mut members = Vec::new();
    for name in names() {
        members.push(open(Arc::new(hub.channel(name))).await);
    }
    ready(members).await
}

async fn over_redis(server: &RedisServer) -> Vec<Arc<Gaggle>> {
    let mut members = Vec::new();
    for name in names() {
        let options = RedisOptions::new(server.url(), "bench", name);
        members.push(open(Arc::new(Redis::new(options).unwrap())).await);
    }
    ready(members).await
}

async fn over_tcp() -> Vec<Arc<Gaggle>> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut channels = Vec::new();
    for name in names() {
        let channel = Tcp::new(TcpOptions::new(name, loopback)).unwrap();
        channel.connect().await.unwrap();
        channels.push(Arc::new(channel));
    }
    let mut members = Vec::new();
    for channel in &channels {
        for peer in channels.iter().filter(|peer| peer.name() != channel.name()) {
            channel.add_peer(peer.name().clone(), peer.local_addr().unwrap().to_string()).await;
        }
        members.push(open(channel.clone()).await);
    }
    ready(members).await
}

async fn latency() {
    println!("lock, uncontended, {PAIRS} lock/unlock pairs in sequence, 3 members in one process");
    println!(
        "{:<10} {:<10} {:>8} {:>8} {:>10}",
        "strategy", "member", "p50 µs", "p99 µs", "pairs/s"
    );
    show("local", "-", &Local::new()).await;
    let server = RedisServer::start();
    let redis = RedisStrategy::open(RedisStrategyOptions::new(server.url())).await.unwrap();
    show("redis", "-", &redis).await;
    redis.close().await;
    let hub = Hub::new();
    for (channel, members) in [
        ("memory", over_memory(&hub).await),
        ("redis", over_redis(&server).await),
        ("tcp", over_tcp().await),
    ] {
        let leader = members.iter().find(|member| member.status().leads).unwrap();
        let follower = members.iter().find(|member| !member.status().leads).unwrap();
        show(&format!("gaggle/{channel}"), "leader", &**leader).await;
        show(&format!("gaggle/{channel}"), "follower", &**follower).await;
        for member in &members {
            member.close().await;
        }
    }
}

async fn show(strategy: &str, place: &str, mutex: &dyn KeyedMutex) {
    let (mut took, started) = (Vec::with_capacity(PAIRS), Instant::now());
    for _ in 0..PAIRS {
        let asked = Instant::now();
        let lock = mutex.lock("k", LockOptions::default()).await.unwrap();
        took.push(asked.elapsed());
        mutex.unlock(&lock).await.unwrap();
    }
    let rate = PAIRS as f64 / started.elapsed().as_secs_f64();
    took.sort();
    let at = |share: usize| took[PAIRS * share / 100].as_nanos() as f64 / 1000.0;
    println!("{strategy:<14} {place:<10} {:>8.1} {:>8.1} {rate:>10.0}", at(50), at(99));
}

/// The leader's member is cut from the hub; the survivors' next grant ends the clock. The cut-off
/// member is then closed and a fresh one started under its name.
async fn failover() {
    println!("failover: leader stopped, to the next grant at a survivor; 150-300 ms timeouts");
    let hub = Hub::new();
    let mut members = over_memory(&hub).await;
    let mut took = Vec::new();
    for _ in 0..10 {
        let place = members.iter().position(|member| member.status().leads).unwrap();
        let leader = members.remove(place);
        let name = leader.status().leader.unwrap();
        let survivor = members[0].clone();
        hub.isolate(&name);
        let stopped = Instant::now();
        // A call that the dead leader cannot answer waits for the next one.
        let lock = survivor.lock("k", LockOptions::default()).await.unwrap();
        took.push(stopped.elapsed());
        survivor.unlock(&lock).await.unwrap();
        leader.close().await;
        hub.heal();
        members.push(open(Arc::new(hub.channel(name))).await);
        members = ready(members).await;
    }
    let list: Vec<u128> = took.iter().map(Duration::as_millis).collect();
    took.sort();
    let ms = |at: usize| took[at].as_millis();
    println!("ms: {list:?}; min {} median {} max {}", ms(0), ms(5), ms(9));
}

async fn memory() {
    const TASKS: usize = 64;
    const EACH: usize = 1_000_000 / TASKS;
    let hub = Hub::new();
    let members = over_memory(&hub).await;
    for leads in [true, false] {
        let place = if leads { "the leader" } else { "a follower" };
        let member = members.iter().find(|member| member.status().leads == leads).unwrap();
        println!("a million lock/unlock pairs at {place}, {TASKS} tasks on {TASKS} keys");
        println!("before: {} MiB resident", resident_mib());
        let started = Instant::now();
        let mut tasks = Vec::new();
        for task in 0..TASKS {
            let member = member.clone();
            tasks.push(tokio::spawn(async move {
                let key = format!("k{task}");
                for _ in 0..EACH {
                    let lock = member.lock(&key, LockOptions::default()).await.unwrap();
                    member.unlock(&lock).await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let rate = (TASKS * EACH) as f64 / started.elapsed().as_secs_f64();
        println!("after: {} MiB resident, {rate:.0} pairs/s", resident_mib());
        println!("{:?}", member.sizes().await.unwrap());
        // Longer than nonces are remembered, and than the sweep that follows.
        tokio::time::sleep(Duration::from_secs(45)).await;
        println!("45 s later: {} MiB resident", resident_mib());
        println!("{:?}", member.sizes().await.unwrap());
    }
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
