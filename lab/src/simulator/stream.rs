//! Connections of simulated clients of Redis, as streams that the simulation fills and drains.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use gaggle_strategies::redis::{Dial, DialFuture, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::redis_server::ConnectionId;

/// The streams of one process. The simulation puts segments in and takes segments out.
#[derive(Debug)]
pub(super) struct Link(Mutex<Streams>);

#[derive(Debug)]
struct Streams {
    /// The latest connection; its upper bits name the process.
    latest: ConnectionId,
    /// With the virtual time of arrival.
    arrived: BTreeMap<ConnectionId, VecDeque<(u64, Arrived)>>,
    sent: Vec<(ConnectionId, Sent)>,
    visible_until: u64,
}

/// An event that reaches a process on a connection.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Arrived {
    Accepted,
    Bytes(Vec<u8>),
    /// Refused, closed or reset.
    Ended,
}

/// An action of a process on a connection.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Sent {
    Open,
    Bytes(Vec<u8>),
    Close,
}

impl fmt::Debug for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::Bytes(bytes) => write!(f, "{}", bytes.escape_ascii()),
            Self::Ended => f.write_str("ended"),
        }
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::Bytes(bytes) => write!(f, "{}", bytes.escape_ascii()),
            Self::Close => f.write_str("close"),
        }
    }
}

/// The first connection of a run of a slot's process, less one.
const fn first(slot: usize, run: u64) -> ConnectionId {
    (slot as u64) << 48 | run << 24
}

/// The slot and run of the process that a connection belongs to.
pub(super) const fn process_of(connection: ConnectionId) -> (usize, u64) {
    ((connection >> 48) as usize, connection >> 24 & 0xff_ffff)
}

impl Link {
    pub(super) fn new(slot: usize, run: u64) -> Arc<Self> {
        let (arrived, sent) = (BTreeMap::new(), Vec::new());
        let streams = Streams { latest: first(slot, run), arrived, sent, visible_until: 0 };
        Arc::new(Self(Mutex::new(streams)))
    }

    pub(super) fn arrive(&self, now: u64, connection: ConnectionId, what: Arrived) {
        if let Some(arrived) = self.streams().arrived.get_mut(&connection) {
            arrived.push_back((now, what));
        }
    }

    pub(super) fn is_open(&self, connection: ConnectionId) -> bool {
        self.streams().arrived.contains_key(&connection)
    }

    pub(super) fn show_until(&self, virtual_time: u64) {
        self.streams().visible_until = virtual_time;
    }

    /// Whether something has arrived that the last turn did not take.
    pub(super) fn has_arrived(&self) -> bool {
        let streams = self.streams();
        let mut all = streams.arrived.values();
        all.any(|arrived| arrived.front().is_some_and(|(at, _)| *at > streams.visible_until))
    }

    pub(super) fn take_sent(&self) -> Vec<(ConnectionId, Sent)> {
        std::mem::take(&mut self.streams().sent)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    /// The first arrival that this turn may see.
    fn front(&mut self, connection: ConnectionId) -> Option<&mut Arrived> {
        let (at, what) = self.arrived.get_mut(&connection)?.front_mut()?;
        (*at <= self.visible_until).then_some(what)
    }

    fn pop(&mut self, connection: ConnectionId) {
        self.arrived.get_mut(&connection).and_then(VecDeque::pop_front);
    }
}

/// Opens streams on a link.
pub(super) struct SimDial(pub(super) Arc<Link>);

impl Dial for SimDial {
    fn dial(&mut self) -> Vec<DialFuture> {
        let mut streams = self.0.streams();
        streams.latest += 1;
        let connection = streams.latest;
        streams.arrived.insert(connection, VecDeque::new());
        streams.sent.push((connection, Sent::Open));
        let stream = SimStream { link: self.0.clone(), connection };
        let way: DialFuture = Box::pin(async move {
            let accepted = poll_fn(|_| {
                let mut streams = stream.link.streams();
                match streams.front(connection) {
                    None => return Poll::Pending,
                    Some(Arrived::Ended) => return Poll::Ready(false),
                    Some(_) => {}
                }
                streams.pop(connection);
                Poll::Ready(true)
            });
            match accepted.await {
                true => Ok((Box::new(stream) as Box<dyn Stream>, None)),
                false => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        });
        vec![way]
    }

    fn address(&self) -> String {
        "simulated".into()
    }
}

/// An end of a connection. It wakes no task: the simulation takes a turn where something arrives.
struct SimStream {
    link: Arc<Link>,
    connection: ConnectionId,
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut streams = self.link.streams();
        streams.arrived.remove(&self.connection);
        streams.sent.push((self.connection, Sent::Close));
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut streams = self.link.streams();
        let Some(Arrived::Bytes(bytes)) = streams.front(self.connection) else {
            let ended = streams.front(self.connection).is_some();
            return if ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        let len = bytes.len().min(buffer.remaining());
        let rest = bytes.split_off(len);
        buffer.put_slice(bytes);
        if rest.is_empty() {
            streams.pop(self.connection);
        } else {
            *bytes = rest;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.link.streams().sent.push((self.connection, Sent::Bytes(bytes.to_vec())));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
