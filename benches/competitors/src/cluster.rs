//! Groups of members in this process, and handles of a Redis.
#![allow(clippy::unwrap_used, reason = "a figure that cannot be taken must not be printed")]

use std::sync::Arc;

use gaggle_fixtures::free_port;
use gaggle_workloads::Bare;

/// The channel of the members.
#[derive(Clone, Copy)]
pub(crate) enum Over<'a> {
    Memory,
    Tcp,
    /// A Redis' URL.
    Redis(&'a str),
}

/// Members that all vote, the leader first.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Arc<Bare>>,
}

impl Cluster {
    pub(crate) fn leader(&self) -> [Arc<Bare>; 1] {
        [self.members[0].clone()]
    }

    pub(crate) fn follower(&self) -> [Arc<Bare>; 1] {
        [self.members[1].clone()]
    }

    pub(crate) async fn close(&self) {
        for member in &self.members {
            member.0.close().await;
        }
    }

    /// `strategy`: `gaggle` or `raft`.
    pub(crate) async fn open(strategy: &str, count: usize, over: Over<'_>) -> Self {
        let mut members = Vec::new();
        for url in member_urls(strategy, count, over) {
            members.push(bare(&url).await);
        }
        for member in &members {
            member.0.ready().await.unwrap();
        }
        members.sort_by_key(|member| !member.0.group_status().is_some_and(|status| status.leads));
        Self { members }
    }
}

/// The URLs of all members of a group.
pub(crate) fn member_urls(strategy: &str, count: usize, over: Over<'_>) -> Vec<String> {
    // Groups may use a Redis one after another: each has its own topics.
    let cluster = format!("bench-{strategy}-{count}");
    let names: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
    let members = names.join(",");
    let addresses: Vec<String> =
        names.iter().map(|_| format!("127.0.0.1:{}", free_port())).collect();
    let peers: Vec<String> =
        names.iter().zip(&addresses).map(|(name, address)| format!("{name}@{address}")).collect();
    let peers = peers.join(",");
    let url = |(name, address): (&String, &String)| match over {
        Over::Memory => format!("{strategy}+memory://{cluster}?name={name}&members={members}"),
        Over::Redis(url) => {
            format!("{strategy}+{url}?cluster={cluster}&name={name}&members={members}")
        }
        Over::Tcp => {
            format!("{strategy}+tcp://{address}?cluster={cluster}&name={name}&peers={peers}")
        }
    };
    names.iter().zip(&addresses).map(url).collect()
}

/// Handles of a Redis, or of lock servers, each with its own connections.
pub(crate) async fn handles(urls: &[String], count: usize) -> Vec<Arc<Bare>> {
    let mut handles = Vec::new();
    for url in urls.iter().cycle().take(count) {
        handles.push(bare(url).await);
    }
    handles
}

async fn bare(url: &str) -> Arc<Bare> {
    Arc::new(Bare(gaggle::open(url).await.unwrap().strategy().clone()))
}
