//! Finds the master of a Redis Cluster that serves the slot of a namespace: each node that is
//! known is asked for it in turn.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{ConnectionAddr, ConnectionInfo, Value};

use super::{
    dial::{Dial, DialFuture, shown, unopened},
    query::{self, QueryClient},
    server::invalid,
};
use crate::{
    error::Error,
    redis::{
        error::{ConnectionError, is_unknown_command},
        protocol::{Node, slot_and_nodes},
    },
};

/// The port of a node that is given without one.
const PORT: u16 = 6379;
/// How a server without a Cluster begins its reply to `CLUSTER`.
const NO_CLUSTER: &str = "This instance has cluster support disabled";

/// Asks the nodes, beginning with another one in each attempt.
pub(super) struct ClusterDial {
    /// The nodes that the options name.
    seeds: Vec<ConnectionAddr>,
    /// The nodes of the slot, when last seen: they know the master if no seed is left.
    seen: Arc<Mutex<Vec<ConnectionAddr>>>,
    namespace: String,
    queries: QueryClient,
    attempts: usize,
}

impl ClusterDial {
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] for a server that is not a node of a Cluster.
    pub(super) fn new(
        info: &ConnectionInfo,
        more: &[String],
        namespace: String,
        queries: QueryClient,
    ) -> Result<Self, Error> {
        let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
            info.addr()
        else {
            return Err(invalid("a Unix socket".into(), "the nodes of a Cluster, host:port"));
        };
        let database = info.redis_settings().db();
        if database != 0 {
            return Err(invalid(database.to_string(), "database 0, the only one of a Cluster"));
        }
        let first = ConnectionAddr::Tcp(host.clone(), *port);
        let more = more.iter().map(|text| query::address(text, PORT));
        let seeds = [first].into_iter().chain(more).collect();
        Ok(Self { seeds, seen: Arc::default(), namespace, queries, attempts: 0 })
    }

    /// Asks one node, and connects to the master that it names.
    fn candidate(&self, node: ConnectionAddr, patience: Duration) -> DialFuture {
        let (namespace, seen, queries) =
            (self.namespace.clone(), self.seen.clone(), self.queries.clone());
        Box::pin(async move {
            let asked = masters(&node, &namespace, &queries);
            let asked = queries.transport().within(patience, asked).await.unwrap_or_else(|| {
                Err(ConnectionError::unreachable_within(shown(&node), "no reply", patience))
            });
            let nodes = asked.map_err(io::Error::other)?;
            let master = nodes[0].clone();
            *lock(&seen) = nodes;
            queries.transport().open(&master).await.map_err(|error| {
                let (master, node) = (shown(&master), shown(&node));
                let named = format!("{master}, which the node {node} names as master");
                io::Error::other(unopened(named, error))
            })
        })
    }
}

impl Dial for ClusterDial {
    fn dial(&mut self) -> Vec<DialFuture> {
        let mut nodes = self.seeds.clone();
        nodes.extend(lock(&self.seen).iter().filter(|node| !self.seeds.contains(node)).cloned());
        let (count, patience) = (nodes.len(), self.queries.patience());
        nodes.rotate_left(self.attempts % count);
        self.attempts += 1;
        nodes.into_iter().map(|node| self.candidate(node, patience)).collect()
    }

    fn may_move(&self) -> bool {
        true
    }

    fn has_pending_look_up(&self) -> bool {
        self.queries.transport().has_pending_look_up()
    }

    fn address(&self) -> String {
        self.seeds.iter().map(shown).collect::<Vec<_>>().join(",")
    }
}

/// The nodes of the slot of this namespace, as one node has them: the master first.
async fn masters(
    node: &ConnectionAddr,
    namespace: &str,
    queries: &QueryClient,
) -> Result<Vec<ConnectionAddr>, ConnectionError> {
    let (address, scheme) = (|| shown(node), queries.transport().scheme());
    // The name alone has the slot that it has as a hash tag.
    let questions: [&[&str]; 2] = [&["CLUSTER", "KEYSLOT", namespace], &["CLUSTER", "SLOTS"]];
    let replies = queries.ask(node, questions).await?;
    let replies = replies.map_err(|error| ConnectionError::of_attempt(address(), &error))?;
    for reply in &replies {
        if let Value::ServerError(error) = reply {
            return Err(match error.details() {
                Some(NO_CLUSTER) => ConnectionError::misconfigured(format!(
                    "Redis at {address} is not a node of a Cluster: write {scheme}://{address}",
                    address = address()
                )),
                _ if is_unknown_command(error) => ConnectionError::is_sentinel(&address(), scheme),
                _ => ConnectionError::of_command(&address(), "CLUSTER", error),
            });
        }
    }
    let read = slot_and_nodes(replies);
    let (slot, nodes) = read.map_err(|_| ConnectionError::NotRedis { address: address() })?;
    if nodes.is_empty() {
        let reason = format!("no node serves slot {slot}, of namespace {namespace}");
        return Err(ConnectionError::cluster_down(&address(), &reason));
    }
    let ConnectionAddr::Tcp(asked, _) = node else { unreachable!("a node has a host") };
    let of = |(host, port): Node| ConnectionAddr::Tcp(host.unwrap_or_else(|| asked.clone()), port);
    Ok(nodes.into_iter().map(of).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
