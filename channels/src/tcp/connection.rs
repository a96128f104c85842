//! The task of a TCP connection, from its hello to its end.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::{
    net::{TcpListener, TcpStream, lookup_host},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{
    codec::{FramedRead, LengthDelimitedCodec},
    task::TaskTracker,
};

use super::{
    Shared,
    hello::{Hello, Refusal, TLS_AT_OTHER, hear_hello, refuse, say_hello},
    outgoing::Outgoing,
    stream::{Reader, Stream, halves},
};
use crate::{
    FRAME_BYTES_MAX, NodeName, QUEUE_BYTES, Received, backoff::Backoff, internal::net::LookUps,
    internal::process::Opener,
};

/// The first byte of a sign of life.
pub(super) const ALIVE: u8 = 0;
/// The first byte of a frame that carries its sender's bytes.
pub(super) const DATA: u8 = 1;

/// Four bytes of length, as the receiver's codec reads them, and the kind.
const HEAD_BYTES: usize = 5;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const OUTGOING_FRAMES_MAX: usize = 8_192;
/// Limit for the TLS handshake and both hellos together.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long frames that have arrived are taken after the connection broke for writing.
const DRAIN_MAX: Duration = Duration::from_millis(100);
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How often the addresses of peers are looked up.
const LOOKUP_EVERY: Duration = Duration::from_secs(30);

/// Keeps a connection to `peer` up.
pub(super) async fn dial(shared: Arc<Shared>, peer: NodeName) {
    let (mut backoff, look_ups) = (Backoff::new(RECONNECT), LookUps::default());
    loop {
        let address = shared.lock().peers.get(&peer).cloned();
        if let Some(address) = address
            && let Some(stream) = connect(&shared, &look_ups, &peer, &address).await
        {
            let up = Instant::now();
            run(&shared, &peer, stream).await;
            // Connections that end at once must not be retried in a tight loop.
            if up.elapsed() >= SILENCE_MAX {
                backoff.reset();
            }
        }
        backoff.sleep().await;
    }
}

async fn connect(
    shared: &Shared,
    look_ups: &LookUps,
    peer: &NodeName,
    address: &str,
) -> Option<Stream> {
    let connecting = look_ups.connect(address.to_owned(), CONNECT_TIMEOUT);
    let stream = match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => stream,
        unreached => {
            let reason = match unreached {
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    "connection refused".into()
                }
                Ok(Err(error)) => error.to_string(),
                _ => "no connection in time".into(),
            };
            // A peer that does not run may be intended: logged once, and no warning.
            if shared.note_failure(peer, address, &reason)
                && let Some(suppressed) = shared.gate.logs(&format!("{peer}: {reason}"))
            {
                tracing::info!(%peer, address, reason, suppressed, "cannot connect to a peer");
            }
            return None;
        }
    };
    let reason = match timeout(HELLO_TIMEOUT, handshake(shared, peer, stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(reason)) => reason,
        Err(_) => "no hello in time".into(),
    };
    shared.note_failure(peer, address, &reason);
    if let Some(suppressed) = shared.gate.logs(&format!("{peer}: {reason}")) {
        tracing::warn!(%peer, address, reason, suppressed, "cannot connect to a peer");
    }
    None
}

/// The dialling side: says hello first.
async fn handshake(shared: &Shared, peer: &NodeName, stream: TcpStream) -> Result<Stream, String> {
    let mut stream = shared.security.connect(stream, peer).await?;
    let reply = async {
        say_hello(&mut stream, &shared.name).await?;
        hear_hello(&mut stream).await
    };
    match reply.await.map_err(|error| explained(&error))? {
        Hello::Name(reply) if reply == *peer => Ok(stream),
        Hello::Name(reply) => Err(format!("the node at its address is {reply:?}")),
        Hello::Refused(Refusal::Unlisted) => {
            Err(format!("it refused: {:?} is not in its option peers", shared.name))
        }
        Hello::Refused(Refusal::Other) => Err("it refused: its log has the reason".into()),
        Hello::Tls => {
            shared.malformed();
            Err(TLS_AT_OTHER.into())
        }
        Hello::Malformed => {
            shared.malformed();
            Err("malformed hello".into())
        }
    }
}

