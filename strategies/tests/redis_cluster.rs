//! Goal: a handle finds the master of its slot in a Redis Cluster, follows it, and loses what a new
//! master does not know; a server without a Cluster, or one that does not serve, is named.
//! Method: Clusters of the test's own. The slot migrates, and its master fails over or is killed;
//! workers count the holders of each key.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use gaggle_fixtures::free_port;
use gaggle_strategies::{
    Error, KeyedMutex, LockOptions, Redis, RedisOptions, error::UnavailableKind,
};
use redis::Value;
use redis_support::{
    Server, at_once,
    cluster::{Cluster, eventually, node, node_with},
    cut_off, ms, patient, secs, take,
};
use tokio::task::JoinSet;

/// Workers that lock few keys in a loop, and count the holders of each.
struct Load {
    stopped: Arc<AtomicBool>,
    grants: Arc<AtomicU64>,
    workers: JoinSet<()>,
}

impl Load {
    fn start(handles: &[Arc<Redis>]) -> Self {
        let (stopped, grants) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut workers = JoinSet::new();
        for key in ["busy", "busier"] {
            let believed = Arc::<AtomicBool>::default();
            for handle in handles.iter().cycle().take(6) {
                let handle = handle.clone();
                let (believed, stopped, grants) =
                    (believed.clone(), stopped.clone(), grants.clone());
                workers.spawn(async move {
                    while !stopped.load(Ordering::Relaxed) {
                        let lock = handle.lock(key, patient()).await.unwrap();
                        assert!(!believed.swap(true, Ordering::SeqCst), "two hold {key}");
                        tokio::time::sleep(ms(2)).await;
                        believed.store(false, Ordering::SeqCst);
                        handle.unlock(&lock).await.unwrap();
                        grants.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        Self { stopped, grants, workers }
    }

    /// Waits for a hundred more grants.
    async fn progress(&mut self) {
        let target = self.grants.load(Ordering::Relaxed) + 100;
        let limit = Instant::now() + secs(30);
        while self.grants.load(Ordering::Relaxed) < target {
            assert!(Instant::now() < limit, "no more grants");
            if let Some(ended) = self.workers.try_join_next() {
                ended.unwrap();
            }
            tokio::time::sleep(ms(5)).await;
        }
    }

    async fn stop(self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.workers.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_is_followed_and_no_key_has_two_holders() {
    let cluster = Cluster::start().await;
    let (owner, next) = (cluster.owner(), (cluster.owner() + 1) % 3);
    // The first node of one handle does not serve the slot, that of the other is a replica.
    let options = [next, owner + 3].map(|first| cluster.options_from(first));
    let mut handles = Vec::new();
    for options in options {
        // No unlock may end before a migration does.
        let options = options.request_timeout(secs(20));
        handles.push(Arc::new(Redis::open(options).await.unwrap()));
    }
    let kept = take(&handles[0], "kept", secs(60)).await;
    let mut load = Load::start(&handles);
    load.progress().await;
    cluster.migrate(owner, next).await;
    load.progress().await;
    let served = |node: usize| cluster.nodes[node].keys();
    assert!(served(owner).await.is_empty() && !served(next).await.is_empty());
    // A failover by command loses nothing: the replica takes over when it has all.
    let _: Value = cluster.replica(next).command(&["CLUSTER", "FAILOVER"]).await;
    eventually(cluster.replica(next), &["INFO", "replication"], "role:master").await;
    load.progress().await;
    load.stop().await;
    assert!(!handles[0].watch(&kept).is_lost());
    assert!(matches!(handles[1].lock("kept", at_once(secs(1))).await, Err(Error::Held(_))));
    handles[0].unlock(&kept).await.unwrap();
    let again = take(&handles[1], "kept", secs(60)).await;
    assert!(again.fencing_token() > kept.fencing_token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_master_loses_what_its_replica_lacks() {
    let cluster = Cluster::start().await;
    let (master, replica) = (&cluster.nodes[cluster.owner()], cluster.replica(cluster.owner()));
    // A node lists a replica once that has replicated something.
    let first = Redis::open(master.options().cluster([""; 0])).await.unwrap();
    take(&first, "first", secs(1)).await;
    eventually(master, &["CLUSTER", "SLOTS"], &replica.port().to_string()).await;
    // The handle learns of the replica from the only node that it was given, which is killed.
    let redis = Redis::open(master.options().cluster([""; 0])).await.unwrap();
    let kept = take(&redis, "kept", secs(60)).await;
    let _: u64 = master.command(&["WAIT", "1", "5000"]).await;
    // A lease that the replica does not know.
    cut_off(master, slice::from_ref(replica)).await;
    let lost = take(&redis, "lost", secs(60)).await;
    let (watch_kept, watch_lost) = (redis.watch(&kept), redis.watch(&lost));
    master.down();
    replica.signal("CONT");
    let next = redis.lock("lost", LockOptions::default().max_wait(secs(30))).await.unwrap();
    assert!(next.fencing_token() > lost.fencing_token());
    tokio::time::timeout(secs(5), watch_lost.lost()).await.unwrap();
    assert!(!watch_kept.is_lost());
    redis.unlock(&kept).await.unwrap();
    redis.unlock(&next).await.unwrap();
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_serves_over_tls() {
    use gaggle_fixtures::{Certificates, tls_arguments};
    let (certificates, ports) = (Certificates::new(), [(); 6].map(|()| free_port()));
    let nodes = ports.map(|port| {
        let mut arguments = tls_arguments(&certificates, port);
        arguments.extend(["--tls-cluster", "yes"].map(str::to_owned));
        node_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let cluster = Cluster::of(nodes.into()).await;
    // The nodes name addresses, and the certificates are for a host.
    let options = |first: usize| {
        let others = ports.iter().map(|port| format!("localhost:{port}"));
        RedisOptions::new(format!("rediss://localhost:{}", ports[first]))
            .cluster(others)
            .tls(redis_support::trust(&certificates))
            .tls_name("localhost")
    };
    let redis = Redis::open(options((cluster.owner() + 1) % 3)).await.unwrap();
    let lock = take(&redis, "k", secs(10)).await;
    let other = Redis::open(options(cluster.owner() + 3)).await.unwrap();
    assert!(matches!(other.lock("k", at_once(secs(1))).await, Err(Error::Held(_))));
    redis.unlock(&lock).await.unwrap();
    take(&other, "k", secs(10)).await;
}

/// The kind and the cause of a refusal, without the port of the server.
async fn refused(server: &Server, options: RedisOptions) -> (UnavailableKind, String) {
    match Redis::open(options).await {
        Err(error @ Error::Unavailable { kind, .. }) => {
            (kind, error.to_string().replace(&server.port().to_string(), "PORT"))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_cluster_or_a_broken_one_is_named() {
    let (single, alone) = (Server::start().await, node());
    let in_cluster = |server: &Server| server.options().cluster([""; 0]);
    let (kind, cause) = refused(&single, in_cluster(&single)).await;
    assert_eq!(kind, UnavailableKind::Misconfigured);
    assert_eq!(
        cause,
        "Redis at 127.0.0.1:PORT is not a node of a Cluster: write redis://127.0.0.1:PORT"
    );
    let (kind, cause) = refused(&alone, alone.options()).await;
    assert_eq!(kind, UnavailableKind::Misconfigured);
    assert!(cause.ends_with("a Cluster: write redis+cluster://127.0.0.1:PORT"), "{cause}");
    let opened = Redis::open(RedisOptions::new(format!("{}2", alone.url())).cluster(["h"])).await;
    assert!(matches!(opened, Err(Error::InvalidOptions { field: "url", .. })), "{opened:?}");

    let slot: u64 = alone.command(&["CLUSTER", "KEYSLOT", "gaggle"]).await;
    let (kind, cause) = refused(&alone, in_cluster(&alone)).await;
    assert_eq!(kind, UnavailableKind::Refused);
    assert!(cause.contains(&format!("no node serves slot {slot}, of namespace gaggle")), "{cause}");
    let _: Value = alone.command(&["CLUSTER", "ADDSLOTS", &slot.to_string()]).await;
    let (kind, cause) = refused(&alone, in_cluster(&alone)).await;
    assert_eq!(kind, UnavailableKind::Refused);
    assert!(cause.contains("does not serve: CLUSTERDOWN"), "{cause}");
    let before = (slot - 1).to_string();
    let after = (slot + 1).to_string();
    for (first, last) in [("0", &*before), (&*after, "16383")] {
        let _: Value = alone.command(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await;
    }
    eventually(&alone, &["CLUSTER", "INFO"], "cluster_state:ok").await;
    Redis::open(in_cluster(&alone)).await.unwrap();

    let _: Value = alone.command(&["CONFIG", "SET", "requirepass", "secret"]).await;
    let login = RedisOptions::new(alone.url().replace("redis://", "redis://:wrong@"));
    let (kind, cause) = refused(&alone, login.cluster([""; 0])).await;
    assert_eq!(kind, UnavailableKind::Misconfigured);
    assert!(cause.ends_with("refused the user name or the password"), "{cause}");
    let (kind, cause) = refused(&alone, in_cluster(&alone)).await;
    assert_eq!(kind, UnavailableKind::Misconfigured);
    assert!(cause.ends_with("write :PASSWORD@ before the host"), "{cause}");

    let (dead, other) = (free_port(), free_port());
    let none = RedisOptions::new(format!("redis://127.0.0.1:{dead}"));
    let (kind, cause) = refused(&alone, none.cluster([format!("127.0.0.1:{other}")])).await;
    assert_eq!(kind, UnavailableKind::Unreachable);
    assert!(cause.contains(&format!("127.0.0.1:{other}: connection refused")), "{cause}");
}
