//! A Redis Cluster of the test's own: three masters, each with one replica.

use std::time::Instant;

use gaggle_fixtures::free_port;
use gaggle_strategies::RedisOptions;
use redis::Value;

use super::{Server, ms, secs};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// A server of a Cluster that knows no other.
pub(crate) fn node() -> Server {
    node_with(&[])
}

/// Like [`node`], with more arguments.
pub(crate) fn node_with(arguments: &[&str]) -> Server {
    let bus = free_port().to_string();
    let own = [
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        // A busy machine must not cause a failover.
        "--cluster-node-timeout",
        "2000",
        // A replica that was cut off is promoted as well.
        "--cluster-replica-validity-factor",
        "0",
        "--repl-diskless-sync-delay",
        "0",
    ];
    Server::start_with(&[&own, arguments].concat())
}

/// Six nodes: the replica of each of the first three is three behind it.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
    /// The slot of the namespace.
    pub(crate) slot: usize,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::of((0..2 * MASTERS).map(|_| node()).collect()).await
    }

    /// Makes a Cluster of six nodes.
    pub(crate) async fn of(nodes: Vec<Server>) -> Self {
        for (at, master) in nodes[..MASTERS].iter().enumerate() {
            let (first, last) = (SLOTS * at / MASTERS, SLOTS * (at + 1) / MASTERS - 1);
            let (first, last) = (first.to_string(), last.to_string());
            let _: Value = master.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await;
            let epoch = (at + 1).to_string();
            let _: Value = master.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        }
        for node in &nodes[1..] {
            let port = node.port().to_string();
            let bus: Vec<String> = node.command(&["CONFIG", "GET", "cluster-port"]).await;
            let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus[1]];
            let _: Value = nodes[0].command(&meet).await;
        }
        for node in &nodes {
            eventually(node, &["CLUSTER", "INFO"], "cluster_known_nodes:6").await;
        }
        for (master, replica) in nodes.iter().zip(&nodes[MASTERS..]) {
            let id: String = master.command(&["CLUSTER", "MYID"]).await;
            // A replica may know the address of its master before its name.
            eventually(replica, &["CLUSTER", "NODES"], &id).await;
            let _: Value = replica.command(&["CLUSTER", "REPLICATE", &id]).await;
            for node in &nodes {
                eventually(node, &["CLUSTER", "NODES"], &format!("slave {id}")).await;
            }
        }
        let slot = nodes[0].command(&["CLUSTER", "KEYSLOT", "gaggle"]).await;
        let cluster = Self { nodes, slot };
        for (at, node) in cluster.nodes.iter().enumerate() {
            eventually(node, &["CLUSTER", "INFO"], "cluster_state:ok").await;
            if at >= MASTERS {
                eventually(node, &["INFO", "replication"], "master_link_status:up").await;
            }
        }
        cluster
    }

    /// The number of the master that serves the slot at first.
    pub(crate) fn owner(&self) -> usize {
        (0..MASTERS).find(|at| self.slot < SLOTS * (at + 1) / MASTERS).unwrap()
    }

    /// The replica of a master.
    pub(crate) fn replica(&self, master: usize) -> &Server {
        &self.nodes[MASTERS + master]
    }

    /// Nodes as an option of a handle: all, from this one on.
    pub(crate) fn options_from(&self, first: usize) -> RedisOptions {
        let others = (1..self.nodes.len()).map(|at| &self.nodes[(first + at) % self.nodes.len()]);
        self.nodes[first].options().cluster(others.map(|node| format!("127.0.0.1:{}", node.port())))
    }

    /// Moves the slot with its keys to another master, a key at a time.
    pub(crate) async fn migrate(&self, from: usize, to: usize) {
        let (from, to, slot) = (&self.nodes[from], &self.nodes[to], self.slot.to_string());
        let source: String = from.command(&["CLUSTER", "MYID"]).await;
        let target: String = to.command(&["CLUSTER", "MYID"]).await;
        let port = to.port().to_string();
        let _: Value = to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).await;
        let _: Value = from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).await;
        let mut connection = from.connection().await;
        loop {
            let mut next = redis::cmd("CLUSTER");
            next.arg("GETKEYSINSLOT").arg(self.slot).arg(1);
            let keys: Vec<String> = next.query_async(&mut connection).await.unwrap();
            let Some(key) = keys.first() else { break };
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(&port).arg(key).arg(0).arg(5000);
            migrate.exec_async(&mut connection).await.unwrap();
        }
        for node in [to, from] {
            let _: Value = node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]).await;
        }
    }
}

/// Waits until the reply to a command contains `part`.
pub(crate) async fn eventually(node: &Server, words: &[&str], part: &str) {
    let limit = Instant::now() + secs(30);
    loop {
        let reply = format!("{:?}", node.command::<Value>(words).await);
        if reply.contains(part) {
            return;
        }
        assert!(Instant::now() < limit, "no {part}: {reply}");
        tokio::time::sleep(ms(20)).await;
    }
}
