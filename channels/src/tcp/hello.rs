//! What both sides of a TCP connection send first: a hello, or why there is none.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::stream::Stream;
use crate::{NODE_NAME_BYTES_MAX, NodeName};

/// Begins every hello: the protocol and the version of its framing.
const MAGIC: &[u8] = b"gaggle\x01";
/// Begins a refusal in place of a hello, before its code.
const REFUSED: &[u8] = b"refused";
/// How long a refusal waits for the other side to close.
const REFUSE_TIMEOUT: Duration = Duration::from_millis(200);
/// How much a side that is refused may still send.
const REFUSED_BYTES_MAX: u64 = 64 << 10;

pub(super) const TLS_AT_OTHER: &str = "one side uses TLS, the other does not (the other one does)";
#[cfg(feature = "tls")]
pub(super) const TLS_HERE: &str = "one side uses TLS, the other does not (this one does)";

/// What the other side sends first.
pub(super) enum Hello {
    Name(NodeName),
    Refused(Refusal),
    Tls,
    Malformed,
}

/// Why a connection is refused, as the other side is informed of it: a code, and no text that its
/// log would take from a stranger.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    Other = 0,
    /// The accepting side has no peer of that name.
    Unlisted = 1,
}

pub(super) fn hello(name: &NodeName) -> Bytes {
    [MAGIC, name.as_str().as_bytes()].concat().into()
}

pub(super) fn parse_hello(frame: &[u8]) -> Option<NodeName> {
    let name = frame.strip_prefix(MAGIC).filter(|name| name.len() <= NODE_NAME_BYTES_MAX)?;
    NodeName::exact(name)
}

pub(super) async fn say_hello(stream: &mut Stream, name: &NodeName) -> io::Result<()> {
    send_framed(stream, &hello(name)).await
}

async fn send_framed(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).expect("a name is short").to_be_bytes();
    stream.write_all(&[&length, bytes].concat()).await?;
    stream.flush().await
}

/// Reads a hello or a refusal, and allocates at most the size of the longest one.
pub(super) async fn hear_hello(stream: &mut Stream) -> io::Result<Hello> {
    let length = stream.read_u32().await?;
    // A record of TLS: its type (alert or handshake), and the version.
    if let [21 | 22, 3, ..] = length.to_be_bytes() {
        return Ok(Hello::Tls);
    }
    let length = length as usize;
    if length > MAGIC.len() + NODE_NAME_BYTES_MAX {
        return Ok(Hello::Malformed);
    }
    let mut hello = vec![0; length];
    stream.read_exact(&mut hello).await?;
    Ok(match (hello.strip_prefix(REFUSED), parse_hello(&hello)) {
        (Some([code]), _) if *code == Refusal::Unlisted as u8 => Hello::Refused(Refusal::Unlisted),
        (Some([_]), _) => Hello::Refused(Refusal::Other),
        (_, Some(name)) => Hello::Name(name),
        (_, None) => Hello::Malformed,
    })
}

/// Names the refusal to the other side, which reads it only if nothing that it sent stays unread:
/// that would reset the connection.
pub(super) async fn refuse(stream: &mut Stream, refusal: Refusal) {
    let refused = async {
        send_framed(stream, &[REFUSED, &[refusal as u8]].concat()).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(REFUSED_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // Best effort: without it the other side knows less.
    let _ = timeout(REFUSE_TIMEOUT, refused).await;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hello_has_one_form(name in "\\PC{0,40}", rest in any::<Vec<u8>>()) {
            for bytes in [rest.clone(), [MAGIC, &rest].concat(), [MAGIC, name.as_bytes()].concat()] {
                if let Some(name) = parse_hello(&bytes) {
                    prop_assert_eq!(hello(&name), bytes);
                }
            }
        }
    }
}
