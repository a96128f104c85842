//! Streams between clients and servers, in memory: delayed, held up, refused and cut.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join;
use gaggle_strategies::http::{Dial, DialFuture, Stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::mpsc::unbounded_channel,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{plan::Plan, world::Shared};
use crate::simulator::random::Random;

/// How much a stream holds.
const CAPACITY: usize = 1 << 16;
/// For how long a segment is held up at most.
const HELD_UP_MAX: u64 = 3_000_000;

/// The delays of one way of a connection.
pub(super) struct Delays {
    random: Random,
    usual: (u64, u64),
    held_up: u64,
    shared: Arc<Shared>,
}

impl Delays {
    fn new(shared: &Arc<Shared>, plan: &Plan) -> Self {
        let random = Random::new(plan.seed, 100 + shared.next());
        Self { random, usual: plan.delay, held_up: plan.held_up, shared: shared.clone() }
    }

    fn next(&mut self) -> Duration {
        let mut delay = self.random.between(self.usual.0, self.usual.1);
        if !self.shared.is_calm() && self.random.chance(self.held_up) {
            self.shared.reach("segment held up");
            delay += self.random.between(0, HELD_UP_MAX);
        }
        Duration::from_micros(delay)
    }
}

/// The open connections, to be cut.
#[derive(Default)]
pub(super) struct Connections(Mutex<Vec<CancellationToken>>);

impl Connections {
    fn open(&self) -> MutexGuard<'_, Vec<CancellationToken>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| !connection.is_cancelled());
        open
    }

    /// Cuts the connection at this place, counted around. Returns whether there is one.
    pub(super) fn cut(&self, place: usize) -> bool {
        let open = self.open();
        if !open.is_empty() {
            open[place % open.len()].cancel();
        }
        !open.is_empty()
    }
}

/// Opens streams from a client process, which end with it.
pub(super) struct Wires {
    pub(super) shared: Arc<Shared>,
    pub(super) process: CancellationToken,
}

impl Dial for Wires {
    fn nodes(&self) -> usize {
        self.shared.plan.nodes
    }

    fn dial(&mut self, node: usize) -> DialFuture {
        let (shared, process) = (self.shared.clone(), self.process.clone());
        Box::pin(async move {
            let mut ways = [(); 2].map(|()| Delays::new(&shared, &shared.plan));
            sleep(ways[0].next() + ways[1].next()).await;
            let Some((service, ended)) = shared.server(node) else {
                shared.reach("connection refused");
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            if node > 0 {
                shared.reach("call at another node");
            }
            let (client, near) = duplex(CAPACITY);
            let (far, server) = duplex(CAPACITY);
            let ((near_read, near_write), (far_read, far_write)) = (split(near), split(far));
            let cut = ended.child_token();
            shared.connections.open().push(cut.clone());
            let [up, down] = ways;
            let link = async move {
                tokio::select! {
                    biased;
                    () = cut.cancelled() => {}
                    () = process.cancelled() => {}
                    ((), ()) = join(
                        carry(near_read, far_write, up),
                        carry(far_read, near_write, down),
                    ) => {}
                }
                cut.cancel();
            };
            tokio::spawn(link);
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = ended.cancelled() => {}
                    _ = gaggle_server::serve_stream(&service, server) => {}
                }
            });
            Ok(Box::new(client) as Box<dyn Stream>)
        })
    }

    fn address(&self, node: usize) -> String {
        format!("node-{node}:7080")
    }
}

/// Carries bytes one way, each segment after its delay, until the sender closes.
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    mut delays: Delays,
) {
    let (sender, mut segments) = unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let (mut bytes, mut last) = (vec![0; 4096], Instant::now());
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            last = last.max(Instant::now() + delays.next());
            if sender.send((last, bytes[..length].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((at, segment)) = segments.recv().await {
            sleep_until(at).await;
            if to.write_all(&segment).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    join(read, write).await;
}
