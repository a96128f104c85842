//! The bodies of a turn, packed into frames.

use std::collections::BTreeMap;

use bytes::Bytes;
use gaggle_channels::NodeName;

use crate::member::wire::{self, Body, Header, VERSION};

/// Bytes that a header may take: cluster name, ids, lengths.
const HEADER_BYTES_MAX: usize = 160;

/// Enough for the bodies of most turns, so that the buffer hardly ever grows.
const BODIES_BYTES: usize = 1024;

/// A frame to send.
#[derive(Debug)]
pub struct Frame {
    /// The receiver.
    pub to: NodeName,
    /// The frame.
    pub bytes: Bytes,
}

/// Gathers the bodies of a turn, so that each receiver gets them in one frame (or as few as the
/// frame limit allows).
#[derive(Debug)]
pub(super) struct Outbox {
    cluster: String,
    frame_limit: usize,
    names: BTreeMap<u64, NodeName>,
    bodies: BTreeMap<(NodeName, u64), Bodies>,
}

/// The encoded bodies for one receiver, one after the other.
#[derive(Debug)]
struct Bodies {
    bytes: Vec<u8>,
    /// The end of each body in `bytes`.
    ends: Vec<usize>,
}

impl Outbox {
    pub(super) fn new(cluster: String, frame_limit: usize) -> Self {
        Self { cluster, frame_limit, names: BTreeMap::new(), bodies: BTreeMap::new() }
    }

    pub(super) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The longest body that always fits into a frame.
    pub(super) fn body_limit(&self) -> usize {
        (self.frame_limit - HEADER_BYTES_MAX) / 2
    }

    /// Notes whose name an incarnation runs under.
    pub(super) fn learn(&mut self, incarnation: u64, name: &NodeName) {
        if self.names.get(&incarnation) != Some(name) {
            self.names.insert(incarnation, name.clone());
        }
    }

    pub(super) fn name_of(&self, incarnation: u64) -> Option<&NodeName> {
        self.names.get(&incarnation)
    }

    /// Forgets the names of all incarnations but these.
    pub(super) fn forget(&mut self, keeps: impl Fn(u64) -> bool) {
        self.names.retain(|id, _| keeps(*id));
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.bodies.clear();
    }

    /// Posts a body, unless the incarnation's name is unknown: the engine will send again.
    pub(super) fn post(&mut self, incarnation: u64, body: &Body) {
        if let Some(name) = self.name_of(incarnation).cloned() {
            self.put(name, incarnation, body);
        }
    }

    pub(super) fn post_named(&mut self, name: &NodeName, incarnation: u64, body: &Body) {
        self.put(name.clone(), incarnation, body);
    }

    fn put(&mut self, name: NodeName, incarnation: u64, body: &Body) {
        let empty = || Bodies { bytes: Vec::with_capacity(BODIES_BYTES), ends: Vec::new() };
        let bodies = self.bodies.entry((name, incarnation)).or_insert_with(empty);
        wire::encode_onto(&mut bodies.bytes, body);
        bodies.ends.push(bodies.bytes.len());
    }

    /// Packs everything into frames, in the order of receivers.
    pub(super) fn pack(&mut self, from: u64, group: u128) -> Vec<Frame> {
        let (mut header, mut frames) = (Vec::with_capacity(HEADER_BYTES_MAX), Vec::new());
        for ((name, to), bodies) in std::mem::take(&mut self.bodies) {
            let cluster = self.cluster.as_str().into();
            let fields = Header { version: VERSION, cluster, from, to, group };
            header.clear();
            wire::encode_onto(&mut header, &fields);
            let bytes_max = self.frame_limit.saturating_sub(header.len());
            bodies.frames(bytes_max, |bodies| {
                let mut frame = Vec::with_capacity(header.len() + bodies.len());
                frame.extend_from_slice(&header);
                frame.extend_from_slice(bodies);
                frames.push(Frame { to: name.clone(), bytes: frame.into() });
            });
        }
        frames
    }
}

impl Bodies {
    /// Passes on the bodies, as many at a time as fit into `bytes_max`. Every maker of a body keeps
    /// it that short: a channel refuses a longer frame.
    fn frames(&self, bytes_max: usize, mut frame: impl FnMut(&[u8])) {
        let (mut begun, mut last) = (0, 0);
        for &end in &self.ends {
            if end - begun > bytes_max && last > begun {
                frame(&self.bytes[begun..last]);
                begun = last;
            }
            last = end;
        }
        if last > begun {
            frame(&self.bytes[begun..last]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_of(bodies: &[&str], bytes_max: usize) -> Vec<String> {
        let mut all = Bodies { bytes: Vec::new(), ends: Vec::new() };
        for body in bodies {
            all.bytes.extend_from_slice(body.as_bytes());
            all.ends.push(all.bytes.len());
        }
        let mut frames = Vec::new();
        all.frames(bytes_max, |frame| frames.push(String::from_utf8(frame.to_vec()).unwrap()));
        frames
    }

    #[test]
    fn bodies_share_frames_unless_too_long() {
        assert_eq!(frames_of(&["aa", "bb", "c"], 5), ["aabbc"]);
        assert_eq!(frames_of(&["aa", "bb", "c"], 4), ["aabb", "c"]);
        assert_eq!(frames_of(&["aa", "longer", "bb"], 4), ["aa", "longer", "bb"]);
        assert_eq!(frames_of(&["full", "b", "cde"], 4), ["full", "bcde"]);
        assert_eq!(frames_of(&[], 4), [""; 0]);
    }

    const LIMIT: usize = 4_096;

    fn outbox(limit: usize) -> Outbox {
        let mut outbox = Outbox::new("c".repeat(64), limit);
        outbox.learn(7, &NodeName::new("b").unwrap());
        outbox
    }

    fn packed(outbox: &mut Outbox) -> Vec<Bytes> {
        outbox.pack(1, 2).into_iter().map(|frame| frame.bytes).collect()
    }

    /// A body of this many bytes.
    fn body(bytes: usize) -> Body {
        let chunk = |filling: usize| {
            let bytes = vec![7; filling].into();
            Body::Chunk(wire::Chunk { transfer: u64::MAX, index: 1, count: 2, bytes })
        };
        let around = wire::encode(&chunk(bytes)).len() - bytes;
        let body = chunk(bytes - around);
        assert_eq!(wire::encode(&body).len(), bytes);
        body
    }

    #[test]
    fn two_longest_bodies_share_a_full_frame() {
        let mut outbox = outbox(LIMIT);
        let longest = body(outbox.body_limit());
        outbox.post(7, &longest);
        outbox.post(7, &longest);
        let frames = packed(&mut outbox);
        assert_eq!(frames.len(), 1);
        assert!(frames[0].len() <= LIMIT && frames[0].len() > LIMIT - HEADER_BYTES_MAX);
    }

    #[test]
    fn former_member_is_sent_nothing() {
        let mut outbox = outbox(LIMIT);
        outbox.learn(8, &NodeName::new("c").unwrap());
        outbox.forget(|id| id == 7);
        outbox.post(8, &Body::Removed);
        assert!(packed(&mut outbox).is_empty());
        outbox.post(7, &Body::Removed);
        assert_eq!(packed(&mut outbox).len(), 1);
    }

    #[test]
    fn clear_drops_posted_bodies() {
        let mut outbox = outbox(LIMIT);
        outbox.post(7, &Body::Removed);
        outbox.clear();
        outbox.post(7, &Body::Removed);
        assert!(packed(&mut outbox).is_empty());
    }
}
