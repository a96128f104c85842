use std::collections::BTreeMap;

use bytes::Bytes;
use gaggle_channels::NodeName;

use crate::member::wire::{self, Body, Header, VERSION};

/// Bytes that a header may take: cluster name, ids, lengths.
const HEADER_BYTES_MAX: usize = 160;

/// Gathers the bodies of a turn, so that each receiver gets them in one frame (or as few as the
/// frame limit allows).
#[derive(Debug)]
pub(super) struct Outbox {
    cluster: String,
    frame_limit: usize,
    names: BTreeMap<u64, NodeName>,
    bodies: BTreeMap<(Option<NodeName>, u64), Vec<Vec<u8>>>,
}

impl Outbox {
    pub(super) fn new(cluster: String, frame_limit: usize) -> Self {
        Self { cluster, frame_limit, names: BTreeMap::new(), bodies: BTreeMap::new() }
    }

    pub(super) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The longest body for which there is always room.
    pub(super) fn body_limit(&self) -> usize {
        (self.frame_limit - HEADER_BYTES_MAX) / 2
    }

    /// Notes whose name an incarnation runs under.
    pub(super) fn learn(&mut self, incarnation: u64, name: &NodeName) {
        self.names.entry(incarnation).or_insert_with(|| name.clone());
    }

    /// Forgets the names of those that are no members any more.
    pub(super) fn forget(&mut self, is_member: impl Fn(u64) -> bool) {
        self.names.retain(|id, _| is_member(*id));
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.bodies.clear();
    }

    /// Nothing is sent to an incarnation whose name is not known: the engine will ask again.
    pub(super) fn post(&mut self, incarnation: u64, body: &Body) {
        if let Some(name) = self.names.get(&incarnation).cloned() {
            self.post_named(&name, incarnation, body);
        }
    }

    pub(super) fn post_named(&mut self, name: &NodeName, incarnation: u64, body: &Body) {
        let to = (Some(name.clone()), incarnation);
        self.bodies.entry(to).or_default().push(wire::encode_body(body));
    }

    pub(super) fn post_all(&mut self, body: &Body) {
        self.bodies.entry((None, 0)).or_default().push(wire::encode_body(body));
    }

    /// Packs everything into frames, in the order of receivers.
    pub(super) fn pack(
        &mut self,
        from: u64,
        group: u128,
        mut send: impl FnMut(Option<NodeName>, Bytes),
    ) {
        for ((name, to), bodies) in std::mem::take(&mut self.bodies) {
            let cluster = self.cluster.clone();
            let header =
                wire::encode_header(&Header { version: VERSION, cluster, from, to, group });
            let mut frame = header.clone();
            for body in bodies {
                if frame.len() + body.len() > self.frame_limit && frame.len() > header.len() {
                    send(name.clone(), std::mem::replace(&mut frame, header.clone()).into());
                }
                if header.len() + body.len() > self.frame_limit {
                    tracing::warn!(bytes = body.len(), "a body exceeds the frame limit, dropped");
                    continue;
                }
                frame.extend_from_slice(&body);
            }
            if frame.len() > header.len() {
                send(name, frame.into());
            }
        }
    }
}
