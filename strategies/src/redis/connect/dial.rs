//! How a byte stream to the server is opened: over TCP or a Unix socket, with or without TLS.

use std::{future::Future, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

#[cfg(feature = "tls")]
use gaggle_channels::tls::TlsClient;
use gaggle_channels::{internal::net::LookUps, internal::redis_error::io_reason};
use redis::ConnectionAddr;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{clock::Clock, redis::error::ConnectionError};

/// TLS may take this part of an attempt to connect.
#[cfg(feature = "tls")]
const TLS_PART: u32 = 3;
/// A TLS handshake that takes longer is accompanied by a test whether the server replies without.
#[cfg(feature = "tls")]
const PLAIN_AFTER: Duration = Duration::from_millis(250);

/// How a URL begins without TLS and with it.
pub(in crate::redis) const PLAIN: &str = "redis";
const SECURE: &str = "rediss";

/// A stream of bytes to and from a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open stream, and the server's address if nothing lies between TCP and the protocol.
pub type ServerStream = (Box<dyn Stream>, Option<SocketAddr>);

/// An attempt to open a stream; dropping it leaves nothing open.
pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<ServerStream>> + Send>>;

/// Opens streams to one server. Tests and the simulator have their own.
pub trait Dial: Send + 'static {
    /// The attempts to reach the server: if the stream of one cannot be used, the next is tried.
    /// An error may be a `ConnectionError`.
    fn dial(&mut self) -> Vec<DialFuture>;

    /// Whether the attempts of a later call may reach another server.
    fn may_move(&self) -> bool {
        false
    }

    /// Whether a look-up is pending that the next call's attempts would await.
    fn has_pending_look_up(&self) -> bool {
        false
    }

    /// The server's name in errors; never a password.
    fn address(&self) -> String;
}

/// What lies between a socket and the protocol: nothing, or TLS.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    /// How long one attempt to connect may take.
    limit: Duration,
    clock: Arc<dyn Clock>,
    look_ups: LookUps,
    /// TLS, and the name in the server's certificate, if it is not the host.
    #[cfg(feature = "tls")]
    tls: Option<(TlsClient, Option<String>)>,
}

impl Transport {
    /// Sockets without TLS.
    pub(super) fn new(limit: Duration, clock: Arc<dyn Clock>) -> Self {
        Self {
            limit,
            clock,
            look_ups: LookUps::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn with_tls(self, client: TlsClient, name: Option<String>) -> Self {
        Self { tls: Some((client, name)), ..self }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn has_pending_look_up(&self) -> bool {
        self.look_ups.has_pending()
    }

    /// How URLs to such a server begin.
    pub(super) fn scheme(&self) -> &'static str {
        if self.is_plain() { PLAIN } else { SECURE }
    }

    pub(super) fn is_plain(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_none();
        #[cfg(not(feature = "tls"))]
        true
    }

    /// The output of a part of an attempt that may take this long; `None` if it takes longer.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        part: impl Future<Output = T>,
    ) -> Option<T> {
        let until = self.clock.now().after(limit);
        tokio::select! {
            biased;
            output = part => Some(output),
            () = self.clock.sleep_until(until) => None,
        }
    }

    /// Whether a server replies to a command without TLS, if by an error: tried after a while.
    #[cfg(feature = "tls")]
    async fn replies_plainly(&self, host: &str, port: u16) -> bool {
        self.clock.sleep_until(self.clock.now().after(PLAIN_AFTER)).await;
        let stream = self.look_ups.connect((host.to_owned(), port), self.limit).await;
        let Ok(stream) = stream else { return false };
        matches!(first_reply(stream, b"PING\r\n").await, Some(b'+' | b'-'))
    }

    /// Opens a stream. A failure of TLS is a [`ConnectionError`].
    pub(super) async fn open(&self, address: &ConnectionAddr) -> io::Result<ServerStream> {
        match address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let stream = self.look_ups.connect((host.clone(), *port), self.limit).await?;
                #[cfg(feature = "tls")]
                if let Some((client, name)) = &self.tls {
                    let name = name.as_ref().unwrap_or(host);
                    let shaken = async {
                        tokio::select! {
                            biased;
                            shaken = client.connect(name, stream) => Some(shaken),
                            // A Redis may wait for the end of what it takes for a command.
                            true = self.replies_plainly(host, *port) => None,
                        }
                    };
                    return match self.within(self.limit / TLS_PART, shaken).await {
                        Some(Some(Ok(stream))) => Ok((Box::new(stream), None)),
                        Some(Some(Err(error))) => Err(tls_failed(address, &error)),
                        Some(None) => {
                            Err(io::Error::other(ConnectionError::no_tls(&shown(address))))
                        }
                        None => Err(io::Error::other(ConnectionError::silent(format!(
                            "no TLS handshake with {} in time; if it does not speak TLS, write \
                             redis in place of rediss",
                            shown(address)
                        )))),
                    };
                }
                let peer = stream.peer_addr().ok();
                Ok((Box::new(stream), peer))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                Ok((Box::new(tokio::net::UnixStream::connect(path).await?), None))
            }
            _ => {
                let problem = "only TCP and Unix sockets are supported";
                Err(io::Error::new(io::ErrorKind::Unsupported, problem))
            }
        }
    }
}

