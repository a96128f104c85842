//! The simulated server for clients on a tokio runtime in paused time.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gaggle_strategies::{
    KeyedMutex, RedisOptions,
    client::Client,
    clock::Clock,
    lock::Owner,
    redis::{self, Dial, DialFuture, Stream},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::mpsc,
    time::Instant,
};

use super::{ConnectionId, Server};

/// The server's clock begins here, in microseconds since 1970.
const BEGINNING: u64 = 1_700_000_000_000_000;

/// A Redis in this process, on the runtime's virtual clock: it runs the scripts that ship, for
/// clients as they ship.
pub struct SimulatedRedis {
    state: Mutex<State>,
    began: Instant,
}

struct State {
    server: Server,
    outputs: BTreeMap<ConnectionId, mpsc::UnboundedSender<Vec<u8>>>,
    connections: ConnectionId,
    is_down: bool,
}

impl fmt::Debug for SimulatedRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedRedis").finish_non_exhaustive()
    }
}

impl SimulatedRedis {
    /// An empty one. Call it within the runtime whose time it follows.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (server, outputs) = (Server::new(), BTreeMap::new());
        let state = State { server, outputs, connections: 0, is_down: false };
        Arc::new(Self { state: Mutex::new(state), began: Instant::now() })
    }

    /// A handle on it, as users hold one. The handle connects on its first turn.
    #[must_use]
    pub fn open(self: &Arc<Self>, clock: Arc<dyn Clock>, seed: u64) -> impl KeyedMutex + use<> {
        let options = RedisOptions::new("redis://simulated").clock(clock.clone());
        let dial = Box::new(DuplexDial(self.clone()));
        let backend = redis::Backend::new(options, Some(dial), seed, clock.now());
        let backend = backend.expect("the defaults are valid");
        let (client, driver) = Client::new(backend, clock, Owner::this_process(None), Some(seed));
        tokio::spawn(client.run(driver));
        client
    }

    /// A connection to it, for a client of the caller's own.
    #[must_use]
    pub fn connect(self: &Arc<Self>) -> DuplexStream {
        let (ours, theirs) = duplex(1 << 20);
        let mut state = self.state();
        state.connections += 1;
        tokio::spawn(self.clone().serve(state.connections, theirs));
        ours
    }

    /// Ends the server, which loses its data and its connections and accepts none.
    pub fn down(&self) {
        let mut state = self.state();
        state.is_down = true;
        state.outputs.clear();
        state.server.restart();
        state.server.wipe();
    }

    /// Starts the server again, empty.
    pub fn up(&self) {
        self.state().is_down = false;
    }

    /// The keys that are left, except token counters: none, once everything has expired (contract,
    /// rule 11).
    #[must_use]
    pub fn residue(&self) -> Vec<String> {
        self.state().server.residue(self.now_us())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        BEGINNING + u64::try_from(self.began.elapsed().as_micros()).expect("centuries")
    }

    /// Executes requests that have arrived, and sends replies and publications.
    fn receive(&self, id: ConnectionId, bytes: &[u8]) {
        let (now, mut state) = (self.now_us(), self.state());
        state.server.receive(id, bytes);
        while let Some(executed) = state.server.execute(id, now) {
            for (to, push) in executed.pushes {
                state.send(to, push);
            }
            state.send(id, executed.reply);
        }
    }

    async fn serve(self: Arc<Self>, id: ConnectionId, mut stream: DuplexStream) {
        let (output, mut outgoing) = mpsc::unbounded_channel::<Vec<u8>>();
        self.state().outputs.insert(id, output);
        self.state().server.connect(id);
        let mut buffer = vec![0; 4096];
        loop {
            tokio::select! {
                biased;
                bytes = outgoing.recv() => {
                    // The server has ended if there is no sender.
                    let Some(bytes) = bytes else { break };
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                read = stream.read(&mut buffer) => match read {
                    Ok(1..) => self.receive(id, &buffer[..read.expect("it was just read")]),
                    _ => break,
                },
            }
        }
        self.state().server.disconnect(id);
        self.state().outputs.remove(&id);
    }
}

impl State {
    fn send(&self, to: ConnectionId, bytes: Vec<u8>) {
        if let Some(output) = self.outputs.get(&to) {
            let _ = output.send(bytes);
        }
    }
}

/// Opens streams to a server in this process.
struct DuplexDial(Arc<SimulatedRedis>);

impl Dial for DuplexDial {
    fn dial(&mut self) -> Vec<DialFuture> {
        if self.0.state().is_down {
            return vec![Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })];
        }
        let stream = self.0.connect();
        let way: DialFuture = Box::pin(async { Ok((Box::new(stream) as Box<dyn Stream>, None)) });
        vec![way]
    }

    fn address(&self) -> String {
        "simulated".into()
    }
}
