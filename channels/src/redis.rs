//! [`Redis`]: the pub/sub of one Redis.

mod connection;
mod error;
mod options;
mod topics;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{sync::Mutex as AsyncMutex, task::JoinHandle, time::timeout};

pub use self::options::RedisOptions;
use self::{
    connection::{Outgoing, Server},
    error::ConnectionError,
    topics::Topics,
};
use crate::{
    Channel, ChannelError, Counters, NodeName, Received, check_length, inbox::Inbox,
    internal::process::Opener,
};

/// How long [`Channel::disconnect`] waits for queued frames to leave.
const LINGER: Duration = Duration::from_millis(100);

/// Frames over the pub/sub of one Redis: one topic per node.
///
/// A lost connection is reconnected and subscribed again automatically. Frames that were published
/// in between are lost. The channel works with Redis 7 and Valkey, and stores nothing there. All
/// nodes need the same server: a frame published to a replica does not reach its master.
///
/// ```no_run
/// use gaggle_channels::{Channel, NodeName, Redis, RedisOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_channels::ChannelError> {
/// let options = RedisOptions::new("redis://127.0.0.1", "orders", NodeName::new("a")?);
/// let channel = Redis::new(options)?;
/// channel.connect().await?;
/// channel.send(&NodeName::new("b")?, "hello".into())?;
/// # Ok(())
/// # }
/// ```
///
/// | bound | value | reason |
/// |---|---|---|
/// | frame | 1 MiB | bounds the memory that a peer can occupy |
/// | outgoing queue | 16,384 frames, 64 MiB | a Redis that does not read costs memory |
/// | incoming queue | 65,536 frames, 64 MiB | a busy group sends while the receiver stalls |
/// | connect | 2 s | `connect` ends by then |
/// | silence | 3 to 4 s | closes half-open connections; a keep-alive each second |
/// | reconnect | 50 ms to 1 s, jittered | soon after a restart, and no storm |
pub struct Redis {
    server: Arc<Server>,
    shared: Arc<Shared>,
    running: AsyncMutex<Option<JoinHandle<()>>>,
}

/// The state that the task shares with its channel.
#[derive(Default)]
struct Shared {
    inbox: Inbox,
    /// The queue of the connection to Redis, while there is one.
    outgoing: Mutex<Option<Outgoing>>,
}

impl Redis {
    /// A channel with these options. It talks to Redis once connected.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] naming the field.
    pub fn new(options: RedisOptions) -> Result<Self, ChannelError> {
        let topics = Topics::new(&options.cluster, &options.name);
        let server = Arc::new(Server::new(options.check()?, topics));
        let (shared, running) = (Arc::default(), AsyncMutex::new(None));
        Ok(Self { server, shared, running })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Outgoing>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to Redis is open again.
    fn up(&self, outgoing: Outgoing) {
        let mut current = self.lock();
        if self.inbox.check_open().is_ok() {
            *current = Some(outgoing);
        }
    }

    /// The connection to Redis is closed.
    fn down(&self, error: &ConnectionError) {
        *self.lock() = None;
        // Only publications are refused.
        if !matches!(error, ConnectionError::Unreachable(_)) {
            self.inbox.count_sent(false);
        }
    }

    /// Counts a publication that does not decode. Only the first is logged: a stranger may publish
    /// without end.
    fn malformed(&self) {
        let malformed = {
            let mut counters = self.inbox.counters();
            counters.malformed += 1;
            counters.malformed
        };
        if malformed == 1 {
            tracing::warn!("malformed frame");
        }
    }
}

#[async_trait]
impl Channel for Redis {
    fn name(&self) -> &NodeName {
        &self.server.topics.me
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        let mut running = self.running.lock().await;
        if running.is_some() && self.shared.inbox.check_open().is_ok() {
            return Ok(());
        }
        end(&mut running).await;
        let (outgoing, connection) = self.server.connect(&self.shared).await?;
        self.shared.inbox.open();
        *self.shared.lock() = Some(outgoing);
        let (server, shared) = (self.server.clone(), self.shared.clone());
        let run = async move { server.run(connection, &shared).await };
        *running = Some(tokio::spawn(Opener::this_process().bind(run)));
        Ok(())
    }

    async fn disconnect(&self) {
        // Held to the end, so that a concurrent `connect` is not torn down with the rest.
        let mut running = self.running.lock().await;
        {
            let mut outgoing = self.shared.lock();
            self.shared.inbox.close();
            // The task publishes the rest of the queue, and ends.
            *outgoing = None;
        }
        end(&mut running).await;
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        check_length(&frame)?;
        self.shared.inbox.check_open()?;
        let outgoing = self.shared.lock();
        let publish = |outgoing: &Outgoing| outgoing.send(self.server.topics.publish(to, &frame));
        let sent = outgoing.as_ref().is_some_and(publish);
        self.shared.inbox.count_sent(sent);
        if !sent {
            tracing::debug!("outgoing queue full or redis down, dropped a frame");
        }
        Ok(())
    }

    async fn receive(&self) -> Option<Received> {
        self.shared.inbox.receive().await
    }

    fn try_receive(&self) -> Option<Received> {
        self.shared.inbox.try_receive()
    }

    fn counters(&self) -> Counters {
        *self.shared.inbox.counters()
    }
}

/// Ends the task of a disconnected channel. A call that is cancelled leaves it to the next.
async fn end(running: &mut Option<JoinHandle<()>>) {
    if let Some(task) = running
        && timeout(LINGER, &mut *task).await.is_err()
    {
        task.abort();
        let _ = task.await;
    }
    *running = None;
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(task) = self.running.get_mut().take() {
            task.abort();
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("name", self.name()).finish_non_exhaustive()
    }
}
