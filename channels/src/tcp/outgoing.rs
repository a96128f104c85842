//! The sending side of one connection: bounded, and it never waits.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::stream::Writer;

const ALIVE_EVERY: Duration = Duration::from_secs(1);
const STALL_MAX: Duration = Duration::from_secs(3);
/// How many pieces one system call writes at most.
const SLICES_MAX: usize = 64;

/// The sending side of a connection. The caller writes to the socket itself, as far as the socket
/// takes the bytes at once: then a frame passes no task on its way out. The rest is queued, within
/// bounds, for the task that runs [`write`](Self::write).
pub(crate) struct Outgoing {
    stream: Writer,
    /// Goes out each second.
    alive: Bytes,
    backlog: Mutex<Backlog>,
    /// Wakes the task for a backlog, or for the end.
    wake: Notify,
    frames_max: usize,
    bytes_max: usize,
}

#[derive(Default)]
struct Backlog {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// TLS has bytes in its buffer that the socket has not taken.
    unflushed: bool,
    ended: bool,
}

impl Outgoing {
    /// Queues at most `frames_max` frames of together at most `bytes_max`.
    pub(crate) fn new(stream: Writer, alive: Bytes, frames_max: usize, bytes_max: usize) -> Self {
        let (backlog, wake) = (Mutex::default(), Notify::new());
        Self { stream, alive, backlog, wake, frames_max, bytes_max }
    }

    /// Sends a frame, given in pieces, or queues it. Returns whether it fitted; a frame alone does.
    pub(crate) fn send<const N: usize>(&self, pieces: [&[u8]; N]) -> bool {
        let mut backlog = self.lock();
        if backlog.ended {
            return false;
        }
        let whole = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let mut written = 0;
        if backlog.is_empty() {
            match self.write_at_once(&pieces.map(IoSlice::new)) {
                Ok((bytes, flushed)) => (written, backlog.unflushed) = (bytes, !flushed),
                Err(error) => {
                    tracing::debug!(%error, "a connection cannot be written to");
                    self.end_with(&mut backlog);
                    return false;
                }
            }
        } else if backlog.frames.len() >= self.frames_max || backlog.bytes + whole > self.bytes_max
        {
            return false;
        }
        if written < whole {
            backlog.push(Bytes::from(pieces.concat()).slice(written..));
        }
        if !backlog.is_empty() {
            self.wake.notify_one();
        }
        true
    }

