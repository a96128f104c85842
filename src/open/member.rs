//! Opens a member of the Raft family and its channel.

use std::sync::Arc;
#[cfg(feature = "tcp")]
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

#[cfg(feature = "tcp")]
use gaggle_channels::NodeName;
use gaggle_channels::{self as channels, Channel};
use gaggle_strategies::{Gaggle, MemberOptions, Raft};

#[cfg(feature = "redis")]
use super::target::Secret;
use super::{
    scheme::Policy,
    target::{Group, Link, Member},
};
use crate::{Locker, OpenError};

pub(super) async fn open(member: Member) -> Result<Locker, OpenError> {
    let channel = channel(&member)?;
    let policy = member.policy;
    let options = member_options(member);
    Ok(match policy {
        Policy::Raft => Locker::new(Raft::open(channel, options).await?),
        Policy::Gaggle => Locker::new(Gaggle::open(channel, options).await?),
    })
}

fn channel(member: &Member) -> Result<Arc<dyn Channel>, OpenError> {
    match &member.link {
        Link::Memory => {
            let hub = channels::Hub::shared(&member.cluster);
            Ok(Arc::new(hub.channel(member.name.clone())))
        }
        #[cfg(feature = "redis")]
        Link::Redis { server } => {
            Ok(Arc::new(channels::Redis::new(channel_options(member, server))?))
        }
        #[cfg(not(feature = "redis"))]
        Link::Redis { .. } => Err(OpenError::FeatureOff { scheme: "+redis", feature: "redis" }),
        #[cfg(feature = "tcp")]
        Link::Tcp { listen, peers, insecure } => {
            if let Some(entry) = peers.get(&member.name) {
                warn_of_another_address(&member.name, *listen, entry);
            }
            let options = tcp_options(&member.name, *listen, peers, *insecure);
            Ok(Arc::new(channels::Tcp::new(options)?))
        }
        #[cfg(not(feature = "tcp"))]
        Link::Tcp { .. } => Err(OpenError::FeatureOff { scheme: "+tcp", feature: "tcp" }),
    }
}

#[cfg(feature = "redis")]
pub(super) fn channel_options(member: &Member, server: &Secret) -> channels::RedisOptions {
    channels::RedisOptions::new(&server.0, &member.cluster, member.name.clone())
}

#[cfg(feature = "tcp")]
pub(super) fn tcp_options(
    name: &NodeName,
    listen: SocketAddr,
    peers: &BTreeMap<NodeName, String>,
    insecure: bool,
) -> channels::TcpOptions {
    // One list does for all members: each leaves out itself.
    let others = peers.iter().filter(|(peer, _)| *peer != name);
    let options = channels::TcpOptions::new(name.clone(), listen).insecure(insecure);
    others.fold(options, |options, (peer, address)| options.peer(peer.clone(), address))
}

/// The other members connect to a member's entry in `peers`.
#[cfg(feature = "tcp")]
fn warn_of_another_address(name: &NodeName, listen: SocketAddr, entry: &str) {
    let Some((host, port)) = entry.rsplit_once(':') else { return };
    let (any, ip) = (listen.ip().is_unspecified(), listen.ip());
    let host_differs = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(host) => !any && host != ip,
        Err(_) if host == "localhost" => !any && !ip.is_loopback(),
        // What the others resolve a name to is not known here.
        Err(_) => false,
    };
    if host_differs || port.parse() != Ok(listen.port()) {
        tracing::warn!(
            %name, %listen, peers_entry = entry,
            "own entry in peers differs from the address listened on; \
             the group forms only if the network maps one to the other"
        );
    }
}

pub(super) fn member_options(member: Member) -> MemberOptions {
    let mut options = match member.group {
        Group::Named(names) => MemberOptions::named(&member.cluster, names),
        Group::Sized(size) => MemberOptions::sized(&member.cluster, size),
    };
    if let Some(heartbeat) = member.heartbeat {
        options = options.heartbeat(heartbeat);
    }
    if let Some((min, max)) = member.election_timeout {
        options = options.election_timeout(min, max);
    }
    if let Some(timeout) = member.request_timeout {
        options = options.request_timeout(timeout);
    }
    if let Some(lease) = member.outside_max {
        options = options.outside_max(lease);
    }
    options
}
