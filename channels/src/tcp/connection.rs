//! One connection, from its hello to its end.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
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

use super::{Shared, TcpOptions};
use crate::{
    FRAME_BYTES_MAX, NODE_NAME_BYTES_MAX, NodeName, Received, outgoing::Outgoing, writer::Writer,
};

/// Begins every hello: what this is, and the version of the framing.
const MAGIC: &[u8] = b"gaggle\x01";
/// The first byte of a frame that is a sign of life alone.
pub(crate) const ALIVE: u8 = 0;
/// The first byte of a frame that carries its sender's bytes.
pub(crate) const DATA: u8 = 1;

/// Four bytes of length, as the receiver's codec reads them, and the byte that names the kind.
const HEAD_BYTES: usize = 5;

const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(3);
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How many connections may be without a hello at one time: it bounds their memory.
const UNKNOWN_MAX: usize = 128;

type Reader = FramedRead<OwnedReadHalf, LengthDelimitedCodec>;
type Greeter = FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>;

/// Keeps a connection to `peer` up.
pub(super) async fn dial(shared: Arc<Shared>, options: TcpOptions, peer: NodeName) {
    let mut pause = RECONNECT.0;
    loop {
        let address = shared.lock().peers.get(&peer).cloned();
        if let Some(address) = address
            && let Some((reader, writer)) = connect(&shared, &options, &peer, &address).await
        {
            let up = Instant::now();
            run(&shared, &options, &peer, reader, writer).await;
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

async fn connect(
    shared: &Shared,
    options: &TcpOptions,
    peer: &NodeName,
    address: &str,
) -> Option<(Reader, Greeter)> {
    let stream = timeout(options.connect_timeout, TcpStream::connect(address)).await.ok()?.ok()?;
    let (mut reader, mut writer) = streams(stream);
    timeout(HELLO_TIMEOUT, writer.send(hello(&shared.name))).await.ok()?.ok()?;
    let answer = read_hello(shared, &mut reader).await?;
    if answer != *peer {
        tracing::warn!(%peer, %answer, address, "another node answers at this address");
        return None;
    }
    Some((reader, writer))
}

/// Takes connections in.
pub(super) async fn accept(
    shared: Arc<Shared>,
    options: TcpOptions,
    listener: TcpListener,
    accepted: TaskTracker,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            connection = listener.accept() => match connection {
                Ok((stream, _)) => {
                    let peers = shared.lock().peers.len();
                    if connections.len() < peers * 2 + UNKNOWN_MAX {
                        let welcome = welcome(shared.clone(), options.clone(), stream);
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

async fn welcome(shared: Arc<Shared>, options: TcpOptions, stream: TcpStream) {
    let (mut reader, mut writer) = streams(stream);
    let Some(peer) = read_hello(&shared, &mut reader).await else { return };
    if !shared.lock().peers.contains_key(&peer) || peer >= shared.name {
        shared.malformed();
        tracing::warn!(%peer, "refused a connection of a name that is no peer, or should not dial");
        return;
    }
    let greeted = timeout(HELLO_TIMEOUT, writer.send(hello(&shared.name))).await;
    if matches!(greeted, Ok(Ok(()))) {
        run(&shared, &options, &peer, reader, writer).await;
    }
}

fn streams(stream: TcpStream) -> (Reader, Greeter) {
    // Best effort: without it frames are as right, only later.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    let writer = FramedWrite::new(write, codec());
    // An unknown peer makes this node reserve no more than a hello takes.
    let mut greeting = codec();
    greeting.set_max_frame_length(MAGIC.len() + NODE_NAME_BYTES_MAX);
    (FramedRead::new(read, greeting), writer)
}

/// With the byte that names the kind of a frame.
const MARKED_BYTES_MAX: usize = FRAME_BYTES_MAX + 1;

/// Four bytes of length, then a hello, or a byte that names the kind and the frame.
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
async fn run(
    shared: &Shared,
    options: &TcpOptions,
    peer: &NodeName,
    reader: Reader,
    writer: Greeter,
) {
    let (frames, bytes) = (options.outgoing_frames_max, options.queue_bytes_max);
    let writer = Writer::Tcp(writer.into_inner());
    let outgoing = Arc::new(Outgoing::new(writer, framed(ALIVE, &[]), frames, bytes));
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
    // Bytes of an incomplete frame: a long one over a slow network is a sign of life as well.
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
                shared.lock().hand_in(Received::Frame { from: peer.clone(), frame });
            }
            Ok(Some(Marked::Alive)) => {}
            Err(error) if error.kind() != std::io::ErrorKind::InvalidData => return,
            // A frame too long, or of no kind we know: nothing after it can be trusted.
            _ => {
                shared.malformed();
                tracing::warn!(%peer, "malformed frame, closing the connection");
                return;
            }
        }
    }
}

/// What a frame on a connection is.
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

/// What comes before the bytes of a frame.
pub(crate) fn head(mark: u8, bytes: usize) -> [u8; HEAD_BYTES] {
    let length = u32::try_from(bytes + 1).expect("frames are limited to far less");
    let [a, b, c, d] = length.to_be_bytes();
    [a, b, c, d, mark]
}

/// A frame as it goes over the connection.
pub(crate) fn framed(mark: u8, frame: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD_BYTES + frame.len());
    framed.put_slice(&head(mark, frame.len()));
    framed.put_slice(frame);
    framed.freeze()
}
