//! Goal: the original's channel tests, by their names, on every channel. Method: three nodes of one
//! process; Memory in virtual time, the others over real sockets.

mod support {
    pub(crate) mod connect;
}

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gaggle_channels::{Channel, ChannelError, NodeName, Received, testing::RedisServer};
use tokio::time::timeout;

use crate::support::connect::{Connect, memory, names, redis, tcp};

/// Longer than any frame takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

type Node = Arc<dyn Channel>;

/// The next frame that is no greeting.
async fn next(node: &Node) -> (NodeName, Bytes) {
    let frame = async {
        loop {
            match node.receive().await.expect("connected") {
                Received::Frame { from, frame } if frame != GREETING => return (from, frame),
                _ => {}
            }
        }
    };
    timeout(PATIENCE, frame).await.expect("the frame arrives")
}

const GREETING: Bytes = Bytes::from_static(b"hello");

/// Three connected nodes that have all heard each other.
async fn three(connect: &Connect) -> Vec<Node> {
    let nodes: Vec<Node> = names(3).iter().map(connect).collect();
    for node in &nodes {
        node.connect().await.expect("connects");
    }
    for node in &nodes {
        let mut unheard: Vec<_> = nodes.iter().map(|node| node.name().clone()).collect();
        let meeting = async {
            while !unheard.is_empty() {
                for other in nodes.iter().filter(|other| unheard.contains(other.name())) {
                    other.send(node.name(), GREETING).expect("connected");
                }
                let heard = timeout(Duration::from_millis(50), node.receive()).await;
                if let Ok(Some(Received::Frame { from, .. })) = heard {
                    unheard.retain(|name| *name != from);
                }
            }
        };
        timeout(PATIENCE, meeting).await.expect("all hear each other");
    }
    nodes
}

async fn leave(nodes: Vec<Node>) {
    for node in nodes {
        node.disconnect().await;
    }
}

async fn validation(connect: Connect) {
    for name in [String::new(), "x".repeat(129)] {
        let refused = NodeName::new(&name);
        assert!(matches!(refused, Err(ChannelError::InvalidName { .. })), "{refused:?}");
    }
    let nodes = three(&connect).await;
    let long = Bytes::from(vec![0; nodes[0].frame_limit() + 1]);
    for refused in [nodes[0].send(nodes[1].name(), long.clone()), nodes[0].broadcast(long)] {
        assert!(matches!(refused, Err(ChannelError::FrameTooLong { .. })), "{refused:?}");
    }
    leave(nodes).await;
}

async fn connects_and_disconnects(connect: Connect) {
    let node = connect(&names(3)[0]);
    let frame = Bytes::from_static(b"early");
    let early = node.send(node.name(), frame.clone());
    assert!(matches!(early, Err(ChannelError::Disconnected)), "{early:?}");
    node.connect().await.expect("connects");
    node.connect().await.expect("connecting twice is no error");
    node.disconnect().await;
    node.disconnect().await;
    assert_eq!(node.receive().await, None);
    let late = node.broadcast(frame);
    assert!(matches!(late, Err(ChannelError::Disconnected)), "{late:?}");
}

async fn sends(connect: Connect) {
    let nodes = three(&connect).await;
    let frame = Bytes::from_static(b"to the second");
    nodes[0].send(nodes[1].name(), frame.clone()).expect("connected");
    assert_eq!(next(&nodes[1]).await, (nodes[0].name().clone(), frame));
    // Nobody else has received it: what comes next to the third was sent after it.
    let other = Bytes::from_static(b"to the third");
    nodes[0].send(nodes[2].name(), other.clone()).expect("connected");
    assert_eq!(next(&nodes[2]).await, (nodes[0].name().clone(), other));
    leave(nodes).await;
}

async fn sends_to_itself(connect: Connect) {
    let nodes = three(&connect).await;
    let frame = Bytes::from_static(b"to myself");
    nodes[0].send(nodes[0].name(), frame.clone()).expect("connected");
    assert_eq!(next(&nodes[0]).await, (nodes[0].name().clone(), frame));
    leave(nodes).await;
}

async fn keeps_the_order_of_fifty(connect: Connect) {
    let nodes = three(&connect).await;
    let frame = |number: u8| Bytes::from(vec![number]);
    for number in 0..50 {
        nodes[0].send(nodes[1].name(), frame(number)).expect("connected");
    }
    for number in 0..50 {
        assert_eq!(next(&nodes[1]).await.1, frame(number));
    }
    leave(nodes).await;
}

async fn broadcasts_to_three(connect: Connect) {
    let nodes = three(&connect).await;
    let frame = Bytes::from_static(b"to all");
    nodes[0].broadcast(frame.clone()).expect("connected");
    for node in &nodes {
        assert_eq!(next(node).await, (nodes[0].name().clone(), frame.clone()));
    }
    leave(nodes).await;
}

macro_rules! on_each {
    ($($test:ident),+ $(,)?) => {
        mod over_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test(super::memory()).await;
            })+
        }

        mod over_tcp {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::tcp(3)).await;
            })+
        }

        mod over_redis {
            $(#[tokio::test]
            async fn $test() {
                let server = super::RedisServer::start();
                super::$test(super::redis(&server)).await;
            })+
        }
    };
}

on_each!(
    validation,
    connects_and_disconnects,
    sends,
    sends_to_itself,
    keeps_the_order_of_fifty,
    broadcasts_to_three,
);
