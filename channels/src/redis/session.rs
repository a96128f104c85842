//! One connection to Redis.

use std::{error::Error, io, pin::pin, time::Duration};

use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, PushKind, RedisConnectionInfo, RedisError, Value,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::TcpStream,
    time::{Instant, sleep_until},
};

use super::resp;
use crate::writer::Writer;

/// A connection that is silent for this long is dropped.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// A silence that is noticed this late was that of this process, which did not run.
const STOOD_STILL: Duration = Duration::from_millis(500);
/// What is read at once, at the least.
const READ_BYTES: usize = 1 << 14;
/// What the buffer keeps when it is empty.
const SPARE_BYTES: usize = 1 << 17;

pub(super) type Problem = Box<dyn Error + Send + Sync>;

/// A connection during its handshake: one command, one reply.
pub(super) struct Session {
    pub(super) listener: Listener,
    pub(super) writer: Writer,
}

/// The receiving side of a connection.
pub(super) struct Listener {
    reader: Reader,
    bytes: Vec<u8>,
    /// How many of them are frames that were taken.
    taken: usize,
}

impl Session {
    /// Connects and performs the handshake; no limit of time.
    pub(super) async fn open(info: &ConnectionInfo) -> Result<Self, Problem> {
        let (reader, writer) = connect(info.addr()).await?;
        let listener = Listener { reader, bytes: Vec::with_capacity(READ_BYTES), taken: 0 };
        let mut session = Self { listener, writer };
        for command in handshake(info.redis_settings()) {
            session.ask(&command).await.map_err(|problem| match problem.downcast() {
                Ok(refused) => without_text(&refused).into(),
                Err(other) => other,
            })?;
        }
        Ok(session)
    }

    /// Sends a command and returns its reply; an error of the server is one. Publications that
    /// arrive before it are dropped.
    pub(super) async fn ask(&mut self, cmd: &Cmd) -> Result<Value, Problem> {
        self.write(&cmd.get_packed_command()).await?;
        loop {
            match self.listener.take()? {
                // A subscription is acknowledged by a push.
                Some(Value::Push { kind: PushKind::Subscribe, .. }) => return Ok(Value::Okay),
                Some(Value::Push { .. }) => {}
                Some(reply) => return Ok(reply.extract_error()?),
                None => self.listener.read().await?,
            }
        }
    }

    /// Writes all of it.
    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.writer.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writer.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Listener {
    /// Hands on what Redis sends, until `take` refuses it or the connection breaks or is silent for
    /// too long: then returns why.
    pub(super) async fn listen(
        &mut self,
        mut take: impl FnMut(Value) -> Result<(), Problem>,
    ) -> Problem {
        // Checked when a silence may have become too long: a timer for each frame costs more.
        let mut last_received = Instant::now();
        let mut silence = pin!(sleep_until(last_received + SILENCE_MAX));
        loop {
            loop {
                match self.take().map_err(Problem::from) {
                    Ok(None) => break,
                    Ok(Some(value)) => {
                        if let Err(problem) = take(value) {
                            return problem;
                        }
                    }
                    Err(problem) => return problem,
                }
            }
            tokio::select! {
                biased;
                read = self.read() => match read {
                    Ok(()) => last_received = Instant::now(),
                    Err(error) => return error.into(),
                },
                () = &mut silence => {
                    if silence.deadline().elapsed() >= STOOD_STILL {
                        // Nor did this process send a sign of life that the server could reply to.
                        last_received = Instant::now();
                    } else if last_received.elapsed() >= SILENCE_MAX {
                        return format!("nothing received for {SILENCE_MAX:?}").into();
                    }
                    silence.as_mut().reset(last_received + SILENCE_MAX);
                }
            }
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        self.bytes.reserve(READ_BYTES);
        match self.reader.read_buf(&mut self.bytes).await {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next frame, if it is whole.
    fn take(&mut self) -> Result<Option<Value>, resp::Malformed> {
        let Some((value, length)) = resp::frame(&self.bytes[self.taken..])? else {
            self.bytes.drain(..self.taken);
            self.taken = 0;
            if self.bytes.is_empty() {
                self.bytes.shrink_to(SPARE_BYTES);
            }
            return Ok(None);
        };
        self.taken += length;
        Ok(Some(value))
    }
}

/// The reading half of a socket.
type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// Opens a socket; no limit of time, and nothing is sent on it yet.
///
/// # Errors
///
/// What the system said; [`io::ErrorKind::Unsupported`] for what is neither plain TCP nor a Unix
/// socket.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing open.
async fn connect(address: &ConnectionAddr) -> io::Result<(Reader, Writer)> {
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
fn handshake(settings: &RedisConnectionInfo) -> Vec<Cmd> {
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
fn without_text(error: &RedisError) -> RedisError {
    let code = error.code().unwrap_or("ERR").to_owned();
    redis::make_extension_error(code, Some("the server refused the handshake".into()))
}
