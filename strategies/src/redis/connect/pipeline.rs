//! Lists of requests on one connection: handed to the client library, which returns the replies in
//! order.
//!
//! The library's own driver is polled here and nowhere else.

use std::{
    collections::VecDeque,
    future::Future,
    iter, mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use gaggle_channels::{
    internal::redis_error::reason,
    internal::reply_limit::{HANDSHAKE_BYTES_MAX, LimitedStream, ReplyLimit, TOO_LONG},
};
use redis::{
    AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisResult, Value, aio::MultiplexedConnection,
};
use tokio::sync::mpsc;

use super::{dial::Stream, handshake::Handshake};
use crate::{
    client::commands::Fate,
    redis::{
        error::ConnectionError,
        request::{List, Request},
    },
};

/// How many lists may be pending on the connection; more wait here. It bounds what a lost connection
/// leaves of unknown fate.
const IN_FLIGHT_MAX: usize = 256;
/// How many bytes the library gathers for one write: about eight requests. The server runs them
/// while the next are encoded.
const WRITE_BYTES: usize = 4096;
/// How many bytes one poll of the library's driver reads. Without a limit it reads until nothing is
/// left, and a stranger may publish faster than this process reads.
const READ_BYTES: usize = 128 * 1024;

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;
type Reply = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// Lists in flight on one connection, their replies, and publications.
pub(super) struct Pipeline {
    connection: MultiplexedConnection,
    driver: Driver,
    /// The lists in the order of their sends, and so of their replies. The first `handed` were given
    /// to the library.
    lists: VecDeque<(List, Reply)>,
    handed: usize,
    replies: Vec<(List, Value)>,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    limit: ReplyLimit,
    /// Why it is unusable, if it is.
    end: Option<String>,
}

impl Pipeline {
    /// Logs in and performs the handshake. Also returns the server's time in microseconds.
    pub(super) async fn open(
        handshake: &Handshake,
        stream: Box<dyn Stream>,
    ) -> Result<(Self, u64), ConnectionError> {
        let (push, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(IN_FLIGHT_MAX)
            .set_write_backpressure_boundary(WRITE_BYTES)
            .set_push_sender(push);
        let limit = ReplyLimit::new(HANDSHAKE_BYTES_MAX);
        let stream = LimitedStream::new(stream, limit.clone()).yield_after(READ_BYTES);
        let connected =
            MultiplexedConnection::new_with_config(handshake.login(), stream, config).await;
        let (connection, driver) = connected
            .map_err(|error| ConnectionError::of_attempt(handshake.address().to_owned(), &error))?;
        let mut driver: Driver = Box::pin(driver);
        let time = tokio::select! {
            biased;
            time = handshake.perform(&connection) => time?,
            () = &mut driver => return Err(ConnectionError::Unreachable {
                address: handshake.address().to_owned(),
                reason: if limit.is_exceeded() { TOO_LONG } else { CLOSED }.into(),
            }),
        };
        limit.renew();
        let pipeline = Self {
            connection,
            driver,
            lists: VecDeque::new(),
            handed: 0,
            replies: Vec::new(),
            pushes,
            limit,
            end: None,
        };
        Ok((pipeline, time))
    }

    /// Takes a list, encoded as `cmd`, which leaves when this is polled next.
    pub(super) fn send(&mut self, list: List, cmd: Cmd) {
        let mut connection = self.connection.clone();
        let reply = Box::pin(async move { connection.send_packed_command(&cmd).await });
        self.lists.push_back((list, reply));
    }

    /// Takes the publications to this process and the replies.
    pub(super) fn received(&mut self) -> (Vec<Vec<u8>>, Vec<(List, Value)>) {
        let pushes = iter::from_fn(|| self.pushes.try_recv().ok());
        let published = pushes.filter_map(|mut push| match (push.kind, push.data.pop()) {
            (PushKind::Message, Some(Value::BulkString(payload))) => Some(payload),
            _ => None,
        });
        (published.collect(), mem::take(&mut self.replies))
    }

    /// Takes the requests without a reply.
    pub(super) fn take_pending(&mut self) -> Vec<(Request, Fate)> {
        let handed = mem::take(&mut self.handed);
        let fate = |at| if at < handed { Fate::NoReply } else { Fate::Unsent };
        let lists = mem::take(&mut self.lists).into_iter().enumerate();
        lists.flat_map(|(at, (list, _))| list.into_iter().map(move |it| (it, fate(at)))).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.lists.is_empty()
    }

    /// Whether lists wait for replies to as many as may be in flight.
    pub(super) fn is_congested(&self) -> bool {
        self.lists.len() > IN_FLIGHT_MAX
    }

    /// Why it is unusable, if it is.
    pub(super) fn end(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// Hands lists to the library, writes, reads, and takes replies, until nothing more moves.
    /// Returns whether there is something to take.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        // A reply becomes ready only while the driver is polled, which is here: what wakes this
        // task is the driver.
        let unwoken = &mut Context::from_waker(Waker::noop());
        let taken = self.replies.len() + self.pushes.len();
        while self.end.is_none() {
            self.hand_in(unwoken);
            if self.driver.as_mut().poll(context).is_ready() {
                self.end.get_or_insert_with(|| CLOSED.into());
            }
            let before = self.handed;
            self.take_replies(unwoken);
            let has_more = self.lists.len() > self.handed;
            if self.handed == before || !has_more {
                break;
            }
        }
        if self.replies.len() + self.pushes.len() > taken {
            self.limit.renew();
        }
        self.end.is_some() || !self.replies.is_empty() || !self.pushes.is_empty()
    }

    fn hand_in(&mut self, unwoken: &mut Context<'_>) {
        while self.handed < self.lists.len().min(IN_FLIGHT_MAX) {
            let (_, reply) = &mut self.lists[self.handed];
            // The library queues as many as may be in flight, so that one poll hands it in.
            if let Poll::Ready(ended) = reply.as_mut().poll(unwoken) {
                self.end = Some(ended.map_or_else(|error| reason(&error), |_| CLOSED.into()));
                return;
            }
            self.handed += 1;
        }
    }

    fn take_replies(&mut self, unwoken: &mut Context<'_>) {
        while self.handed > 0
            && let Some((_, reply)) = self.lists.front_mut()
            && let Poll::Ready(reply) = reply.as_mut().poll(unwoken)
        {
            let value = match reply {
                Ok(value) => value,
                Err(error) => {
                    self.end = Some(reason(&error));
                    // A completed future must not be polled again.
                    self.lists[0].1 = Box::pin(std::future::pending());
                    return;
                }
            };
            let (list, _) = self.lists.pop_front().expect("it has just been polled");
            self.handed -= 1;
            self.replies.push((list, value));
        }
    }
}

const CLOSED: &str = "closed by the server";

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use redis::{ProtocolVersion, RedisConnectionInfo};
    use tokio::{io::AsyncReadExt as _, task::unconstrained};

    use super::*;

    /// What [`Pipeline::hand_in`] relies on: as many requests as the buffer holds are taken by one
    /// poll of each, before the library's driver is polled.
    #[tokio::test]
    async fn library_takes_a_request_with_one_poll() {
        const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
        let (stream, mut server) = tokio::io::duplex(PING.len() * IN_FLIGHT_MAX);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(IN_FLIGHT_MAX);
        let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        let login = login.set_skip_set_lib_name();
        let connected = MultiplexedConnection::new_with_config(&login, stream, config).await;
        let (connection, driver) = connected.unwrap();
        let reply = |_| -> Reply {
            let mut connection = connection.clone();
            Box::pin(async move { connection.send_packed_command(&redis::cmd("PING")).await })
        };
        let mut replies: Vec<Reply> = (0..IN_FLIGHT_MAX).map(reply).collect();
        // The connection polls the same way. Otherwise the budget of the task ends in the middle.
        unconstrained(poll_fn(|context| {
            assert!(replies.iter_mut().all(|reply| reply.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        }))
        .await;
        let mut written = vec![0; PING.len() * IN_FLIGHT_MAX];
        tokio::select! {
            () = driver => panic!("the connection ended"),
            read = server.read_exact(&mut written) => { read.unwrap(); }
        }
        assert!(written.chunks(PING.len()).all(|request| request == PING));
    }
}