/// Accepts connections.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener, accepted: TaskTracker) {
    let (mut connections, opener) = (JoinSet::new(), Opener::this_process());
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            connection = listener.accept() => match connection {
                Ok((stream, from)) => {
                    let welcome = welcome(shared.clone(), stream, from);
                    connections.spawn(opener.bind(accepted.track_future(welcome)));
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

/// Looks up the addresses of peers, whose connections strangers do not evict.
pub(super) async fn look_up_peers(shared: Arc<Shared>) {
    loop {
        let peers: Vec<String> = shared.lock().peers.values().cloned().collect();
        let mut known = BTreeSet::<IpAddr>::new();
        for address in peers {
            if let Ok(found) = lookup_host(address).await {
                known.extend(found.map(|address| address.ip().to_canonical()));
            }
        }
        shared.gate.set_known(known);
        sleep(LOOKUP_EVERY).await;
    }
}

async fn welcome(shared: Arc<Shared>, stream: TcpStream, from: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let place = shared.gate.enter(from.ip().to_canonical());
    let authenticated = tokio::select! {
        authenticated = timeout(HELLO_TIMEOUT, authenticate(&shared, stream)) => {
            authenticated.unwrap_or_else(|_| Err(Some("no hello in time".into())))
        }
        () = place.evicted() => Err(Some("too many connections without a hello".into())),
    };
    drop(place);
    match authenticated {
        Ok((peer, stream)) => run(&shared, &peer, stream).await,
        Err(None) => {
            shared.inbox.counters().refused_before_authentication += 1;
            tracing::debug!(%from, "connection closed before any byte; probably a health check");
        }
        Err(Some(reason)) => {
            shared.inbox.counters().refused_before_authentication += 1;
            if let Some(suppressed) = shared.gate.logs(&reason) {
                tracing::warn!(%from, reason, suppressed, "refused a connection");
            }
        }
    }
}

/// Authenticates an accepted connection. `Err(None)` means that the peer closed it without sending
/// anything.
async fn authenticate(
    shared: &Shared,
    stream: TcpStream,
) -> Result<(NodeName, Stream), Option<String>> {
    if let Ok(0) | Err(_) = stream.peek(&mut [0]).await {
        return Err(None);
    }
    let mut stream = shared.security.accept(stream).await?;
    match identify(shared, &mut stream).await {
        Ok(peer) => Ok((peer, stream)),
        Err((refusal, reason)) => {
            refuse(&mut stream, refusal).await;
            Err(Some(reason))
        }
    }
}

/// Says hello after the peer, to peers alone.
async fn identify(shared: &Shared, stream: &mut Stream) -> Result<NodeName, (Refusal, String)> {
    let other = |reason| (Refusal::Other, reason);
    let peers: Vec<NodeName> = shared.lock().peers.keys().cloned().collect();
    let dialling: Vec<NodeName> = peers.iter().filter(|p| **p < shared.name).cloned().collect();
    // Before the hello: a certificate for another purpose is refused at once.
    shared.security.check_any(stream, &dialling).map_err(other)?;
    let hello = hear_hello(stream).await.map_err(|error| other(explained(&error)))?;
    let refused = match hello {
        Hello::Name(peer) if dialling.contains(&peer) => {
            shared.security.check_any(stream, std::slice::from_ref(&peer)).map_err(other)?;
            let said = say_hello(stream, &shared.name).await;
            return said.map(|()| peer).map_err(|error| other(explained(&error)));
        }
        Hello::Name(peer) if peer == shared.name => other(format!(
            "{peer:?} is the name of this node: an address in peers leads here, or the name runs \
             twice"
        )),
        Hello::Name(peer) if peers.contains(&peer) => {
            other(format!("{peer:?} should not dial: the smaller name does, which is this node's"))
        }
        Hello::Name(peer) => {
            (Refusal::Unlisted, format!("{peer:?} is not in the option peers of this node"))
        }
        Hello::Tls => other(TLS_AT_OTHER.into()),
        Hello::Refused(_) | Hello::Malformed => other("malformed hello".into()),
    };
    shared.malformed();
    Err(refused)
}

/// Why a connection failed, for the log.
pub(super) fn explained(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "closed before its hello".into();
    }
    #[cfg(feature = "tls")]
    return match crate::tls::reason(error) {
        reason if reason.ends_with("does not speak TLS") => super::hello::TLS_HERE.into(),
        reason => reason,
    };
    #[cfg(not(feature = "tls"))]
    error.to_string()
}

/// A frame with the byte of its kind.
const MARKED_BYTES_MAX: usize = FRAME_BYTES_MAX + 1;

/// Four bytes of length, then a hello, or the byte of a kind and a frame.
pub(super) fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MARKED_BYTES_MAX).new_codec()
}

/// Carries frames both ways until one side ends.
async fn run(shared: &Shared, peer: &NodeName, stream: Stream) {
    let ((reader, writer), alive) = (halves(stream), &head(ALIVE, 0));
    let alive = Bytes::copy_from_slice(alive);
    let outgoing = Arc::new(Outgoing::new(writer, alive, OUTGOING_FRAMES_MAX, QUEUE_BYTES));
    if !shared.up(peer, outgoing.clone()) {
        return;
    }
    count!("gaggle_connections_total", "to" => "peer");
    tracing::info!(%peer, "connection up");
    let mut read = pin!(read(shared, peer, FramedRead::new(reader, codec())));
    tokio::select! {
        () = &mut read => {}
        // A peer that ends resets the connection after its last frames: they are still taken.
        () = outgoing.write() => {
            let _ = timeout(DRAIN_MAX, read).await;
        }
    }
    shared.down(peer, &outgoing);
}

async fn read(
    shared: &Shared,
    peer: &NodeName,
    mut reader: FramedRead<Reader, LengthDelimitedCodec>,
) {
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
        match frame.map(message) {
            Ok(Some(Message::Data(frame))) => {
                shared.inbox.push(Received::Frame { from: peer.clone(), frame });
            }
            Ok(Some(Message::Alive)) => {}
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
pub(super) enum Message {
    Alive,
    Data(Bytes),
}

pub(super) fn message(frame: BytesMut) -> Option<Message> {
    match *frame.first()? {
        DATA => Some(Message::Data(frame.freeze().slice(1..))),
        ALIVE => Some(Message::Alive),
        _ => None,
    }
}

/// Length and kind, which precede the bytes of a frame.
pub(super) fn head(mark: u8, bytes: usize) -> [u8; HEAD_BYTES] {
    let length = u32::try_from(bytes + 1).expect("frames are limited to far less");
    let [a, b, c, d] = length.to_be_bytes();
    [a, b, c, d, mark]
}
