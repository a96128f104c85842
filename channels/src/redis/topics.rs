//! The topics of a cluster, and the payloads of publications.

use bytes::Bytes;
use redis::Cmd;

use crate::{FRAME_BYTES_MAX, NodeName};

/// The version of payloads.
const VERSION: u8 = 1;

/// The names of a cluster's topics. The cluster's length stands before its name, so that no two
/// pairs of cluster and node share a topic, even with separators in their names.
#[derive(Clone, Debug)]
pub(super) struct Topics {
    prefix: String,
    pub(super) mine: String,
    pub(super) me: NodeName,
}

impl Topics {
    pub(super) fn new(cluster: &str, me: &NodeName) -> Self {
        let prefix = format!("gaggle:{}:{cluster}", cluster.len());
        Self { mine: format!("{prefix}:node:{me}"), prefix, me: me.clone() }
    }

    /// The `PUBLISH` of a frame.
    pub(super) fn publish(&self, to: &NodeName, frame: &[u8]) -> Cmd {
        let mine = self.me.as_str().as_bytes();
        let length = u8::try_from(mine.len()).expect("a node name is at most 128 bytes long");
        let payload = [&[VERSION, length], mine, frame].concat();
        redis::cmd("PUBLISH").arg(format!("{}:node:{to}", self.prefix)).arg(payload).clone()
    }

    /// An empty publication to this node's own topic.
    pub(super) fn sign_of_life(&self) -> Cmd {
        redis::cmd("PUBLISH").arg(&self.mine).arg("").clone()
    }
}

/// The sender and the frame; `None` for bytes that are not a payload of this channel.
pub(super) fn parse(payload: &[u8]) -> Option<(NodeName, Bytes)> {
    let (&version, rest) = payload.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (name, frame) = rest.split_at_checked(usize::from(length))?;
    let name = NodeName::exact(name)?;
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

    /// Topic and payload of a command of `Topics::publish`.
    fn published(command: &Cmd) -> (String, Vec<u8>) {
        let packed = command.get_packed_command();
        let Value::Array(parts) = redis::parse_redis_value(&packed).unwrap() else {
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
    fn frame_arrives_whole_on_its_topic() {
        let frame = b"a frame\r\nof two lines";
        let topics = Topics::new("c/1", &name("ä:b"));
        let to = name("to\r\n");
        let receivers = [(&to, Topics::new("c/1", &to).mine), (&topics.me, topics.mine.clone())];
        for (to, expected) in receivers {
            let (topic, payload) = published(&topics.publish(to, frame));
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

    proptest::proptest! {
        #[test]
        fn payload_has_one_form(from in "\\PC{0,40}", rest in proptest::prelude::any::<Vec<u8>>()) {
            let length = u8::try_from(from.len()).unwrap();
            let payload = [&[VERSION, length], from.as_bytes(), &rest].concat();
            for bytes in [payload, rest] {
                let Some((from, frame)) = parse(&bytes) else { continue };
                let (_, again) = published(&Topics::new("c", &from).publish(&from, &frame));
                proptest::prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn topics_differ_by_cluster_and_node() {
        let topic = |cluster, node| Topics::new(cluster, &name(node)).mine;
        assert_ne!(topic("a:node:b", "c"), topic("a", "b:node:c"));
        assert_ne!(topic("a", "X"), topic("a", "x"));
    }
}
