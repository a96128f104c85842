//! Makers of channels: one hub, one set of ports, one Redis for all nodes of a test.

#![allow(dead_code, reason = "every test file uses its part")]

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use gaggle_channels::{Channel, Hub, NodeName, Redis, RedisOptions, Tcp, TcpOptions};
use gaggle_fixtures::{RedisServer, free_port};

/// Makes the channel of a node, for each start of the node.
pub(crate) type Connect = Box<dyn Fn(&NodeName) -> Arc<dyn Channel> + Send + Sync>;

/// The names of a test's nodes.
pub(crate) fn names(size: usize) -> Vec<NodeName> {
    let name = |number| NodeName::new(format!("member-{number}")).expect("a short name");
    (0..size).map(name).collect()
}

/// A hub without faults.
pub(crate) fn memory() -> Connect {
    let hub = Hub::new();
    Box::new(move |name| Arc::new(hub.channel(name.clone())))
}

/// Free loopback ports, one for each of `size` nodes.
pub(crate) fn tcp(size: usize) -> Connect {
    let place = |name| (name, SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
    let places: BTreeMap<NodeName, SocketAddr> = names(size).into_iter().map(place).collect();
    Box::new(move |name| {
        let others = places.iter().filter(|(other, _)| *other != name);
        let options = TcpOptions::new(name.clone(), places[name]);
        let options = others.fold(options, |options, (other, address)| {
            options.peer(other.clone(), address.to_string())
        });
        Arc::new(Tcp::new(options).expect("the options are in their limits"))
    })
}

/// The pub/sub of this server.
pub(crate) fn redis(server: &RedisServer) -> Connect {
    let url = server.url();
    Box::new(move |name| {
        let options = RedisOptions::new(url.clone(), "test", name.clone());
        Arc::new(Redis::new(options).expect("the options are in their limits"))
    })
}
