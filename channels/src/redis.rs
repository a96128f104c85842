#[cfg(any(test, feature = "testing"))]
pub(crate) mod decoders;
mod link;
mod options;
mod topics;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{sync::Mutex as AsyncMutex, task::JoinHandle};

pub use self::options::RedisOptions;
use self::{
    link::{Link, Outgoing},
    topics::Topics,
};
use crate::{Channel, ChannelError, Counters, FRAME_BYTES_MAX, NodeName, Received, queue};

/// Frames over the pub/sub of one Redis: one topic per node and one for broadcasts.
///
/// It reconnects by itself and subscribes again, and says [`Received::Down`] and [`Received::Up`]
/// when it does; what was published meanwhile is lost, as pub/sub has it. Works with Redis 7 and
/// Valkey. Nothing is stored in Redis.
///
/// | bound | default | reason |
/// |---|---|---|
/// | frame | 1 MiB | what one peer can make another allocate |
/// | outgoing queue | 16,384 frames, 64 MiB | a Redis that is down costs bounded memory, and frames |
/// | incoming queue | 65,536 frames, 64 MiB | as many as a busy cluster sends while its owner stalls |
/// | connect | 2 s | `connect` ends by then |
/// | silence | 2 s | a connection that answers no PING is given up |
/// | reconnect | 50 ms to 1 s, jittered | soon after a restart, and no storm |
pub struct Redis {
    options: RedisOptions,
    topics: Topics,
    counters: Arc<Mutex<Counters>>,
    running: AsyncMutex<Option<JoinHandle<()>>>,
    ends: Mutex<Option<Ends>>,
}

/// The owner's ends of the queues, while connected.
#[derive(Clone)]
struct Ends {
    outgoing: Arc<queue::Sender<Outgoing>>,
    inbox: Arc<AsyncMutex<queue::Receiver<Received>>>,
}

impl Redis {
    /// A channel with these options. It talks to Redis once connected.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] naming the field.
    pub fn new(options: RedisOptions) -> Result<Self, ChannelError> {
        options.validate()?;
        let topics = Topics::new(&options.cluster, &options.name);
        Ok(Self {
            topics,
            options,
            counters: Arc::default(),
            running: AsyncMutex::new(None),
            ends: Mutex::new(None),
        })
    }

    fn ends(&self) -> MutexGuard<'_, Option<Ends>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, topic: String, frame: &Bytes) -> Result<(), ChannelError> {
        if frame.len() > FRAME_BYTES_MAX {
            return Err(ChannelError::FrameTooLong { bytes: frame.len(), limit: FRAME_BYTES_MAX });
        }
        let ends = self.ends().clone().ok_or(ChannelError::Disconnected)?;
        let payload = topics::payload(&self.options.name, frame);
        let bytes = topic.len() + payload.len();
        let queued = ends.outgoing.try_send(Outgoing { topic, payload }, bytes);
        let mut counters = lock(&self.counters);
        if queued {
            counters.sent += 1;
        } else {
            counters.dropped_outgoing += 1;
            tracing::debug!("outgoing queue full, dropped a frame");
        }
        Ok(())
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
        let (outgoing, queue) =
            queue::bounded(self.options.outgoing_frames_max, self.options.queue_bytes_max);
        let (hand_in, inbox) =
            queue::bounded(self.options.incoming_frames_max, self.options.queue_bytes_max);
        let link = Link::new(
            self.options.clone(),
            self.topics.clone(),
            queue,
            hand_in,
            self.counters.clone(),
        )?;
        let connection = link.connect().await?;
        *running = Some(tokio::spawn(link.run(connection)));
        *self.ends() =
            Some(Ends { outgoing: Arc::new(outgoing), inbox: Arc::new(AsyncMutex::new(inbox)) });
        Ok(())
    }

    async fn disconnect(&self) {
        let task = self.running.lock().await.take();
        *self.ends() = None;
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        self.queue(self.topics.node(to), &frame)
    }

    fn broadcast(&self, frame: Bytes) -> Result<(), ChannelError> {
        self.queue(self.topics.all.clone(), &frame)
    }

    async fn receive(&self) -> Option<Received> {
        let inbox = self.ends().as_ref()?.inbox.clone();
        let mut inbox = inbox.lock().await;
        inbox.recv().await
    }

    fn try_receive(&self) -> Option<Received> {
        let inbox = self.ends().as_ref()?.inbox.clone();
        let mut inbox = inbox.try_lock().ok()?;
        inbox.try_recv()
    }

    fn counters(&self) -> Counters {
        *lock(&self.counters)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
