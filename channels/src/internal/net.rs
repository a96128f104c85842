//! TCP connections to a host that may have several addresses.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
    stream::FuturesUnordered,
};
use tokio::{
    net::{TcpStream, ToSocketAddrs, lookup_host},
    time::{Instant, timeout},
};

/// How long an address, or another candidate, waits for the one before (RFC 8305, 5).
pub const HEAD_START: Duration = Duration::from_millis(250);

/// The next attempt repeats a look-up that is older than this. Systems end one earlier: 5 s for a
/// name server that does not reply, each of three twice.
const LOOK_UP_MAX: Duration = Duration::from_secs(30);

type LookUp = Shared<BoxFuture<'static, Result<Vec<SocketAddr>, String>>>;

/// The look-ups of one handle, which outlive its attempts to connect. Clones share them.
///
/// A look-up occupies a thread until it ends, and with a name server that does not reply it takes
/// longer than an attempt. So the next attempt of the handle awaits the same one. Handles share
/// none: each may belong to a runtime that stops.
#[derive(Clone, Default)]
pub struct LookUps {
    /// Look-ups whose results no attempt has taken, by host, with their start.
    pending: Arc<Mutex<BTreeMap<String, (Instant, LookUp)>>>,
}

impl LookUps {
    /// Connects to a host by the first of its addresses that accepts, in an attempt that its caller
    /// ends after `limit`. The stream sends without delay (`TCP_NODELAY`).
    ///
    /// The next address is tried when one has failed, or after 250 ms: a silent address does not
    /// block the others.
    ///
    /// # Errors
    ///
    /// The errors of [`look_up`](Self::look_up), or the failure of the last attempt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends all attempts. A look-up continues.
    pub async fn connect(
        &self,
        host: impl ToSocketAddrs + Debug + Send + 'static,
        limit: Duration,
    ) -> io::Result<TcpStream> {
        let stream = race(self.look_up(host, limit).await?.into_iter()).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Looks up the addresses of a host, for at most four fifths of an attempt to connect.
    ///
    /// # Errors
    ///
    /// An error of the system, or "its host was not found in time".
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the look-up to the next caller.
    pub async fn look_up(
        &self,
        host: impl ToSocketAddrs + Debug + Send + 'static,
        limit: Duration,
    ) -> io::Result<Vec<SocketAddr>> {
        let name = format!("{host:?}");
        let look_up = self.begin(&name, async { Ok(lookup_host(host).await?.collect()) });
        let found = timeout(limit * 4 / 5, look_up).await;
        let found = found.map_err(|_| io::Error::other("its host was not found in time"))?;
        self.lock().remove(&name);
        found.map_err(io::Error::other)
    }

    /// Whether a look-up goes on that the next attempt would await.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.lock().values().any(|(begun, _)| begun.elapsed() < LOOK_UP_MAX)
    }

    /// Returns the pending look-up of a host; begins this one if there is none. `name` is the
    /// `Debug` form of the host.
    pub fn begin(
        &self,
        name: &str,
        look_up: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    ) -> LookUp {
        let begin = || {
            let found = look_up.map(|found| found.map_err(|error| error.to_string()));
            (Instant::now(), found.boxed().shared())
        };
        let mut pending = self.lock();
        pending.retain(|_, (begun, _)| begun.elapsed() < LOOK_UP_MAX);
        pending.entry(name.to_owned()).or_insert_with(begin).1.clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, LookUp)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LookUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookUps").field("pending", &self.lock().keys()).finish()
    }
}

async fn race(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut failed = None;
    let mut attempts = FuturesUnordered::new();
    for address in addresses {
        attempts.push(TcpStream::connect(address));
        match timeout(HEAD_START, attempts.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => failed = Some(error),
            _ => {}
        }
    }
    while let Some(ended) = attempts.next().await {
        match ended {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any address")
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that meets an error has failed

    use tokio::{
        net::{TcpListener, TcpSocket},
        time::sleep,
    };

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A listener that replies to no further client, and the connections that fill its backlog.
    async fn silent() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let (address, mut waiting) = (listener.local_addr().unwrap(), Vec::new());
        while let Ok(stream) = timeout(HEAD_START, TcpStream::connect(address)).await {
            waiting.push(stream.unwrap());
        }
        (listener, waiting)
    }

    #[tokio::test]
    async fn silent_address_keeps_no_other_from_being_tried() {
        let (silent, _waiting) = silent().await;
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [&silent, &live].map(|listener| listener.local_addr().unwrap());
        let stream = timeout(LIMIT, race(addresses.into_iter())).await.unwrap().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
    }

    /// A peer would log a connection that is dropped before its hello.
    #[tokio::test]
    async fn second_address_is_left_alone_if_the_first_accepts() {
        let [first, second] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0"));
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        let addresses = [&first, &second].map(|listener| listener.local_addr().unwrap());
        let stream = race(addresses.into_iter()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[0]);
        assert!(timeout(HEAD_START, second.accept()).await.is_err());
    }

    #[tokio::test]
    async fn next_attempt_awaits_the_look_up_of_the_last() {
        const ATTEMPT: Duration = Duration::from_millis(500);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, look_ups) = (listener.local_addr().unwrap(), LookUps::default());
        let _pending = look_ups.begin("\"slow.test:7\"", async move {
            sleep(ATTEMPT).await;
            Ok(vec![address])
        });
        let error = look_ups.connect("slow.test:7", ATTEMPT).await.unwrap_err();
        assert_eq!(error.to_string(), "its host was not found in time");
        assert!(look_ups.has_pending());
        let stream = look_ups.connect("slow.test:7", ATTEMPT).await.unwrap();
        assert_eq!((stream.peer_addr().unwrap(), look_ups.has_pending()), (address, false));
    }

    #[tokio::test(start_paused = true)]
    async fn look_up_that_never_ends_is_begun_again() {
        let (host, look_ups) = ("127.0.0.1:7", LookUps::default());
        let looked_up = look_ups.begin(&format!("{host:?}"), std::future::pending());
        look_ups.connect(host, LIMIT).await.unwrap_err();
        assert!(look_ups.has_pending());
        tokio::time::advance(LOOK_UP_MAX).await;
        assert!(!look_ups.has_pending());
        assert_eq!(look_ups.look_up(host, LIMIT).await.unwrap(), [host.parse().unwrap()]);
        assert!(looked_up.peek().is_none());
    }

    #[tokio::test]
    async fn failure_of_all_addresses_is_reported() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = race([closed; 2].into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = race(std::iter::empty()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
