//! The decoders of a TCP connection, fed with bytes.

use bytes::BytesMut;
use tokio_util::codec::Decoder;

use super::{
    connection::{self, DATA, Marked, head},
    hello,
};

/// Feeds `bytes` as a hello and as a stream of frames. Returns how many things they were.
pub(crate) fn feed(bytes: &[u8]) -> u32 {
    let mut taken = 0;
    if let Some(name) = hello::parse_hello(bytes) {
        assert_eq!(hello::hello(&name), bytes, "a hello has one form");
        taken += 1;
    }
    let (mut codec, mut stream) = (connection::codec(), BytesMut::from(bytes));
    while let Ok(Some(frame)) = codec.decode(&mut stream) {
        let whole = frame.clone();
        let Some(marked) = connection::unmarked(frame) else { break };
        taken += 1;
        if let Marked::Data(data) = marked {
            let mut again = BytesMut::from(&[&head(DATA, data.len()), &data[..]].concat()[..]);
            let back = connection::codec().decode(&mut again);
            assert_eq!(back.expect("a frame of ours decodes"), Some(whole));
        }
    }
    taken
}
