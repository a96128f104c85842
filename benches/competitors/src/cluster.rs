//! Clusters of members in this process, and handles of a Redis.
#![allow(clippy::unwrap_used, reason = "a figure that cannot be taken must not be printed")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use gaggle::{
    KeyedMutex,
    channels::{Channel, Hub, NodeName, Redis, RedisOptions, Tcp, TcpOptions},
    strategies::{Gaggle, MemberOptions, Raft},
};
use gaggle_workloads::Bare;

/// Over what members speak.
#[derive(Clone, Copy)]
pub(crate) enum Over<'a> {
    Memory,
    Tcp,
    /// A Redis' URL.
    Redis(&'a str),
}

impl Over<'_> {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tcp => "tcp",
            Self::Redis(_) => "redis",
        }
    }
}

/// Members that all vote, the leader first.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Arc<Bare>>,
    /// Keeps frames moving.
    _hub: Hub,
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

    pub(crate) async fn gaggle(count: usize, over: Over<'_>) -> Self {
        let hub = Hub::new();
        let mut members = Vec::new();
        for channel in channels(count, over, &hub).await {
            let member = Gaggle::open(channel, options(count, over)).await.unwrap();
            members.push(Arc::new(member));
        }
        let mut votes = Vec::new();
        for member in members {
            member.ready().await.unwrap();
            votes.push((!member.status().leads, Arc::new(Bare(member))));
        }
        Self::of(votes, hub)
    }

    pub(crate) async fn raft(count: usize, over: Over<'_>) -> Self {
        let hub = Hub::new();
        let mut members = Vec::new();
        for channel in channels(count, over, &hub).await {
            let options = options(count, over);
            members.push(Arc::new(Raft::open(channel, options).await.unwrap()));
        }
        let mut votes = Vec::new();
        for member in members {
            member.ready().await.unwrap();
            votes.push((!member.status().leads, Arc::new(Bare(member))));
        }
        Self::of(votes, hub)
    }

    fn of(mut votes: Vec<(bool, Arc<Bare>)>, hub: Hub) -> Self {
        votes.sort_by_key(|(follows, _)| *follows);
        Self { members: votes.into_iter().map(|(_, member)| member).collect(), _hub: hub }
    }
}

/// Handles of a Redis, each with connections of its own.
pub(crate) async fn redis(url: &str, count: usize) -> Vec<Arc<Bare>> {
    let mut handles = Vec::new();
    for _ in 0..count {
        let options = gaggle::strategies::RedisOptions::new(url);
        let redis = gaggle::strategies::Redis::open(options).await.unwrap();
        handles.push(Arc::new(Bare(Arc::new(redis))));
    }
    handles
}

fn names(count: usize) -> Vec<NodeName> {
    (0..count).map(|n| NodeName::new(format!("m{n}")).unwrap()).collect()
}

fn options(count: usize, over: Over<'_>) -> MemberOptions {
    MemberOptions::named(cluster(count, over), names(count))
}

/// One cluster after another may use a Redis: each size has topics of its own.
fn cluster(count: usize, over: Over<'_>) -> String {
    format!("bench-{}-{count}", over.name())
}

async fn channels(count: usize, over: Over<'_>, hub: &Hub) -> Vec<Arc<dyn Channel>> {
    let names = names(count);
    match over {
        Over::Memory => {
            names.into_iter().map(|name| Arc::new(hub.channel(name)) as Arc<dyn Channel>).collect()
        }
        Over::Redis(url) => {
            let channel = |name| {
                let options = RedisOptions::new(url, cluster(count, over), name);
                Arc::new(Redis::new(options).unwrap()) as Arc<dyn Channel>
            };
            names.into_iter().map(channel).collect()
        }
        Over::Tcp => {
            let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut channels = Vec::new();
            for name in names {
                let channel = Tcp::new(TcpOptions::new(name, loopback)).unwrap();
                channel.connect().await.unwrap();
                channels.push(Arc::new(channel));
            }
            for channel in &channels {
                for peer in channels.iter().filter(|peer| peer.name() != channel.name()) {
                    let address = peer.address().unwrap().to_string();
                    channel.add_peer(peer.name().clone(), address).await;
                }
            }
            channels.into_iter().map(|channel| channel as Arc<dyn Channel>).collect()
        }
    }
}
