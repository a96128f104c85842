//! One suite over every channel, and servers and ports for the tests of this workspace.
//!
//! A third party runs it on its own [`Channel`] by writing a [`Fixture`]:
//!
//! ```
//! use std::sync::Arc;
//!
//! use gaggle_channels::{Channel, Hub, NodeName, testing};
//!
//! struct OverMemory;
//!
//! #[async_trait::async_trait]
//! impl testing::Fixture for OverMemory {
//!     async fn nodes(&self, names: &[&str]) -> Vec<Arc<dyn Channel>> {
//!         let hub = Hub::new();
//!         let mut nodes = Vec::new();
//!         for name in names {
//!             let node = hub.channel(NodeName::new(name).expect("a short name"));
//!             node.connect().await.expect("the hub takes every name");
//!             nodes.push(Arc::new(node) as Arc<dyn Channel>);
//!         }
//!         nodes
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! testing::conformance(&OverMemory).await;
//! # }
//! ```

#[cfg(feature = "tls")]
mod certificates;
#[doc(hidden)]
pub mod decoders;
mod events;
mod free_port;
mod proxy;
mod redis_sentinel;
mod redis_server;
mod secret_urls;
mod strangers;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::timeout;

#[cfg(feature = "tls")]
pub use self::{certificates::Certificates, redis_server::tls_arguments};
pub use self::{
    events::Events,
    free_port::free_port,
    proxy::Proxy,
    redis_sentinel::RedisSentinel,
    redis_server::{RedisServer, redis_program},
    secret_urls::{SECRET_PARTS, secret_urls},
    strangers::Strangers,
};
use crate::{Channel, ChannelError, FRAME_BYTES_MAX, NodeName, Received};

/// How long a frame may take on a machine that is busy.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);
/// How long a test waits for a frame that must not arrive.
const QUIET: Duration = Duration::from_millis(150);

/// Makes channels that can talk to each other.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Connected nodes of these names, in a separate cluster; every pair can talk when this
    /// returns.
    async fn nodes(&self, names: &[&str]) -> Vec<Arc<dyn Channel>>;

    /// Whether nodes may have any name. Otherwise names are labels of DNS names.
    fn takes_any_name(&self) -> bool {
        true
    }
}

/// Runs every case.
///
/// # Panics
///
/// On the first case that fails.
pub async fn conformance(fixture: &dyn Fixture) {
    frames_arrive_at_the_node_they_are_sent_to(fixture).await;
    counters_count_each_frame_once(fixture).await;
    a_frame_to_oneself_arrives(fixture).await;
    order_is_kept_per_pair(fixture).await;
    a_broadcast_reaches_every_node_and_its_sender(fixture).await;
    if fixture.takes_any_name() {
        names_differ_by_any_byte(fixture).await;
    }
    frames_of_every_length_arrive_whole(fixture).await;
    a_frame_too_long_is_refused(fixture).await;
    a_frame_to_an_unknown_node_is_no_error(fixture).await;
    receive_is_cancel_safe(fixture).await;
    sending_never_blocks(fixture).await;
    a_disconnected_channel_ends_and_refuses(fixture).await;
    a_channel_connects_again(fixture).await;
    connecting_and_disconnecting_twice_is_no_error(fixture).await;
}

/// The next frame and its sender.
async fn frame(node: &Arc<dyn Channel>) -> (String, Bytes) {
    loop {
        let received = timeout(ARRIVES_WITHIN, node.receive()).await.expect("a frame arrives");
        if let Received::Frame { from, frame } = received.expect("the channel is connected") {
            return (from.to_string(), frame);
        }
    }
}

async fn assert_quiet(node: &Arc<dyn Channel>) {
    while let Ok(received) = timeout(QUIET, node.receive()).await {
        let frame = matches!(received, Some(Received::Frame { .. }) | None);
        assert!(!frame, "{}: nothing more was sent, but {received:?} came", node.name());
    }
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).expect("a short name")
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn frames_arrive_at_the_node_they_are_sent_to(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b", "c"]).await;
    nodes[0].send(&name("b"), text("for b")).expect("it is connected");
    nodes[2].send(&name("a"), text("for a")).expect("it is connected");
    assert_eq!(frame(&nodes[1]).await, ("a".into(), text("for b")));
    assert_eq!(frame(&nodes[0]).await, ("c".into(), text("for a")));
    assert_quiet(&nodes[2]).await;
}

async fn counters_count_each_frame_once(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    // A lost connection counts as well, and is received first.
    assert_quiet(&nodes[1]).await;
    let (a, b) = (nodes[0].counters(), nodes[1].counters());
    for _ in 0..3 {
        nodes[0].send(&name("b"), text("x")).expect("it is connected");
    }
    for _ in 0..3 {
        frame(&nodes[1]).await;
    }
    assert_eq!(nodes[0].counters(), crate::Counters { sent: a.sent + 3, ..a });
    assert_eq!(nodes[1].counters(), crate::Counters { received: b.received + 3, ..b });
}

async fn a_frame_to_oneself_arrives(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    nodes[0].send(&name("a"), text("me")).expect("it is connected");
    assert_eq!(frame(&nodes[0]).await, ("a".into(), text("me")));
}

