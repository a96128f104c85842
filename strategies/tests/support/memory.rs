//! Three members over the Memory channel, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::sync::Arc;

use gaggle_channels::{Hub, NodeName};
use gaggle_strategies::{Gaggle, KeyedMutex, MemberOptions, clock::TokioClock};

pub(crate) fn names() -> [NodeName; 3] {
    ["a", "b", "c"].map(|name| NodeName::new(name).unwrap())
}

pub(crate) fn options(seed: u64) -> MemberOptions {
    MemberOptions::named("test", names()).clock(Arc::new(TokioClock::new())).seed(seed)
}

/// The members by name; the leader comes first.
pub(crate) async fn cluster(hub: &Hub) -> Vec<(NodeName, Gaggle)> {
    let mut members = Vec::new();
    for (name, seed) in names().into_iter().zip(1..) {
        let channel = Arc::new(hub.channel(name.clone()));
        members.push((name, Gaggle::open(channel, options(seed)).await.unwrap()));
    }
    for (_, member) in &members {
        member.ready().await.unwrap();
    }
    members.sort_by_key(|(_, member)| !member.status().leads);
    members
}
