//! The connection that publishes. Each reply to its commands is one line of RESP2.

use std::io;

use futures_util::StreamExt;
use redis::{Cmd, ConnectionInfo};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use super::{
    link::Problem,
    socket::{Reader, Socket},
};
use crate::writer::Writer;

/// The longest reply, in bytes: several times the longest error of a server.
const LINE_BYTES_MAX: usize = 1 << 14;

pub(super) struct Publisher {
    pub(super) writer: Writer,
    pub(super) replies: Replies,
}

/// The replies of the server, in order.
pub(super) struct Replies(FramedRead<Reader, LinesCodec>);

impl Publisher {
    /// Connects and logs in, without a limit of time.
    pub(super) async fn open(info: &ConnectionInfo) -> Result<Self, Problem> {
        let (reader, writer) = Socket::open(info.addr()).await?.into_split();
        let lines = LinesCodec::new_with_max_length(LINE_BYTES_MAX);
        let mut publisher = Self { writer, replies: Replies(FramedRead::new(reader, lines)) };
        let login = info.redis_settings();
        if let Some(password) = login.password() {
            let user = login.username().unwrap_or("default");
            let auth = redis::cmd("AUTH").arg(user).arg(password).clone();
            publisher.ask(&auth).await.map_err(|problem| match problem {
                // Not the server's text, which may quote the command with its password.
                Problem::Refused(text) => {
                    Problem::Refused(text.split(' ').next().unwrap_or_default().to_owned())
                }
                other => other,
            })?;
        }
        Ok(publisher)
    }

    /// Sends a command and waits for its reply.
    pub(super) async fn ask(&mut self, cmd: &Cmd) -> Result<(), Problem> {
        self.write(&cmd.get_packed_command()).await?;
        self.replies.next().await
    }

    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.writer.try_write_vectored(&[io::IoSlice::new(bytes)]) {
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

impl Replies {
    /// Waits for the next reply.
    ///
    /// # Errors
    ///
    /// [`Problem::Refused`] is an error of the server.
    pub(super) async fn next(&mut self) -> Result<(), Problem> {
        match self.0.next().await {
            None => Err(Problem::Closed),
            Some(Ok(line)) if line.starts_with(['+', ':']) => Ok(()),
            Some(Ok(line)) => match line.strip_prefix('-') {
                Some(text) => Err(Problem::Refused(text.to_owned())),
                None => Err(Problem::Malformed),
            },
            Some(Err(LinesCodecError::Io(error))) if error.kind() != io::ErrorKind::InvalidData => {
                Err(error.into())
            }
            Some(Err(_)) => Err(Problem::Malformed),
        }
    }
}