async fn order_is_kept_per_pair(fixture: &dyn Fixture) {
    const FRAMES: u32 = 2_000;
    let nodes = fixture.nodes(&["a", "b", "c"]).await;
    for i in 0..FRAMES {
        nodes[0].send(&name("c"), text(&format!("{i}"))).expect("it is connected");
        nodes[1].send(&name("c"), text(&format!("{i}"))).expect("it is connected");
        if i % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let mut next = [0, 0];
    for _ in 0..2 * FRAMES {
        let (from, frame) = frame(&nodes[2]).await;
        let next = &mut next[usize::from(from == "b")];
        assert_eq!(frame, text(&format!("{next}")), "the frames of {from} are in order");
        *next += 1;
    }
}

async fn a_broadcast_reaches_every_node_and_its_sender(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b", "c"]).await;
    nodes[1].broadcast(text("all")).expect("it is connected");
    for node in &nodes {
        assert_eq!(frame(node).await, ("b".into(), text("all")));
        assert_quiet(node).await;
    }
}

async fn names_differ_by_any_byte(fixture: &dyn Fixture) {
    let names = ["n", "N", "n n", "n:all", "ä/\n🔒"];
    let nodes = fixture.nodes(&names).await;
    for to in names {
        nodes[0].send(&name(to), text(to)).expect("it is connected");
    }
    for (node, to) in nodes.iter().zip(names) {
        assert_eq!(frame(node).await, ("n".into(), text(to)));
        assert_quiet(node).await;
    }
}

async fn frames_of_every_length_arrive_whole(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    for length in [0, 1, 1_000, 65_536, nodes[0].frame_limit()] {
        let sent: Bytes = (0..=255).cycle().take(length).collect::<Vec<u8>>().into();
        nodes[0].send(&name("b"), sent.clone()).expect("it is within the limit");
        assert!(frame(&nodes[1]).await.1 == sent, "a frame of {length} bytes arrives whole");
    }
}

async fn a_frame_too_long_is_refused(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    let limit = nodes[0].frame_limit();
    assert!((4096..=FRAME_BYTES_MAX).contains(&limit));
    let long = Bytes::from(vec![0; limit + 1]);
    for refused in [nodes[0].send(&name("b"), long.clone()), nodes[0].broadcast(long)] {
        let Err(ChannelError::FrameTooLong { bytes, limit: named }) = refused else {
            panic!("it was {refused:?}");
        };
        assert_eq!((bytes, named), (limit + 1, limit));
    }
    assert_quiet(&nodes[1]).await;
}

async fn a_frame_to_an_unknown_node_is_no_error(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    nodes[0].send(&name("unknown"), text("x")).expect("best effort");
    assert_quiet(&nodes[1]).await;
}

async fn receive_is_cancel_safe(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    for i in 0..50 {
        let _ = timeout(Duration::from_micros(i), nodes[1].receive()).await;
        nodes[0].send(&name("b"), text(&format!("{i}"))).expect("it is connected");
        for _ in 0..5 {
            let waiting = std::pin::pin!(nodes[1].receive());
            let polled = futures_util::FutureExt::now_or_never(async {
                tokio::select! { biased; () = std::future::ready(()) => None, r = waiting => r }
            });
            assert!(matches!(polled, Some(None)));
        }
        assert_eq!(frame(&nodes[1]).await.1, text(&format!("{i}")));
    }
    assert_eq!(nodes[1].try_receive(), None);
}

async fn sending_never_blocks(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    let big = Bytes::from(vec![7; 4096]);
    let before = nodes[0].counters();
    // The receiver's owner takes nothing: beyond the bounds, frames are dropped.
    for _ in 0..100_000 {
        nodes[0].send(&name("b"), big.clone()).expect("a full queue is not an error");
    }
    let after = nodes[0].counters();
    let counted = after.sent + after.dropped_outgoing - before.sent - before.dropped_outgoing;
    assert_eq!(counted, 100_000, "every frame is counted as sent or dropped");
    let dropped = || after.dropped_outgoing + nodes[1].counters().dropped_incoming;
    assert!(dropped() > 0, "the queues are bounded");
    // And it works again once they are drained.
    loop {
        while nodes[1].try_receive().is_some() {}
        nodes[0].send(&name("b"), text("last")).expect("it is connected");
        tokio::time::sleep(Duration::from_millis(20)).await;
        while let Some(received) = nodes[1].try_receive() {
            if matches!(received, Received::Frame { frame, .. } if frame == text("last")) {
                return;
            }
        }
    }
}

async fn a_disconnected_channel_ends_and_refuses(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    let waiting = nodes[1].clone();
    let waiting = tokio::spawn(async move { while waiting.receive().await.is_some() {} });
    tokio::task::yield_now().await;
    nodes[1].disconnect().await;
    timeout(ARRIVES_WITHIN, waiting).await.expect("receive ends").expect("without a panic");
    assert_eq!(nodes[1].receive().await, None);
    let refused = nodes[1].send(&name("a"), text("x"));
    assert!(matches!(refused, Err(ChannelError::Disconnected)), "{refused:?}");
    assert!(matches!(nodes[1].broadcast(text("x")), Err(ChannelError::Disconnected)));
}

async fn a_channel_connects_again(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a", "b"]).await;
    for node in &nodes {
        node.disconnect().await;
        node.connect().await.expect("it connects again");
    }
    // The way may take a moment to open; frames sent before are lost, as any frame may be.
    let arrives = async {
        loop {
            nodes[0].send(&name("b"), text("again")).expect("it is connected");
            if let Ok(Some(Received::Frame { .. })) = timeout(QUIET, nodes[1].receive()).await {
                return;
            }
        }
    };
    timeout(ARRIVES_WITHIN, arrives).await.expect("frames flow again");
}

async fn connecting_and_disconnecting_twice_is_no_error(fixture: &dyn Fixture) {
    let nodes = fixture.nodes(&["a"]).await;
    nodes[0].connect().await.expect("a second connect is not an error");
    nodes[0].disconnect().await;
    nodes[0].disconnect().await;
}
