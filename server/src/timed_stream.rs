//! A stream that fails if a client sends a head too slowly, is idle, or reads no response.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::http::Version;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// How long the head of a request may take, from its first byte on; the first also from the
/// handshake on.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may read nothing of a response that it was sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be idle.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A stream whose heads and writes are timed. Between requests it may be idle.
///
/// The frames of HTTP/2 are not read here. So the time for a head is that of the first request
/// alone, and the connection ends when no request was open for the idle time.
pub(crate) struct TimedStream<S> {
    stream: S,
    progress: Arc<Progress>,
    /// When the head that is being read must be complete, or an idle connection of HTTP/2 ends.
    read_timer: Option<Pin<Box<Sleep>>>,
    /// When the client must have read a part of what waits to be written.
    write_timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Default)]
struct Progress {
    /// A head was complete after the last read.
    is_complete: AtomicBool,
    /// How many requests have no response yet.
    requests: AtomicUsize,
    is_http2: AtomicBool,
}

impl Progress {
    fn in_request(&self) -> bool {
        self.requests.load(Ordering::Acquire) > 0
    }

    fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Acquire)
    }
}

/// Notes the requests of a connection.
pub(crate) struct Requests(Arc<Progress>);

/// A request whose head is complete, until its response is made.
pub(crate) struct InRequest(Arc<Progress>);

impl Requests {
    pub(crate) fn begin(&self, version: Version) -> InRequest {
        self.0.is_http2.store(version == Version::HTTP_2, Ordering::Release);
        self.0.is_complete.store(true, Ordering::Release);
        self.0.requests.fetch_add(1, Ordering::AcqRel);
        InRequest(self.0.clone())
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S> TimedStream<S> {
    pub(crate) fn new(stream: S) -> (Self, Requests) {
        let progress = Arc::<Progress>::default();
        let read_timer = Some(timer(HEAD_TIMEOUT));
        let stream = Self { stream, progress: progress.clone(), read_timer, write_timer: None };
        (stream, Requests(progress))
    }
}

fn timer(timeout: Duration) -> Pin<Box<Sleep>> {
    Box::pin(sleep_until(Instant::now() + timeout))
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.progress.is_complete.swap(false, Ordering::AcqRel) || self.progress.in_request() {
            self.read_timer = None;
        } else if let Some(timer) = &mut self.read_timer
            && timer.as_mut().poll(context).is_ready()
        {
            let problem = "no request was complete in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)));
        }
        if self.progress.is_http2() && !self.progress.in_request() {
            let timer = self.read_timer.get_or_insert_with(|| timer(IDLE_TIMEOUT));
            // Registers the waker of a new timer.
            let _ = timer.as_mut().poll(context);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let is_head = !self.progress.is_http2() && !self.progress.in_request();
        if buffer.filled().len() > before && is_head {
            self.read_timer.get_or_insert_with(|| timer(HEAD_TIMEOUT));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> TimedStream<S> {
    /// Fails a write that has waited too long.
    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.write_timer = None;
            return write;
        }
        let timer = self.write_timer.get_or_insert_with(|| timer(WRITE_TIMEOUT));
        ready!(timer.as_mut().poll(context));
        let problem = "the client does not read its response";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.timed(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// The precision of the timers of the runtime.
    const SLACK: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn unread_response_ends_the_connection() {
        let (server, mut client) = duplex(64);
        let (mut stream, _requests) = TimedStream::new(server);
        let began = Instant::now();
        let read = async {
            tokio::time::sleep(WRITE_TIMEOUT / 2).await;
            client.read_exact(&mut [0; 10]).await.unwrap();
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 200]), read);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let expected = WRITE_TIMEOUT / 2 + WRITE_TIMEOUT;
        assert!((expected..expected + SLACK).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn head_is_timed_and_idleness_is_not() {
        let (server, mut client) = duplex(64);
        let (mut stream, requests) = TimedStream::new(server);
        client.write_all(b"head").await.unwrap();
        stream.read_exact(&mut [0; 4]).await.unwrap();
        drop(requests.begin(Version::HTTP_11));
        let idle = tokio::time::timeout(HEAD_TIMEOUT * 5, stream.read_u8()).await;
        assert!(idle.is_err(), "no byte of the next head has come");
        client.write_all(b"h").await.unwrap();
        stream.read_u8().await.unwrap();
        let began = Instant::now();
        let slow = stream.read_u8().await.unwrap_err();
        assert_eq!(slow.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < HEAD_TIMEOUT + SLACK, "{:?}", began.elapsed());
    }

    /// Frames such as pings are no requests.
    #[tokio::test(start_paused = true)]
    async fn http2_connection_without_a_request_ends() {
        let (server, mut client) = duplex(64);
        let (mut stream, requests) = TimedStream::new(server);
        let (first, second) = (requests.begin(Version::HTTP_2), requests.begin(Version::HTTP_2));
        // The stream is dropped with its end.
        let ended = async move {
            loop {
                if let Err(error) = stream.read_u8().await {
                    return error.kind();
                }
            }
        };
        let pings = async {
            drop(first);
            for ping in 0.. {
                if ping == 100 {
                    drop(second);
                    break;
                }
                client.write_all(b"p").await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let idle_since = Instant::now();
            while client.write_all(b"p").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            idle_since.elapsed()
        };
        let (kind, idle) = tokio::join!(ended, pings);
        assert_eq!(kind, io::ErrorKind::TimedOut);
        assert!((IDLE_TIMEOUT..IDLE_TIMEOUT + Duration::from_secs(3)).contains(&idle), "{idle:?}");
    }
}
