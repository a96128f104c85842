//! TCP connections to a host that may have several addresses.

use std::{io, net::SocketAddr, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    net::{TcpStream, ToSocketAddrs, lookup_host},
    time::timeout,
};

/// How long an address, or another way to a server, waits for the one before (RFC 8305, 5).
pub const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to a host by the first of its addresses that accepts.
///
/// The next address is tried when one has failed, or after 250 ms: one that does not reply keeps no
/// other from being tried.
///
/// # Errors
///
/// Those of the look-up, or the failure of the last attempt.
///
/// # Cancel safety
///
/// Dropping the future ends all attempts.
pub async fn connect(host: impl ToSocketAddrs) -> io::Result<TcpStream> {
    race(lookup_host(host).await?).await
}

pub(crate) async fn race(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
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

    use tokio::net::{TcpListener, TcpSocket};

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
    async fn failure_of_all_addresses_is_reported() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = race([closed; 2].into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = race(std::iter::empty()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
