//! The task of a Redis channel: carries frames until a connection breaks, and reconnects.
//!
//! The caller that sends a frame writes to the socket itself, and the server does not reply to a
//! publication: a frame passes no task but its receiver's, and costs the server one write. Once a
//! second an empty publication to the node's own topic makes the whole round trip, and is replied
//! to. It shows that both connections work and that the server lets this node publish.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rand::RngExt;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError,
    Value, aio::MultiplexedConnection,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    Shared, Topics,
    publisher::{Publisher, Replies},
    socket::Socket,
    topics,
};
use crate::{ChannelError, QUEUE_BYTES, Received, outgoing::Outgoing};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const OUTGOING_FRAMES_MAX: usize = 16_384;
const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A connection that lasted this long resets the pause.
const HELD: Duration = Duration::from_secs(3);
/// How often a connection is checked for silence.
const SILENCE_CHECK: Duration = Duration::from_secs(1);
/// A connection that is silent in this many checks in a row is dropped.
const SILENT_CHECKS_MAX: u32 = 3;
/// A check that is this late shows that this process stood still, and sent nothing either.
const STOOD_STILL: Duration = Duration::from_millis(500);

pub(super) struct Link {
    topics: Topics,
    info: ConnectionInfo,
    shared: Arc<Shared>,
}

/// The connection that publishes, and the subscribed one.
pub(super) struct Connection {
    pub(super) outgoing: Arc<Outgoing>,
    replies: Replies,
    subscriber: Subscriber,
}

struct Subscriber {
    /// Dropped, it would end the driver.
    _handle: MultiplexedConnection,
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Whether something was published here since the last check.
    is_alive: Arc<AtomicBool>,
}

/// Why a connection is unusable.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("closed by the server")]
    Closed,
    #[error("nothing received for {:?}", SILENCE_CHECK * SILENT_CHECKS_MAX)]
    Silent,
    #[error("the server does not read")]
    Stalled,
    #[error("malformed reply from redis")]
    Malformed,
    #[error("the server refused the command: {0}")]
    Refused(String),
    #[error("no connection within {CONNECT_TIMEOUT:?}")]
    Timeout,
}

impl Link {
    pub(super) fn new(topics: Topics, info: ConnectionInfo, shared: Arc<Shared>) -> Self {
        Self { topics, info, shared }
    }

    /// Connects and subscribes; the subscription is acknowledged when this returns.
    pub(super) async fn connect(&self) -> Result<Connection, ChannelError> {
        let connected = timeout(CONNECT_TIMEOUT, self.try_connect()).await;
        connected.unwrap_or(Err(Problem::Timeout)).map_err(unavailable)
    }

    async fn try_connect(&self) -> Result<Connection, Problem> {
        let subscriber = self.subscribe().await?;
        let mut publisher = Publisher::open(&self.info).await?;
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
        let Publisher { writer, replies } = publisher;
        let outgoing = Outgoing::new(writer, alive.into(), OUTGOING_FRAMES_MAX, QUEUE_BYTES);
        let outgoing = Arc::new(outgoing);
        Ok(Connection { outgoing, replies, subscriber })
    }

    async fn subscribe(&self) -> Result<Subscriber, Problem> {
        let stream = Socket::open(self.info.addr()).await?.into_stream();
        let (shared, mine) = (self.shared.clone(), self.topics.mine.clone());
        let is_alive = Arc::new(AtomicBool::new(true));
        let pushed = is_alive.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                pushed.store(true, Ordering::Relaxed);
                take(&shared, &mine, &push);
                Ok::<(), ()>(())
            });
        let login = self.info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let login = login.set_skip_set_lib_name();
        let connected = MultiplexedConnection::new_with_config(&login, stream, config).await;
        let (mut handle, driver) = connected.map_err(|error| of_library(&error))?;
        let mut driver: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(driver);
        let subscribe =
            redis::cmd("SUBSCRIBE").arg(&self.topics.mine).arg(&self.topics.all).clone();
        let subscribed = tokio::select! {
            biased;
            reply = handle.send_packed_command(&subscribe) => reply.and_then(Value::extract_error),
            () = &mut driver => return Err(Problem::Closed),
        };
        subscribed.map_err(|error| match error.code() {
            Some(_) => Problem::Refused(error.to_string()),
            None => of_library(&error),
        })?;
        Ok(Subscriber { _handle: handle, driver, is_alive })
    }

    /// Runs until aborted.
    pub(super) async fn run(self, mut connection: Connection) {
        let mut pause = RECONNECT.0;
        loop {
            let up = Instant::now();
            let problem = carry(connection).await;
            tracing::warn!(%problem, topic = %self.topics.mine, "connection to redis lost");
            self.shared.down(&problem);
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
}

/// Carries frames until a connection breaks. Returns why it broke.
async fn carry(connection: Connection) -> Problem {
    let Connection { outgoing, mut replies, mut subscriber } = connection;
    let replied = AtomicBool::new(true);
    let read_replies = async {
        loop {
            match replies.next().await {
                Ok(()) => replied.store(true, Ordering::Relaxed),
                Err(problem) => return problem,
            }
        }
    };
    tokio::select! {
        biased;
        problem = read_replies => problem,
        () = &mut subscriber.driver => Problem::Closed,
        () = silence(&subscriber.is_alive) => Problem::Silent,
        () = silence(&replied) => Problem::Silent,
        () = outgoing.write() => Problem::Stalled,
    }
}

/// Completes when `is_alive` was not set in several checks in a row.
async fn silence(is_alive: &AtomicBool) {
    let mut silent_checks = 0;
    while silent_checks < SILENT_CHECKS_MAX {
        let check = Instant::now() + SILENCE_CHECK;
        sleep_until(check).await;
        let excused = is_alive.swap(false, Ordering::Relaxed) || check.elapsed() >= STOOD_STILL;
        silent_checks = if excused { 0 } else { silent_checks + 1 };
    }
}

/// Takes a publication.
fn take(shared: &Shared, mine: &str, push: &PushInfo) {
    if push.kind != PushKind::Message {
        return;
    }
    let [Value::BulkString(topic), Value::BulkString(payload)] = push.data.as_slice() else {
        return shared.malformed();
    };
    match topics::parse(payload) {
        Some((from, frame)) => shared.hand_in_frame(Received::Frame { from, frame }),
        // The sign of life.
        None if payload.is_empty() && topic == mine.as_bytes() => {}
        None => shared.malformed(),
    }
}

fn client_reply(mode: &str) -> Cmd {
    redis::cmd("CLIENT").arg("REPLY").arg(mode).clone()
}

/// Sorts an error of the client library. Of a refused login only the code is shown: the server may
/// quote the command with its password.
fn of_library(error: &RedisError) -> Problem {
    match error.code() {
        Some(code) => Problem::Refused(code.to_owned()),
        None if error.is_io_error() => Problem::Io(io::Error::other(error.to_string())),
        None => Problem::Refused(error.category().to_owned()),
    }
}

fn unavailable(problem: Problem) -> ChannelError {
    ChannelError::Unavailable { source: problem.into() }
}
