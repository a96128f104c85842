//! A server that replies by hostile bytes.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use gaggle_lab::SimulatedRedis;
use gaggle_strategies::{
    Error, KeyedMutex, LockOptions, RedisOptions,
    client::Client,
    clock::{Clock, TokioClock},
    lock::Owner,
    redis::{Backend, Dial, DialFuture, Stream},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    runtime::Builder,
};

/// Longer than the handshake, in bytes from the server; the hostile ones come in its place sooner.
const SOUND_MAX: usize = 16;

/// A client locks and inspects while the server replies by `bytes` from some reply on.
///
/// # Panics
///
/// When the client panics.
pub(super) fn reply_by(bytes: &[u8]) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O").block_on(async {
        let (server, clock) = (SimulatedRedis::new(), Arc::new(TokioClock::new()));
        let options = RedisOptions::new("redis://simulated").clock(clock.clone());
        let dial = Box::new(HostileDial { server, bytes: bytes.to_vec() });
        let backend = Backend::new(options, Some(dial), 1, clock.now());
        let backend = backend.expect("the defaults are valid");
        let (client, driver) = Client::new(backend, clock, Owner::default(), Some(1));
        tokio::spawn(client.run(driver));
        let wait = LockOptions::default().max_wait(Duration::from_millis(500));
        for key in ["k", "l", "k"] {
            let locked = KeyedMutex::lock(&client, key, wait.clone()).await;
            assert_no_panic(locked.err());
        }
        assert_no_panic(KeyedMutex::inspect(&client, "k").await.err());
    });
}

fn assert_no_panic(error: Option<Error>) {
    assert!(!matches!(error, Some(Error::Failed { .. })), "the client failed: {error:?}");
}

/// The first byte says how many replies are sound.
struct HostileDial {
    server: Arc<SimulatedRedis>,
    bytes: Vec<u8>,
}

impl Dial for HostileDial {
    fn dial(&mut self) -> Vec<DialFuture> {
        let (inner, mut bytes) = (self.server.connect(), std::mem::take(&mut self.bytes));
        let sound = match bytes.is_empty() {
            true => usize::MAX,
            false => usize::from(bytes.remove(0)) % SOUND_MAX,
        };
        let stream = Hostile { inner, sound, bytes };
        vec![Box::pin(async { Ok((Box::new(stream) as Box<dyn Stream>, None)) })]
    }

    fn address(&self) -> String {
        "hostile".into()
    }
}

/// A connection whose first reads are sound.
struct Hostile {
    inner: DuplexStream,
    sound: usize,
    bytes: Vec<u8>,
}

impl AsyncRead for Hostile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if self.sound > 0 {
            self.sound -= 1;
            return Poll::Ready(Ok(()));
        }
        // In the place of a reply; then the connection ends.
        buffer.set_filled(before);
        let length = self.bytes.len().min(buffer.remaining());
        let hostile: Vec<u8> = self.bytes.drain(..length).collect();
        buffer.put_slice(&hostile);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Hostile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
