use bytes::{BufMut, Bytes, BytesMut};

use crate::{FRAME_BYTES_MAX, NodeName};

/// The version of payloads.
const VERSION: u8 = 1;

/// The names of a cluster's topics. The cluster's length stands before its name, so that no two
/// pairs of cluster and node share a topic, whatever characters they hold.
#[derive(Clone, Debug)]
pub(super) struct Topics {
    prefix: String,
    pub(super) all: String,
    pub(super) mine: String,
}

impl Topics {
    pub(super) fn new(cluster: &str, me: &NodeName) -> Self {
        let prefix = format!("gaggle:{}:{cluster}", cluster.len());
        Self { all: format!("{prefix}:all"), mine: format!("{prefix}:node:{me}"), prefix }
    }

    pub(super) fn node(&self, name: &NodeName) -> String {
        format!("{}:node:{name}", self.prefix)
    }
}

/// Version, length of the sender's name, the name, the frame.
pub(super) fn payload(from: &NodeName, frame: &Bytes) -> Bytes {
    let name = from.as_str().as_bytes();
    let mut payload = BytesMut::with_capacity(2 + name.len() + frame.len());
    payload.put_u8(VERSION);
    payload.put_u8(u8::try_from(name.len()).expect("a node name is at most 128 bytes long"));
    payload.put_slice(name);
    payload.put_slice(frame);
    payload.freeze()
}

/// The sender and the frame; `None` for bytes that are no payload of ours.
pub(super) fn parse(payload: &Bytes) -> Option<(NodeName, Bytes)> {
    let (&version, rest) = payload.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let name = rest.get(..usize::from(length))?;
    let name = NodeName::new(std::str::from_utf8(name).ok()?).ok()?;
    let frame = payload.slice(2 + usize::from(length)..);
    (version == VERSION && frame.len() <= FRAME_BYTES_MAX).then_some((name, frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[test]
    fn a_payload_comes_back_as_it_went() {
        let frame = Bytes::from_static(b"frame");
        assert_eq!(parse(&payload(&name("ä:b"), &frame)), Some((name("ä:b"), frame)));
    }

    #[test]
    fn rubbish_is_no_payload() {
        for rubbish in [&b""[..], &[1], &[1, 9, b'a'], &[2, 1, b'a'], &[1, 1, 0xff], &[1, 0]] {
            assert_eq!(parse(&Bytes::copy_from_slice(rubbish)), None, "{rubbish:?}");
        }
    }

    #[test]
    fn no_two_pairs_of_cluster_and_node_share_a_topic() {
        let topic = |cluster, node| Topics::new(cluster, &name(node)).mine;
        assert_ne!(topic("a:node:b", "c"), topic("a", "b:node:c"));
        assert_ne!(topic("a", "x"), Topics::new("a", &name("x")).all);
        assert_ne!(topic("a", "X"), topic("a", "x"));
    }
}
