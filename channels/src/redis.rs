//! [`Redis`]: the pub/sub of one Redis.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod decoders;
mod link;
mod options;
mod resp;
mod session;
mod topics;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{sync::Mutex as AsyncMutex, task::JoinHandle};

pub use self::options::RedisOptions;
use self::{link::Link, topics::Topics};
use crate::{
    Channel, ChannelError, Counters, FRAME_BYTES_MAX, NodeName, Received,
    inbox::{Counts, Inbox},
    outgoing::Outgoing,
};

/// Frames over the pub/sub of one Redis: one topic per node and one for broadcasts.
///
/// It reconnects by itself and subscribes again, and reports [`Received::Down`] and [`Received::Up`]
/// when it does; what was published meanwhile is lost, as pub/sub has it. Works with Redis 7 and
/// Valkey. Nothing is stored in Redis. Where its user may `CLIENT REPLY`, the server is asked not to
/// reply to publications, which saves it half of its writing.
///
/// | bound | default | reason |
/// |---|---|---|
/// | frame | 1 MiB | what one peer can make another allocate |
/// | outgoing queue | 16,384 frames, 64 MiB | a Redis that does not read costs bounded memory, and frames |
/// | incoming queue | 65,536 frames, 64 MiB | as many as a busy cluster sends while its owner stalls |
/// | connect | 2 s | `connect` ends by then |
/// | silence | 3 s | a half-open connection is closed; an idle one carries a sign of life each second |
/// | stalled write | 3 s | a Redis that does not read is disconnected |
/// | reconnect | 50 ms to 1 s, jittered | soon after a restart, and no storm |
pub struct Redis {
    options: RedisOptions,
    topics: Topics,
    shared: Arc<Shared>,
    running: AsyncMutex<Option<JoinHandle<()>>>,
}

/// What the task shares with its channel.
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
        options.check()?;
        let topics = Topics::new(&options.cluster, &options.name);
        Ok(Self { topics, options, shared: Arc::default(), running: AsyncMutex::new(None) })
    }

    /// To one node, or to all.
    fn publish(&self, to: Option<&NodeName>, frame: &Bytes) -> Result<(), ChannelError> {
        if frame.len() > FRAME_BYTES_MAX {
            return Err(ChannelError::FrameTooLong { bytes: frame.len(), limit: FRAME_BYTES_MAX });
        }
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
        // Outside of the lock: it may call the system.
        let sent = outgoing.is_some_and(|outgoing| outgoing.keep(pieces));
        self.counts.sent(sent);
        if !sent {
            tracing::debug!("outgoing queue full or redis down, dropped a frame");
        }
        Ok(())
    }

    /// Sends what was published since the owner last waited.
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

    /// The connection to Redis is closed, perhaps because of malformed bytes.
    fn down(&self, malformed: bool) {
        let mut state = self.lock();
        state.end();
        self.counts.lock().malformed += u64::from(malformed);
        state.hand_in(Received::Down { peer: None });
    }

    fn hand_in(&self, received: Received) {
        self.lock().hand_in(received);
    }

    fn malformed(&self) {
        self.counts.lock().malformed += 1;
        tracing::warn!("malformed frame");
    }

    /// Redis has refused a publication.
    fn refused(&self) {
        self.counts.sent(false);
    }
}

impl State {
    fn hand_in(&self, received: Received) {
        if let Some(inbox) = &self.inbox {
            inbox.push(None, received);
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
        let link = Link::new(self.options.clone(), self.topics.clone(), self.shared.clone())?;
        let connection = link.connect().await?;
        let (frames, bytes) = (self.options.incoming_frames_max, self.options.queue_bytes_max);
        {
            let mut state = self.shared.lock();
            state.inbox = Some(Inbox::new(self.shared.counts.clone(), frames, bytes));
            state.outgoing = Some(connection.outgoing.clone());
        }
        *running = Some(tokio::spawn(link.run(connection)));
        Ok(())
    }

    async fn disconnect(&self) {
        // Held to the end, so that a concurrent `connect` is not torn down with the rest.
        let mut running = self.running.lock().await;
        // The last frames still leave, if the socket takes them at once.
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
        // An owner that waits has sent all that it had: it leaves in one write.
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
