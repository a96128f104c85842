//! One TCP connection, from its hello to its end.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use rand::RngExt;
use tokio::{
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{
    codec::{FramedRead, FramedWrite, LengthDelimitedCodec},
    task::TaskTracker,
};

use super::{Shared, outgoing::Outgoing};
use crate::{FRAME_BYTES_MAX, NODE_NAME_BYTES_MAX, NodeName, QUEUE_BYTES, Received};

/// Begins every hello: the protocol and the version of its framing.
const MAGIC: &[u8] = b"gaggle\x01";
/// The first byte of a sign of life.
pub(crate) const ALIVE: u8 = 0;
/// The first byte of a frame that carries its sender's bytes.
pub(crate) const DATA: u8 = 1;

/// Four bytes of length, as the receiver's codec reads them, and the kind.
const HEAD_BYTES: usize = 5;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const OUTGOING_FRAMES_MAX: usize = 8_192;
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(3);
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How many connections may be without a hello at one time: it bounds their memory.
const UNKNOWN_MAX: usize = 128;

type Reader = FramedRead<OwnedReadHalf, LengthDelimitedCodec>;
type Greeter = FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>;

/// Keeps a connection to `peer` up.
pub(super) async fn dial(shared: Arc<Shared>, peer: NodeName) {
    let mut pause = RECONNECT.0;
    loop {
        let address = shared.lock().peers.get(&peer).cloned();
        if let Some(address) = address
            && let Some((reader, writer)) = connect(&shared, &peer, &address).await
        {
            let up = Instant::now();
            run(&shared, &peer, reader, writer).await;
            // Connections that end at once must not be retried in a tight loop.
            if up.elapsed() >= SILENCE_MAX {
                pause = RECONNECT.0;
            }
        }
        let jittered = rand::rng().random_range(pause / 2..=pause);
        sleep(jittered).await;
        pause = (pause * 2).min(RECONNECT.1);
    }
}

async fn connect(shared: &Shared, peer: &NodeName, address: &str) -> Option<(Reader, Greeter)> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await.ok()?.ok()?;
    let (mut reader, mut writer) = streams(stream);
    timeout(HELLO_TIMEOUT, writer.send(hello(&shared.name))).await.ok()?.ok()?;
    let answer = read_hello(shared, &mut reader).await?;
    if answer != *peer {
        tracing::warn!(%peer, %answer, address, "another node answers at this address");
        return None;
    }
    Some((reader, writer))
}

/// Accepts connections.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener, accepted: TaskTracker) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            connection = listener.accept() => match connection {
                Ok((stream, _)) => {
                    let peers = shared.lock().peers.len();
                    if connections.len() < peers * 2 + UNKNOWN_MAX {
                        let welcome = welcome(shared.clone(), stream);
                        connections.spawn(accepted.track_future(welcome));
                    }
                }
                // Probably out of descriptors: other connections must end first.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(RECONNECT.1).await;
                }
            }
        }
    }
}

async fn welcome(shared: Arc<Shared>, stream: TcpStream) {
    let (mut reader, mut writer) = streams(stream);
    let Some(peer) = read_hello(&shared, &mut reader).await else { return };
    if !shared.lock().peers.contains_key(&peer) || peer >= shared.name {
        shared.malformed();
        tracing::warn!(%peer, "refused a connection of a name that is no peer, or should not dial");
        return;
    }
    let greeted = timeout(HELLO_TIMEOUT, writer.send(hello(&shared.name))).await;
    if matches!(greeted, Ok(Ok(()))) {
        run(&shared, &peer, reader, writer).await;
    }
}

fn streams(stream: TcpStream) -> (Reader, Greeter) {
    // Best effort: without it frames arrive later.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    let writer = FramedWrite::new(write, codec());
    // An unknown peer makes this node allocate no more than a hello takes.
    let mut greeting = codec();
    greeting.set_max_frame_length(MAGIC.len() + NODE_NAME_BYTES_MAX);
    (FramedRead::new(read, greeting), writer)
}

