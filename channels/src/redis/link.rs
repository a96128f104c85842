//! The one task of a Redis channel: publishes what is queued, hands in what arrives, reconnects.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use rand::RngExt;
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult,
    aio::{MultiplexedConnection, PubSubSink, PubSubStream},
    io::tcp::TcpSettings,
};
use tokio::time::{interval, sleep, timeout};

use super::{RedisOptions, Topics, lock, topics};
use crate::{ChannelError, Counters, Received, queue};

const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
const PING_EVERY: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Writes that have not been answered, at one time: enough to keep a link busy.
const WRITES_MAX: usize = 64;
/// Frames of one write.
const BATCH: usize = 512;
/// What a write gathers at the most before it goes out.
const BATCH_BYTES: usize = 1 << 20;

/// A frame on its way to Redis.
pub(super) struct Outgoing {
    pub(super) topic: String,
    pub(super) payload: Bytes,
}

pub(super) struct Link {
    options: RedisOptions,
    topics: Topics,
    client: Client,
    outgoing: queue::Receiver<Outgoing>,
    inbox: queue::Sender<Received>,
    counters: Arc<Mutex<Counters>>,
}

/// A connection that publishes, and one that is subscribed.
pub(super) struct Connection {
    publisher: MultiplexedConnection,
    sink: PubSubSink,
    stream: PubSubStream,
}

impl Link {
    pub(super) fn new(
        options: RedisOptions,
        topics: Topics,
        outgoing: queue::Receiver<Outgoing>,
        inbox: queue::Sender<Received>,
        counters: Arc<Mutex<Counters>>,
    ) -> Result<Self, ChannelError> {
        let client = client(&options.url).map_err(unavailable)?;
        Ok(Self { options, topics, client, outgoing, inbox, counters })
    }

    /// Connects and subscribes; the subscription is acknowledged when this returns.
    pub(super) async fn connect(&self) -> Result<Connection, ChannelError> {
        let limit = self.options.connect_timeout;
        match timeout(limit, self.try_connect()).await {
            Ok(connection) => connection.map_err(unavailable),
            Err(_) => Err(unavailable(format!("no connection within {limit:?}"))),
        }
    }

    async fn try_connect(&self) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_timeout))
            .set_response_timeout(Some(ANSWER_MAX));
        let publisher = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let (mut sink, stream) = self.client.get_async_pubsub().await?.split();
        sink.subscribe(&[&self.topics.mine, &self.topics.all]).await?;
        Ok(Connection { publisher, sink, stream })
    }

    /// Runs until aborted, or until the channel is gone.
    pub(super) async fn run(mut self, mut connection: Connection) {
        loop {
            if self.carry(connection).await.is_none() {
                return;
            }
            tracing::warn!(topic = %self.topics.mine, "connection to redis lost");
            self.hand_in(Received::Down { peer: None });
            let mut pause = RECONNECT.0;
            connection = loop {
                let jittered = rand::rng().random_range(pause / 2..=pause);
                sleep(jittered).await;
                self.drop_outgoing();
                match self.connect().await {
                    Ok(connection) => break connection,
                    Err(error) => tracing::debug!(%error, "cannot reconnect to redis"),
                }
                pause = (pause * 2).min(RECONNECT.1);
            };
            tracing::info!(topic = %self.topics.mine, "connection to redis restored");
            self.hand_in(Received::Up { peer: None });
        }
    }

    /// Carries frames until the connection breaks; `None` when the channel is gone.
    async fn carry(&mut self, connection: Connection) -> Option<()> {
        let Connection { publisher, sink, mut stream } = connection;
        let mut writes = FuturesUnordered::new();
        let mut pings = interval(PING_EVERY);
        let mut ping = std::pin::pin!(None);
        loop {
            tokio::select! {
                biased;
                // First: a write is sent when it is first polled, and order must be kept.
                Some(written) = writes.next() => {
                    let written: RedisResult<()> = written;
                    if written.is_err() {
                        return Some(());
                    }
                }
                message = stream.next() => match message {
                    Some(message) => self.take(&message),
                    None => return Some(()),
                },
                outgoing = self.outgoing.recv(), if writes.len() < WRITES_MAX => {
                    writes.push(publish(publisher.clone(), self.gather(outgoing?)));
                }
                answered = async { ping.as_mut().as_pin_mut().expect("guarded").await },
                    if ping.is_some() =>
                {
                    ping.set(None);
                    let answered: Result<RedisResult<()>, _> = answered;
                    if !matches!(answered, Ok(Ok(()))) {
                        return Some(());
                    }
                }
                _ = pings.tick(), if ping.is_none() => {
                    let mut sink = sink.clone();
                    ping.set(Some(timeout(ANSWER_MAX, async move {
                        sink.ping::<redis::Value>().await.map(drop)
                    })));
                }
            }
        }
    }

    /// Everything that waits, up to a batch: one write.
    fn gather(&mut self, first: Outgoing) -> redis::Pipeline {
        let mut pipeline = redis::pipe();
        let mut next = Some(first);
        let mut bytes = 0;
        while let Some(Outgoing { topic, payload }) = next {
            bytes += payload.len();
            pipeline.publish(topic, &payload[..]).ignore();
            let full = pipeline.len() >= BATCH || bytes >= BATCH_BYTES;
            next = if full { None } else { self.outgoing.try_recv() };
        }
        pipeline
    }

    fn take(&self, message: &redis::Msg) {
        let payload = Bytes::copy_from_slice(message.get_payload_bytes());
        match topics::parse(&payload) {
            Some((from, frame)) => self.hand_in(Received::Frame { from, frame }),
            None => {
                lock(&self.counters).malformed += 1;
                tracing::warn!(topic = message.get_channel_name(), "malformed frame");
            }
        }
    }

    fn hand_in(&self, received: Received) {
        let bytes = received.bytes();
        let handed = self.inbox.try_send(received, bytes);
        let mut counters = lock(&self.counters);
        if handed {
            counters.received += 1;
        } else {
            counters.dropped_incoming += 1;
        }
    }

    /// Frames that waited while Redis was down are too old to be of use.
    fn drop_outgoing(&mut self) {
        while self.outgoing.try_recv().is_some() {
            lock(&self.counters).dropped_outgoing += 1;
        }
    }
}

async fn publish(
    mut publisher: MultiplexedConnection,
    pipeline: redis::Pipeline,
) -> RedisResult<()> {
    pipeline.exec_async(&mut publisher).await
}

fn client(url: &str) -> RedisResult<Client> {
    let settings = TcpSettings::default().set_nodelay(true);
    Client::open(url.into_connection_info()?.set_tcp_settings(settings))
}

fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ChannelError {
    ChannelError::Unavailable { source: source.into() }
}
