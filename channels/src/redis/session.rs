//! One connection to Redis.

use std::{error::Error, io, pin::pin, time::Duration};

use redis::{Cmd, ConnectionInfo, PushKind, Value};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, sleep_until},
};

use super::resp::{self, Frame, Malformed, Reader, Writer};

/// A connection on which nothing is heard for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// A silence that is noticed so late was that of this process, which stood still.
const STOOD_STILL: Duration = Duration::from_millis(500);
/// What is read at once, at the least.
const READ_BYTES: usize = 1 << 14;
/// What the buffer keeps when it is empty.
const SPARE_BYTES: usize = 1 << 17;

pub(super) type Problem = Box<dyn Error + Send + Sync>;

/// A connection that is being set up: one command, one answer.
pub(super) struct Session {
    pub(super) listener: Listener,
    pub(super) writer: Writer,
}

/// The side on which Redis is heard.
pub(super) struct Listener {
    reader: Reader,
    bytes: Vec<u8>,
}

impl Session {
    /// Connects and says hello; no limit of time.
    pub(super) async fn open(info: &ConnectionInfo) -> Result<Self, Problem> {
        let (reader, writer) = resp::open(info.addr()).await?;
        let listener = Listener { reader, bytes: Vec::with_capacity(READ_BYTES) };
        let mut session = Self { listener, writer };
        for hello in resp::hello(info.redis_settings()) {
            session.ask(&hello).await.map_err(|problem| match problem.downcast() {
                Ok(refused) => resp::refused_hello(&refused).into(),
                Err(other) => other,
            })?;
        }
        Ok(session)
    }

    /// One command, and what it is answered; an error of the server is one. What is published
    /// meanwhile is dropped.
    pub(super) async fn ask(&mut self, cmd: &Cmd) -> Result<Value, Problem> {
        self.write(&cmd.get_packed_command()).await?;
        loop {
            let mut answer = None;
            let taken = self.listener.take_one(|frame| match frame {
                Frame::Answer(value) => answer = Some(value),
                // A subscription is acknowledged by a push.
                Frame::Push(info) if info.kind == PushKind::Subscribe => answer = Some(Value::Okay),
                Frame::Push(_) | Frame::Message { .. } => {}
            })?;
            match answer {
                Some(value) => return Ok(value.extract_error()?),
                None if taken => {}
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
    /// Hands on what Redis says, until `take` refuses it or the connection breaks or falls silent:
    /// then why.
    pub(super) async fn hear(
        &mut self,
        mut take: impl FnMut(Frame<'_>) -> Result<(), Problem>,
    ) -> Problem {
        // Looked at when a silence may have become too long, instead of a timer for each frame.
        let mut heard = Instant::now();
        let mut silence = pin!(sleep_until(heard + SILENCE_MAX));
        loop {
            if let Err(problem) = self.take_all(&mut take) {
                return problem;
            }
            tokio::select! {
                biased;
                read = self.read() => match read {
                    Ok(()) => heard = Instant::now(),
                    Err(error) => return error.into(),
                },
                () = &mut silence => {
                    if silence.deadline().elapsed() >= STOOD_STILL {
                        // Nor did it send a sign of life that could have been answered.
                        heard = Instant::now();
                    } else if heard.elapsed() >= SILENCE_MAX {
                        return format!("nothing was heard for {SILENCE_MAX:?}").into();
                    }
                    silence.as_mut().reset(heard + SILENCE_MAX);
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

    /// Everything that is whole.
    fn take_all(
        &mut self,
        take: &mut impl FnMut(Frame<'_>) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut used = 0;
        while let Some((frame, length)) = resp::frame(&self.bytes[used..])? {
            used += length;
            take(frame)?;
        }
        self.forget(used);
        Ok(())
    }

    /// The first thing, if it is whole. Returns whether it was.
    fn take_one(&mut self, take: impl FnOnce(Frame<'_>)) -> Result<bool, Malformed> {
        let Some((frame, length)) = resp::frame(&self.bytes)? else { return Ok(false) };
        take(frame);
        self.forget(length);
        Ok(true)
    }

    fn forget(&mut self, used: usize) {
        self.bytes.drain(..used);
        if self.bytes.is_empty() {
            self.bytes.shrink_to(SPARE_BYTES);
        }
    }
}
