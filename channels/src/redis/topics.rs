//! The topics of a cluster, and the payloads of publications.

use std::io::Write;

use bytes::Bytes;

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
    me: NodeName,
}

impl Topics {
    pub(super) fn new(cluster: &str, me: &NodeName) -> Self {
        let prefix = format!("gaggle:{}:{cluster}", cluster.len());
        Self {
            all: format!("{prefix}:all"),
            mine: format!("{prefix}:node:{me}"),
            prefix,
            me: me.clone(),
        }
    }

    /// A `PUBLISH` of a frame of `frame_bytes`, without the frame and the [`END`] after it.
    pub(super) fn publish(&self, to: Option<&NodeName>, frame_bytes: usize) -> Vec<u8> {
        let (part, name) = to.map_or((":all", ""), |to| (":node:", to.as_str()));
        let topic = [self.prefix.as_str(), part, name];
        let topic_bytes = topic.iter().map(|part| part.len()).sum::<usize>();
        let mine = self.me.as_str().as_bytes();
        let mut head = Vec::with_capacity(64 + topic_bytes + mine.len());
        let never = "a vector takes every byte";
        write!(head, "*3\r\n$7\r\nPUBLISH\r\n${topic_bytes}\r\n").expect(never);
        topic.iter().for_each(|part| head.extend_from_slice(part.as_bytes()));
        write!(head, "\r\n${}\r\n", 2 + mine.len() + frame_bytes).expect(never);
        head.extend_from_slice(&before_frame(&self.me));
        head.extend_from_slice(mine);
        head
    }
}

/// Ends a command.
pub(super) const END: &[u8] = b"\r\n";

/// Version and length of the sender's name. The name and the frame follow.
fn before_frame(from: &NodeName) -> [u8; 2] {
    let length = u8::try_from(from.as_str().len());
    [VERSION, length.expect("a node name is at most 128 bytes long")]
}

/// The sender and the frame; `None` for bytes that are no payload of ours.
pub(super) fn parse(payload: &[u8]) -> Option<(NodeName, Bytes)> {
    let (&version, rest) = payload.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (name, frame) = rest.split_at_checked(usize::from(length))?;
    let name = NodeName::new(std::str::from_utf8(name).ok()?).ok()?;
    let known = version == VERSION && frame.len() <= FRAME_BYTES_MAX;
    known.then(|| (name, Bytes::copy_from_slice(frame)))
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    /// Topic and payload of what `Topics::publish` made.
    fn published(command: &[u8]) -> (String, Vec<u8>) {
        let Value::Array(parts) = redis::parse_redis_value(command).unwrap() else {
            panic!("no command")
        };
        let [publish, topic, payload] = <[Value; 3]>::try_from(parts).unwrap();
        assert_eq!(publish, Value::BulkString("PUBLISH".into()));
        let (Value::BulkString(topic), Value::BulkString(payload)) = (topic, payload) else {
            panic!("no strings")
        };
        (String::from_utf8(topic).unwrap(), payload)
    }

    #[test]
    fn a_frame_comes_back_as_it_went_and_where_it_was_sent() {
        let frame = b"a frame\r\nof two lines";
        let topics = Topics::new("c/1", &name("ä:b"));
        let to = name("to\r\n");
        let receivers = [
            (None, topics.all.clone()),
            (Some(&to), Topics::new("c/1", &to).mine),
            (Some(&topics.me), topics.mine.clone()),
        ];
        for (to, expected) in receivers {
            let command = [&topics.publish(to, frame.len())[..], frame, END].concat();
            let (topic, payload) = published(&command);
            assert_eq!(topic, expected);
            assert_eq!(parse(&payload), Some((name("ä:b"), Bytes::from_static(frame))));
        }
    }

    #[test]
    fn rubbish_is_no_payload() {
        for rubbish in [&b""[..], &[1], &[1, 9, b'a'], &[2, 1, b'a'], &[1, 1, 0xff], &[1, 0]] {
            assert_eq!(parse(rubbish), None, "{rubbish:?}");
        }
        let long = [&[1, 1, b'a'][..], &vec![0; FRAME_BYTES_MAX + 1]].concat();
        assert_eq!(parse(&long), None, "a frame beyond the limit");
    }

    #[test]
    fn no_two_pairs_of_cluster_and_node_share_a_topic() {
        let topic = |cluster, node| Topics::new(cluster, &name(node)).mine;
        assert_ne!(topic("a:node:b", "c"), topic("a", "b:node:c"));
        assert_ne!(topic("a", "x"), Topics::new("a", &name("x")).all);
        assert_ne!(topic("a", "X"), topic("a", "x"));
    }
}
