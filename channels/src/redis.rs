//! [`Redis`]: the pub/sub of one Redis.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod decoders;
mod link;
mod options;
mod publisher;
mod socket;
mod topics;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use redis::ConnectionInfo;
use tokio::{sync::Mutex as AsyncMutex, task::JoinHandle};

pub use self::options::RedisOptions;
use self::{
    link::{Link, Problem},
    topics::Topics,
};
use crate::{
    Channel, ChannelError, Counters, INCOMING_FRAMES_MAX, NodeName, QUEUE_BYTES, Received,
    check_length,
    inbox::{Counts, Inbox},
    outgoing::Outgoing,
};

/// Frames over the pub/sub of one Redis: one topic per node and one for broadcasts.
///
/// It reconnects and subscribes again by itself, and reports [`Received::Down`] and
/// [`Received::Up`] when it does. Frames that were published in between are lost. It works with
/// Redis 7 and Valkey, and stores nothing there. Where its user may `CLIENT REPLY`, the server is
/// asked not to reply to publications, which saves it half of its writing.
///
/// ```no_run
/// use gaggle_channels::{Channel, NodeName, Redis, RedisOptions};
///
/// # async fn example() -> Result<(), gaggle_channels::ChannelError> {
/// let options = RedisOptions::new("redis://127.0.0.1", "orders", NodeName::new("a")?);
/// let channel = Redis::new(options)?;
/// channel.connect().await?;
/// channel.broadcast("hello".into())?;
/// # Ok(())
/// # }
/// ```
///
/// | bound | value | reason |
/// |---|---|---|
/// | frame | 1 MiB | one peer makes another allocate |
/// | outgoing queue | 16,384 frames, 64 MiB | a Redis that does not read costs memory |
/// | incoming queue | 65,536 frames, 64 MiB | a busy cluster sends while the owner stalls |
/// | connect | 2 s | `connect` ends by then |
/// | silence | 3 to 4 s | a half-open connection is closed; sign of life each second |
/// | stalled write | 3 s | a Redis that does not read is disconnected |
/// | reconnect | 50 ms to 1 s, jittered | soon after a restart, and no storm |
pub struct Redis {
    options: RedisOptions,
    info: ConnectionInfo,
    topics: Topics,
    shared: Arc<Shared>,
    running: AsyncMutex<Option<JoinHandle<()>>>,
}

/// The state that the task shares with its channel.
#[derive(Default)]
struct Shared {
    counts: Arc<Counts>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The owner's queue, while connected.
    inbox: Option<Arc<Inbox>>,
    /// The connection to Redis, while there is one.
    outgoing: Option<Arc<Outgoing>>,
}

impl Redis {
    /// A channel with these options. It talks to Redis once connected.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] naming the field.
    pub fn new(options: RedisOptions) -> Result<Self, ChannelError> {
        let info = options.check()?;
        let topics = Topics::new(&options.cluster, &options.name);
        let (shared, running) = (Arc::default(), AsyncMutex::new(None));
        Ok(Self { options, info, topics, shared, running })
    }

    /// To one node, or to all.
    fn publish(&self, to: Option<&NodeName>, frame: &Bytes) -> Result<(), ChannelError> {
        check_length(frame)?;
        let head = self.topics.publish(to, frame.len());
        self.shared.send([&head, frame, topics::END])
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, pieces: [&[u8]; 3]) -> Result<(), ChannelError> {
        let outgoing = {
            let state = self.lock();
            if state.inbox.is_none() {
                return Err(ChannelError::Disconnected);
            }
            state.outgoing.clone()
        };
        // Without the mutex: it may be a system call.
        let sent = outgoing.is_some_and(|outgoing| outgoing.keep(pieces));
        self.counts.sent(sent);
        if !sent {
            tracing::debug!("outgoing queue full or redis down, dropped a frame");
        }
        Ok(())
    }

    /// Sends all frames that were published since the owner last waited.
    fn send_kept(&self) {
        let outgoing = self.lock().outgoing.clone();
        if let Some(outgoing) = outgoing {
            outgoing.send_kept();
        }
    }

    /// The connection to Redis is open again.
    fn up(&self, outgoing: Arc<Outgoing>) {
        let mut state = self.lock();
        if state.inbox.is_none() {
            // The channel was disconnected.
            outgoing.end();
            return;
        }
        state.outgoing = Some(outgoing);
        state.hand_in(Received::Up { peer: None });
    }

    /// The connection to Redis is closed.
    fn down(&self, problem: &Problem) {
        let mut state = self.lock();
        state.end();
        match problem {
            Problem::Malformed => self.counts.lock().malformed += 1,
            // Of a publication.
            Problem::Refused(_) => self.counts.sent(false),
            _ => {}
        }
        state.hand_in(Received::Down { peer: None });
    }

    /// Takes a frame, unless the connection is not reported as open yet.
    fn hand_in_frame(&self, frame: Received) {
        let state = self.lock();
        if state.outgoing.is_some() {
            state.hand_in(frame);
        }
    }

    fn malformed(&self) {
        self.counts.lock().malformed += 1;
        tracing::warn!("malformed frame");
    }
}

impl State {
    fn hand_in(&self, received: Received) {
        if let Some(inbox) = &self.inbox {
            inbox.push(received);
        }
    }

    fn end(&mut self) {
        if let Some(outgoing) = self.outgoing.take() {
            outgoing.end();
        }
    }
}

#[async_trait]
impl Channel for Redis {
    fn name(&self) -> &NodeName {
        &self.options.name
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        let mut running = self.running.lock().await;
        if running.is_some() {
            return Ok(());
        }
        let link = Link::new(self.topics.clone(), self.info.clone(), self.shared.clone());
        let connection = link.connect().await?;
        {
            let counts = self.shared.counts.clone();
            let mut state = self.shared.lock();
            state.inbox = Some(Inbox::new(counts, INCOMING_FRAMES_MAX, QUEUE_BYTES));
            state.outgoing = Some(connection.outgoing.clone());
        }
        *running = Some(tokio::spawn(link.run(connection)));
        Ok(())
    }

    async fn disconnect(&self) {
        // Held to the end, so that a concurrent `connect` is not torn down with the rest.
        let mut running = self.running.lock().await;
        // The last frames leave, if the socket takes them at once.
        self.shared.send_kept();
        {
            let mut state = self.shared.lock();
            if let Some(inbox) = state.inbox.take() {
                inbox.close();
            }
            state.end();
        }
        if let Some(task) = running.take() {
            task.abort();
            let _ = task.await;
        }
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        self.publish(Some(to), &frame)
    }

    fn broadcast(&self, frame: Bytes) -> Result<(), ChannelError> {
        self.publish(None, &frame)
    }

    async fn receive(&self) -> Option<Received> {
        // An owner that waits has sent all its frames: they leave in one write.
        self.shared.send_kept();
        let inbox = self.shared.lock().inbox.clone()?;
        inbox.receive().await
    }

    fn try_receive(&self) -> Option<Received> {
        let inbox = self.shared.lock().inbox.clone()?;
        inbox.try_receive()
    }

    fn counters(&self) -> Counters {
        self.shared.counts.get()
    }
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
        f.debug_struct("Redis").field("options", &self.options).finish_non_exhaustive()
    }
}
