//! The connection of a Redis channel: publishes batches, reads pushes, and is made again.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, Value, aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, mpsc},
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Shared, Topics,
    error::{CONNECT_TIMEOUT, ConnectionError, SILENCE_MAX},
    topics,
};
use crate::{
    QUEUE_BYTES, Received,
    backoff::Backoff,
    internal::net::LookUps,
    internal::process::Opener,
    internal::reply_limit::{HANDSHAKE_BYTES_MAX, LimitedStream, ReplyLimit},
};

const OUTGOING_FRAMES_MAX: usize = 16_384;
/// How many frames one batch publishes at most.
const BATCH: usize = 256;
const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A connection that lasted this long resets the pause.
const HELD: Duration = Duration::from_secs(3);
/// After this long without a frame, the node publishes an empty frame to its own topic. This tests
/// the connection and the right to publish.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// The server, as one node uses it.
pub(super) struct Server {
    info: ConnectionInfo,
    /// The address in errors and events.
    address: String,
    look_ups: LookUps,
    pub(super) topics: Topics,
}

/// A subscribed connection, and the frames to publish on it.
pub(super) struct Connection {
    subscribed: Subscribed,
    /// The publications, each with its size in the queue.
    frames: mpsc::Receiver<(Cmd, usize)>,
    queued_bytes: Arc<AtomicUsize>,
}

/// A connection after its handshake.
struct Subscribed {
    redis: MultiplexedConnection,
    /// Reads and writes.
    _driver: AbortOnDropHandle<()>,
    limit: ReplyLimit,
    /// Notified when the driver has ended.
    closed: Arc<Notify>,
}

/// The queue of a connection, bounded in frames and in bytes. Dropping it ends the connection after
/// the last frame.
pub(super) struct Outgoing {
    frames: mpsc::Sender<(Cmd, usize)>,
    queued_bytes: Arc<AtomicUsize>,
}

impl Server {
    pub(super) fn new(info: ConnectionInfo, topics: Topics) -> Self {
        // Publications arrive between replies, on one connection.
        let login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_redis_settings(login.set_skip_set_lib_name());
        Self { address: info.addr().to_string(), info, look_ups: LookUps::default(), topics }
    }

    /// Connects and subscribes. When it returns, the subscription is acknowledged and this node may
    /// publish.
    pub(super) async fn connect(
        &self,
        shared: &Arc<Shared>,
    ) -> Result<(Outgoing, Connection), ConnectionError> {
        let subscribed = loop {
            let connected = timeout(CONNECT_TIMEOUT, self.try_connect(shared)).await;
            match connected.unwrap_or_else(|_| Err(ConnectionError::timeout(&self.address))) {
                Ok(connected) => break connected,
                // A name server that does not reply: the next attempt awaits the same look-up.
                Err(_) if self.look_ups.has_pending() => {}
                Err(error) => return Err(error),
            }
        };
        count!("gaggle_connections_total", "to" => "redis");
        let (sender, frames) = mpsc::channel(OUTGOING_FRAMES_MAX);
        let queued_bytes = Arc::<AtomicUsize>::default();
        let outgoing = Outgoing { frames: sender, queued_bytes: queued_bytes.clone() };
        Ok((outgoing, Connection { subscribed, frames, queued_bytes }))
    }