    /// Writes what the socket takes at once. Returns the bytes taken, and whether all have left.
    fn write_at_once(&self, slices: &[IoSlice<'_>]) -> io::Result<(usize, bool)> {
        let written = match self.stream.try_write_vectored(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            written => written?,
        };
        Ok((written, self.stream.try_flush()?))
    }

    /// Ends the connection: nothing more is sent, and [`write`](Self::write) returns.
    pub(crate) fn end(&self) {
        self.end_with(&mut self.lock());
    }

    fn end_with(&self, backlog: &mut Backlog) {
        *backlog = Backlog { ended: true, ..Backlog::default() };
        self.wake.notify_one();
    }

    /// Writes the queue, and a sign of life every second. Returns when the connection breaks,
    /// stalls or [has ended](Self::end).
    pub(crate) async fn write(&self) {
        let mut alive = Instant::now() + ALIVE_EVERY;
        let mut stalled = None;
        loop {
            if Instant::now() >= alive {
                alive = Instant::now() + ALIVE_EVERY;
                let mut backlog = self.lock();
                // A queued frame is a sign of life too.
                if backlog.is_empty() {
                    backlog.push(self.alive.clone());
                }
            }
            match self.flush() {
                Ok(true) => {
                    stalled = None;
                    // Either way it looks again.
                    let _ = timeout_at(alive, self.wake.notified()).await;
                }
                Ok(false) => {
                    let given_up = *stalled.get_or_insert_with(|| Instant::now() + STALL_MAX);
                    match timeout_at(alive.min(given_up), self.stream.writable()).await {
                        Ok(Ok(())) => stalled = None,
                        Ok(Err(_)) => return,
                        Err(_) if Instant::now() >= given_up => return,
                        Err(_) => {}
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Writes as much of the queue as the socket takes at once. Returns whether that was all.
    fn flush(&self) -> io::Result<bool> {
        let mut backlog = self.lock();
        if backlog.ended {
            return Err(io::ErrorKind::NotConnected.into());
        }
        while !backlog.frames.is_empty() {
            let frames = backlog.frames.iter().take(SLICES_MAX);
            let slices: Vec<IoSlice<'_>> = frames.map(|frame| IoSlice::new(frame)).collect();
            match self.stream.try_write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => backlog.drop_first(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        backlog.unflushed = !self.stream.try_flush()?;
        Ok(!backlog.unflushed)
    }

    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backlog {
    /// Whether a frame can go to the socket at once.
    fn is_empty(&self) -> bool {
        self.frames.is_empty() && !self.unflushed
    }

    fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    fn drop_first(&mut self, mut bytes: usize) {
        self.bytes -= bytes;
        while let Some(frame) = self.frames.front_mut()
            && bytes > 0
        {
            let written = bytes.min(frame.len());
            bytes -= written;
            let _ = frame.split_to(written);
            if frame.is_empty() {
                self.frames.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that meets an error has failed

    use futures_util::StreamExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;
    use tokio_util::codec::FramedRead;

    use super::*;
    use crate::tcp::connection::{ALIVE, DATA, Message, codec, head, message};

    async fn pair(frames_max: usize, bytes_max: usize) -> (Outgoing, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (peer, _) = listener.accept().await.unwrap();
        let (_, write) = stream.into_split();
        let alive = Bytes::copy_from_slice(&head(ALIVE, 0));
        (Outgoing::new(Writer::Plain(write), alive, frames_max, bytes_max), peer)
    }

    fn send(outgoing: &Outgoing, frame: &Bytes) -> bool {
        outgoing.send([&head(DATA, frame.len()), frame])
    }

    fn frame(number: usize, bytes: usize) -> Bytes {
        let mut frame = vec![0; bytes];
        frame[..8].copy_from_slice(&number.to_le_bytes());
        frame.into()
    }

    #[test]
    fn written_bytes_leave_the_backlog() {
        let mut backlog = Backlog::default();
        for text in ["abc", "de", "fgh"] {
            backlog.push(Bytes::from_static(text.as_bytes()));
        }
        backlog.drop_first(4);
        assert_eq!((backlog.bytes, backlog.frames.len()), (4, 2));
        assert_eq!(backlog.frames[0], "e");
        backlog.drop_first(1);
        assert_eq!((backlog.bytes, backlog.frames.len()), (3, 1));
        backlog.drop_first(3);
        assert_eq!((backlog.bytes, backlog.frames.len()), (0, 0));
    }

    #[tokio::test]
    async fn full_socket_keeps_frames_in_order() {
        const FRAMES: usize = 200;
        let (outgoing, peer) = pair(FRAMES, usize::MAX).await;
        // More than the sockets take without a reader.
        for number in 0..FRAMES {
            assert!(send(&outgoing, &frame(number, 100_000)));
        }
        assert!(!outgoing.lock().frames.is_empty(), "the socket took everything");
        let read = async {
            let mut reader = FramedRead::new(peer, codec());
            let mut number = 0;
            while number < FRAMES {
                match message(reader.next().await.unwrap().unwrap()).unwrap() {
                    Message::Data(data) => {
                        assert_eq!(data, frame(number, 100_000));
                        number += 1;
                    }
                    // On a slow machine.
                    Message::Alive => {}
                }
            }
        };
        tokio::select! {
            () = read => {}
            () = outgoing.write() => panic!("the connection ended"),
        }
        assert!(outgoing.lock().frames.is_empty());
    }

    #[tokio::test]
    async fn backlog_has_frame_and_byte_limits() {
        for (frames_max, bytes_max) in [(3, usize::MAX), (usize::MAX, 300_100)] {
            let (outgoing, _peer) = pair(frames_max, bytes_max).await;
            let refused = (0..10_000).find(|number| !send(&outgoing, &frame(*number, 100_000)));
            assert!(refused.is_some(), "no reader");
            assert!(outgoing.lock().frames.len() <= 3);
        }
    }

    #[tokio::test]
    async fn ended_connection_sends_nothing() {
        let (outgoing, _peer) = pair(10, 1000).await;
        outgoing.end();
        assert!(!send(&outgoing, &frame(1, 10)));
        timeout(Duration::from_secs(5), outgoing.write()).await.expect("it has ended");
    }

    #[tokio::test]
    async fn broken_connection_ends() {
        let (outgoing, peer) = pair(10, 1000).await;
        drop(peer);
        let written = async {
            while send(&outgoing, &frame(1, 10)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            outgoing.write().await;
        };
        timeout(Duration::from_secs(5), written).await.expect("it broke");
    }

    #[tokio::test(start_paused = true)]
    async fn sign_of_life_is_sent_each_second() {
        let (outgoing, peer) = pair(10, 1000).await;
        let read = async {
            let mut reader = FramedRead::new(peer, codec());
            for _ in 0..3 {
                assert_eq!(message(reader.next().await.unwrap().unwrap()), Some(Message::Alive));
            }
        };
        let begun = Instant::now();
        tokio::select! {
            () = read => {}
            () = outgoing.write() => panic!("the connection ended"),
        }
        assert!(begun.elapsed() >= 3 * ALIVE_EVERY);
    }
}
