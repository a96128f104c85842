//! The one task of a Redis channel: hands in what arrives, writes what could not be written at once,
//! reconnects.
//!
//! The sender of a frame writes to the socket itself, and the server does not reply to a publication:
//! a frame passes no task but its receiver's, and the server writes to its receiver alone. Once a
//! second a publication to the node's own topic makes the whole round trip, and is replied to: the
//! sign that both connections work and that the server lets us publish.

use std::{sync::Arc, time::Duration};

use rand::RngExt;
use redis::{Cmd, ConnectionInfo, IntoConnectionInfo, PushKind, Value};
use tokio::time::{Instant, sleep, timeout};

use super::{
    RedisOptions, Shared, Topics,
    resp::Malformed,
    session::{Listener, Problem, Session},
    topics,
};
use crate::{ChannelError, Received, outgoing::Outgoing, writer::Writer};

const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A connection that lasted for this long sets the pause back.
const HELD: Duration = Duration::from_secs(3);

pub(super) struct Link {
    options: RedisOptions,
    topics: Topics,
    info: ConnectionInfo,
    shared: Arc<Shared>,
}

/// A connection that publishes, and one that is subscribed.
pub(super) struct Connection {
    pub(super) outgoing: Arc<Outgoing>,
    /// Receives replies, most of which are turned off.
    publisher: Listener,
    subscriber: Listener,
    /// Keeps the subscriber's socket open.
    _subscribed: Writer,
}

impl Link {
    pub(super) fn new(
        options: RedisOptions,
        topics: Topics,
        shared: Arc<Shared>,
    ) -> Result<Self, ChannelError> {
        let info = options.url.as_str().into_connection_info().map_err(unavailable)?;
        Ok(Self { options, topics, info, shared })
    }

    /// Connects and subscribes; the subscription is acknowledged when this returns.
    pub(super) async fn connect(&self) -> Result<Connection, ChannelError> {
        let limit = self.options.connect_timeout;
        match timeout(limit, self.try_connect()).await {
            Ok(connection) => connection.map_err(unavailable),
            Err(_) => Err(unavailable(format!("no connection within {limit:?}"))),
        }
    }

    async fn try_connect(&self) -> Result<Connection, Problem> {
        let mut subscriber = Session::open(&self.info).await?;
        for topic in [&self.topics.mine, &self.topics.all] {
            subscriber.ask(redis::cmd("SUBSCRIBE").arg(topic)).await?;
        }
        let mut publisher = Session::open(&self.info).await?;
        // A server that forbids it replies to each publication, which is correct and slower.
        let quiet = publisher.ask(&client_reply("ON")).await.is_ok();
        let sign = redis::cmd("PUBLISH").arg(&self.topics.mine).arg("").clone();
        publisher.ask(&sign).await?;
        let mut alive = sign.get_packed_command();
        if quiet {
            let off = client_reply("OFF").get_packed_command();
            publisher.write(&off).await?;
            alive = [client_reply("ON").get_packed_command(), alive, off].concat();
        }
        let (frames, bytes) = (self.options.outgoing_frames_max, self.options.queue_bytes_max);
        Ok(Connection {
            outgoing: Arc::new(Outgoing::new(publisher.writer, alive.into(), frames, bytes)),
            publisher: publisher.listener,
            subscriber: subscriber.listener,
            _subscribed: subscriber.writer,
        })
    }

    /// Runs until aborted.
    pub(super) async fn run(self, mut connection: Connection) {
        let mut pause = RECONNECT.0;
        loop {
            let up = Instant::now();
            let problem = self.carry(connection).await;
            tracing::warn!(%problem, topic = %self.topics.mine, "connection to redis lost");
            self.shared.down(problem.is::<Malformed>());
            // Connections that end at once must not be retried in a tight loop.
            if up.elapsed() >= HELD {
                pause = RECONNECT.0;
            }
            connection = loop {
                let jittered = rand::rng().random_range(pause / 2..=pause);
                sleep(jittered).await;
                match self.connect().await {
                    Ok(connection) => break connection,
                    Err(error) => tracing::debug!(%error, "cannot reconnect to redis"),
                }
                pause = (pause * 2).min(RECONNECT.1);
            };
            tracing::info!(topic = %self.topics.mine, "connection to redis restored");
            self.shared.up(connection.outgoing.clone());
        }
    }

    /// Carries frames until a connection breaks; then why.
    async fn carry(&self, connection: Connection) -> Problem {
        let Connection { outgoing, mut publisher, mut subscriber, _subscribed } = connection;
        tokio::select! {
            biased;
            problem = subscriber.listen(|value| self.take(value)) => problem,
            problem = publisher.listen(|value| self.answered(value)) => problem,
            () = outgoing.write() => "the connection that publishes cannot be written to".into(),
        }
    }

    /// Takes what the subscriber receives.
    fn take(&self, value: Value) -> Result<(), Problem> {
        match value {
            Value::Push { kind: PushKind::Message, data } => {
                let [topic, payload] = data.as_slice() else { return self.malformed() };
                let (Value::BulkString(topic), Value::BulkString(payload)) = (topic, payload)
                else {
                    return self.malformed();
                };
                match topics::parse(payload) {
                    Some((from, frame)) => self.shared.hand_in(Received::Frame { from, frame }),
                    // A sign of life, whose arrival is all that counts.
                    None if payload.is_empty() && topic == self.topics.mine.as_bytes() => {}
                    None => return self.malformed(),
                }
                Ok(())
            }
            Value::Push { kind, .. } => Err(format!("unexpected push: {kind:?}").into()),
            reply => Ok(reply.extract_error().map(drop)?),
        }
    }

    /// Counts a publication that is no frame, which ends nothing.
    fn malformed(&self) -> Result<(), Problem> {
        self.shared.malformed();
        Ok(())
    }

    /// Takes what the publisher receives.
    fn answered(&self, value: Value) -> Result<(), Problem> {
        if let Value::ServerError(error) = value {
            self.shared.refused();
            return Err(redis::RedisError::from(error).into());
        }
        Ok(())
    }
}

fn client_reply(mode: &str) -> Cmd {
    let mut cmd = redis::cmd("CLIENT");
    cmd.arg("REPLY").arg(mode);
    cmd
}

fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ChannelError {
    // A `RedisError` and its source have the same text, which would stand in the chain twice.
    let source = match source.into().downcast::<redis::RedisError>() {
        Ok(error) => error.to_string().into(),
        Err(other) => other,
    };
    ChannelError::Unavailable { source }
}
