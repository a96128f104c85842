use std::io;

use redis::{Cmd, ConnectionAddr, RedisConnectionInfo, RedisError};
use tokio::{io::AsyncRead, net::TcpStream};

use super::Writer;

/// The side of a connection on which the server is heard.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// Opens a socket; no limit of time, and nothing is said on it yet.
///
/// # Errors
///
/// What the system said; [`io::ErrorKind::Unsupported`] for what is neither plain TCP nor a Unix
/// socket.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing open.
pub(crate) async fn open(address: &ConnectionAddr) -> io::Result<(Reader, Writer)> {
    match address {
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let (reader, writer) = stream.into_split();
            Ok((Box::new(reader), Writer::Tcp(writer)))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let (reader, writer) = tokio::net::UnixStream::connect(path).await?.into_split();
            Ok((Box::new(reader), Writer::Unix(writer)))
        }
        _ => {
            let problem = "only plain TCP and Unix sockets";
            Err(io::Error::new(io::ErrorKind::Unsupported, problem))
        }
    }
}

/// The commands that a connection begins with: the third protocol, which tells publications from
/// answers, the user, the database.
#[must_use]
pub(crate) fn hello(settings: &RedisConnectionInfo) -> Vec<Cmd> {
    let mut hello = redis::cmd("HELLO");
    hello.arg(3);
    if let Some(password) = settings.password() {
        hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
    }
    let mut all = vec![hello];
    if settings.db() != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(settings.db());
        all.push(select);
    }
    all
}

/// The refusal of one of those commands without the server's text: a server that does not know the command
/// quotes it, password included.
#[must_use]
pub(in crate::redis) fn refused_hello(error: &RedisError) -> RedisError {
    let code = error.code().unwrap_or("ERR").to_owned();
    redis::make_extension_error(code, Some("the server refused the handshake".into()))
}