    async fn try_connect(&self, shared: &Arc<Shared>) -> Result<Subscribed, ConnectionError> {
        let (closed, limit) = (Arc::new(Notify::new()), ReplyLimit::new(HANDSHAKE_BYTES_MAX));
        let (shared, mine, taken) = (shared.clone(), self.topics.mine.clone(), limit.clone());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(SILENCE_MAX))
            .set_push_sender(move |push: PushInfo| {
                taken.renew();
                take(&shared, &mine, &push);
                Ok::<(), ()>(())
            });
        let failed = |error| ConnectionError::of_attempt(&self.address, &error);
        let stream = self.open().await.map_err(|error| failed(error.into()))?;
        let stream = LimitedStream::new(stream, limit.clone());
        let login = self.info.redis_settings();
        let connected = MultiplexedConnection::new_with_config(login, stream, config).await;
        let (mut redis, driver) = connected.map_err(failed)?;
        let ended = closed.clone();
        // The library would also run its task in a fork.
        let driver = tokio::spawn(Opener::this_process().bind(async move {
            driver.await;
            ended.notify_one();
        }));
        let driver = AbortOnDropHandle::new(driver);
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg(&self.topics.mine);
        for cmd in [subscribe, self.topics.sign_of_life()] {
            let reply = redis.send_packed_command(&cmd).await.and_then(Value::extract_error);
            reply.map_err(|error| ConnectionError::of_command(&self.address, &error))?;
        }
        limit.renew();
        Ok(Subscribed { redis, _driver: driver, limit, closed })
    }

    async fn open(&self) -> io::Result<Box<dyn Stream>> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let address = (host.clone(), *port);
                Ok(Box::new(self.look_ups.connect(address, CONNECT_TIMEOUT).await?))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
            }
            _ => {
                let problem = "only TCP and Unix sockets are supported";
                Err(io::Error::new(io::ErrorKind::Unsupported, problem))
            }
        }
    }

    /// Publishes and reconnects until the channel is disconnected.
    pub(super) async fn run(&self, mut connection: Connection, shared: &Arc<Shared>) {
        let mut backoff = Backoff::new(RECONNECT);
        loop {
            let up = Instant::now();
            let Err(error) = self.publish(&mut connection).await else { return };
            shared.down(&error);
            tracing::warn!(%error, topic = %self.topics.mine, "connection to redis lost");
            // Connections that end at once must not be retried in a tight loop.
            if up.elapsed() >= HELD {
                backoff.reset();
            }
            let outgoing;
            (outgoing, connection) = loop {
                backoff.sleep().await;
                if shared.inbox.check_open().is_err() {
                    return;
                }
                match self.connect(shared).await {
                    Ok(connected) => break connected,
                    Err(error) => tracing::debug!(%error, "cannot reconnect to redis"),
                }
            };
            tracing::info!(topic = %self.topics.mine, "connection to redis restored");
            shared.up(outgoing);
        }
    }

    /// Publishes frames, one batch after the other, until the queue is dropped or the connection
    /// breaks.
    async fn publish(&self, connection: &mut Connection) -> Result<(), ConnectionError> {
        let Connection { subscribed, frames, queued_bytes } = connection;
        let Subscribed { redis, limit, closed, .. } = subscribed;
        loop {
            let next = tokio::select! {
                biased;
                () = closed.notified() => return Err(ConnectionError::closed(&self.address)),
                next = timeout(ALIVE_EVERY, frames.recv()) => next,
            };
            let mut batch = redis::pipe();
            match next {
                Ok(None) => return Ok(()),
                Ok(Some((cmd, bytes))) => {
                    batch.add_command(cmd).ignore();
                    let mut taken = bytes;
                    while batch.len() < BATCH
                        && let Ok((cmd, bytes)) = frames.try_recv()
                    {
                        batch.add_command(cmd).ignore();
                        taken += bytes;
                    }
                    queued_bytes.fetch_sub(taken, Ordering::Relaxed);
                }
                Err(_) => _ = batch.add_command(self.topics.sign_of_life()).ignore(),
            }
            let published = batch.exec_async(redis).await;
            published.map_err(|error| ConnectionError::of_command(&self.address, &error))?;
            limit.renew();
        }
    }
}

impl Outgoing {
    /// Queues a publication. Returns whether it fitted.
    pub(super) fn send(&self, publish: Cmd) -> bool {
        let bytes = publish.args_iter().map(size).sum::<usize>();
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = queued + bytes <= QUEUE_BYTES && self.frames.try_send((publish, bytes)).is_ok();
        if !sent {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }
}

fn size(arg: redis::Arg<&[u8]>) -> usize {
    match arg {
        redis::Arg::Simple(bytes) => bytes.len(),
        _ => 0,
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Takes a publication.
fn take(shared: &Shared, mine: &str, push: &PushInfo) {
    if push.kind != PushKind::Message {
        return;
    }
    let [Value::BulkString(topic), Value::BulkString(payload)] = push.data.as_slice() else {
        return shared.malformed();
    };
    match topics::parse(payload) {
        Some((from, frame)) => shared.inbox.push(Received::Frame { from, frame }),
        // The sign of life.
        None if payload.is_empty() && topic == mine.as_bytes() => {}
        None => shared.malformed(),
    }
}

#[cfg(test)]
mod tests {
    use gaggle_fixtures::RedisServer;

    use super::*;
    use crate::NodeName;

    /// A name server that does not reply costs 5 s before the next one is asked.
    #[tokio::test]
    async fn connect_awaits_a_look_up_longer_than_an_attempt() {
        let redis = RedisServer::start();
        let (port, delay) = (redis.port(), CONNECT_TIMEOUT + Duration::from_millis(500));
        let client = redis::Client::open(format!("redis://slow.test:{port}/")).unwrap();
        let topics = Topics::new("c", &NodeName::new("a").unwrap());
        let server = Server::new(client.get_connection_info().clone(), topics);
        let name = format!("{:?}", ("slow.test", port));
        let _pending = server.look_ups.begin(&name, async move {
            tokio::time::sleep(delay).await;
            Ok(vec![([127, 0, 0, 1], port).into()])
        });
        assert!(server.connect(&Arc::default()).await.is_ok());
    }
}