/// A frame with the byte of its kind.
const MARKED_BYTES_MAX: usize = FRAME_BYTES_MAX + 1;

/// Four bytes of length, then a hello, or the byte of a kind and a frame.
pub(crate) fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MARKED_BYTES_MAX).new_codec()
}

pub(super) fn hello(name: &NodeName) -> Bytes {
    [MAGIC, name.as_str().as_bytes()].concat().into()
}

pub(super) fn parse_hello(frame: &[u8]) -> Option<NodeName> {
    let name = frame.strip_prefix(MAGIC).filter(|name| name.len() <= NODE_NAME_BYTES_MAX)?;
    NodeName::new(std::str::from_utf8(name).ok()?).ok()
}

async fn read_hello(shared: &Shared, reader: &mut Reader) -> Option<NodeName> {
    let frame = timeout(HELLO_TIMEOUT, reader.next()).await.ok()??;
    let name = frame.ok().and_then(|frame| parse_hello(&frame));
    if name.is_none() {
        shared.malformed();
        tracing::warn!("malformed hello, closing the connection");
    }
    reader.decoder_mut().set_max_frame_length(MARKED_BYTES_MAX);
    name
}

/// Carries frames both ways until one side ends.
async fn run(shared: &Shared, peer: &NodeName, reader: Reader, writer: Greeter) {
    let (writer, alive) = (writer.into_inner(), Bytes::copy_from_slice(&head(ALIVE, 0)));
    let outgoing = Arc::new(Outgoing::new(writer, alive, OUTGOING_FRAMES_MAX, QUEUE_BYTES));
    let Some(generation) = shared.up(peer, outgoing.clone()) else { return };
    tracing::info!(%peer, "connection up");
    tokio::select! {
        () = read(shared, peer, reader) => {}
        () = outgoing.write() => {}
    }
    shared.down(peer, generation);
}

async fn read(shared: &Shared, peer: &NodeName, mut reader: Reader) {
    // Checked when a silence may have become too long: a timer for each frame costs more.
    let mut last_received = Instant::now();
    let mut silence = pin!(sleep_until(last_received + SILENCE_MAX));
    // Bytes of an incomplete frame. If they become more, that is a sign of life.
    let mut partial = 0;
    loop {
        let frame = tokio::select! {
            biased;
            frame = reader.next() => frame,
            () = &mut silence => {
                let partial_before = std::mem::replace(&mut partial, reader.read_buffer().len());
                if partial > partial_before {
                    last_received = Instant::now();
                } else if last_received.elapsed() >= SILENCE_MAX {
                    return;
                }
                silence.as_mut().reset(last_received + SILENCE_MAX);
                continue;
            }
        };
        let Some(frame) = frame else { return };
        (last_received, partial) = (Instant::now(), 0);
        match frame.map(unmarked) {
            Ok(Some(Marked::Data(frame))) => {
                shared.inbox.push(Received::Frame { from: peer.clone(), frame });
            }
            Ok(Some(Marked::Alive)) => {}
            Err(error) if error.kind() != std::io::ErrorKind::InvalidData => return,
            // Too long, or of an unknown kind: later bytes cannot be decoded.
            _ => {
                shared.malformed();
                tracing::warn!(%peer, "malformed frame, closing the connection");
                return;
            }
        }
    }
}

/// A frame on a connection, by its kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    Alive,
    Data(Bytes),
}

pub(crate) fn unmarked(frame: BytesMut) -> Option<Marked> {
    match *frame.first()? {
        DATA => Some(Marked::Data(frame.freeze().slice(1..))),
        ALIVE => Some(Marked::Alive),
        _ => None,
    }
}

/// Length and kind, which precede the bytes of a frame.
pub(crate) fn head(mark: u8, bytes: usize) -> [u8; HEAD_BYTES] {
    let length = u32::try_from(bytes + 1).expect("frames are limited to far less");
    let [a, b, c, d] = length.to_be_bytes();
    [a, b, c, d, mark]
}