#[cfg(feature = "tls")]
fn tls_failed(address: &ConnectionAddr, error: &io::Error) -> io::Error {
    let (address, reason) = (shown(address), error.to_string());
    io::Error::other(match error.kind() {
        io::ErrorKind::InvalidData if reason.ends_with("does not speak TLS") => {
            ConnectionError::no_tls(&address)
        }
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            ConnectionError::tls_failed(&address, &reason)
        }
        _ => ConnectionError::Unreachable { address, reason },
    })
}

/// Opens streams to the server at one address.
pub(super) struct Direct {
    address: ConnectionAddr,
    transport: Transport,
}

impl Direct {
    pub(super) fn new(address: ConnectionAddr, transport: Transport) -> Self {
        Self { address, transport }
    }
}

impl Dial for Direct {
    fn dial(&mut self) -> Vec<DialFuture> {
        let (address, transport) = (self.address.clone(), self.transport.clone());
        vec![Box::pin(async move { transport.open(&address).await })]
    }

    fn has_pending_look_up(&self) -> bool {
        self.transport.has_pending_look_up()
    }

    fn address(&self) -> String {
        shown(&self.address)
    }
}

/// The address in errors. An IPv6 address is in brackets, so that the port is not a part of it.
pub(super) fn shown(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
        address => address.to_string(),
    }
}

/// The cause of an attempt that opened no stream.
pub(super) fn unopened(address: String, error: io::Error) -> ConnectionError {
    match error.downcast::<ConnectionError>() {
        Ok(error) => error,
        Err(error) => ConnectionError::Unreachable { address, reason: io_reason(&error) },
    }
}

/// The cause where a plain stream ended before a reply, if that is because the server speaks TLS.
///
/// A TLS server rejects this malformed message by an alert, and no Redis replies to it.
pub(super) async fn tls_at(peer: Option<SocketAddr>) -> Option<ConnectionError> {
    const HELLO: [u8; 10] = [22, 3, 1, 0, 5, 1, 0, 0, 1, 0];
    const ALERT: u8 = 21;
    let address = peer?;
    let stream = TcpStream::connect(address).await.ok()?;
    let is_tls = first_reply(stream, &HELLO).await? == ALERT;
    is_tls.then(|| {
        ConnectionError::misconfigured(format!(
            "the server at {address} speaks TLS: write rediss in place of redis"
        ))
    })
}

/// The first byte of a server's reply to these.
async fn first_reply(mut stream: TcpStream, bytes: &[u8]) -> Option<u8> {
    stream.write_all(bytes).await.ok()?;
    // A Redis ends the connection at its end.
    stream.shutdown().await.ok()?;
    stream.read_u8().await.ok()
}

#[cfg(test)]
mod tests {
    use gaggle_fixtures::RedisServer;

    use super::*;
    use crate::{
        clock::BootClock,
        redis::{RedisOptions, backend::Backend},
    };

    #[test]
    fn ipv6_address_is_in_brackets() {
        let of = |host: &str| shown(&ConnectionAddr::Tcp(host.into(), 7));
        assert_eq!((of("::1"), of("h")), ("[::1]:7".into(), "h:7".into()));
    }

    /// A name server that does not reply costs 5 s before the next one is asked.
    #[tokio::test]
    async fn open_awaits_a_look_up_longer_than_an_attempt() {
        const ATTEMPT: Duration = Duration::from_millis(500);
        let server = RedisServer::start();
        let port = server.port();
        let transport = Transport::new(ATTEMPT, Arc::new(BootClock));
        let name = format!("{:?}", ("slow.test", port));
        let _pending = transport.look_ups.begin(&name, async move {
            tokio::time::sleep(2 * ATTEMPT).await;
            Ok(vec![([127, 0, 0, 1], port).into()])
        });
        let dial = Direct::new(ConnectionAddr::Tcp("slow.test".into(), port), transport);
        let options = RedisOptions::new("redis://elsewhere").connect_timeout(ATTEMPT);
        let now = BootClock.now();
        let mut backend = Backend::new(options, Some(Box::new(dial)), 7, now).unwrap();
        backend.connect(&BootClock).await.unwrap();
        assert!(BootClock.now() >= now.after(2 * ATTEMPT));
    }
}
