//! A server for the routes, with limits that slow and silent clients meet.

use std::{io, sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Request};
use futures_util::future::join_all;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service as _;

use crate::{
    Service,
    listen::{Handshake, Listener, Transport},
    timed_stream::{IDLE_TIMEOUT, TimedStream},
};

/// How many connections a server has; further ones wait.
const CONNECTIONS_MAX: usize = 10_000;
/// The longest head of a request.
const HEAD_BYTES_MAX: u32 = 16 << 10;
/// How many requests of an HTTP/2 connection may be open.
const STREAMS_MAX: u32 = 1_024;
/// How long the handshake of TLS may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long open requests may take once the server ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the strategy may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the routes on these listeners until `stop` completes.
///
/// Then it accepts no connection, answers what waits (503), and closes the service, within 10 s.
/// Active claims stay, where they outlive the server.
pub async fn serve(service: Service, listeners: Vec<Listener>, stop: impl Future<Output = ()>) {
    let connections = TaskTracker::new();
    let connect = Connect { router: service.router(), ending: CancellationToken::new() };
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accepting =
        listeners.iter().map(|listener| accept(listener, &connect, &connections, &permits));
    tokio::select! {
        _ = join_all(accepting) => {}
        () = stop => {}
    }
    drop(listeners);
    service.begin_close();
    connect.ending.cancel();
    connections.close();
    if timeout(DRAIN_TIMEOUT, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests are cut off");
    }
    if timeout(CLOSE_TIMEOUT, service.close()).await.is_err() {
        tracing::warn!("the strategy did not close in time");
    }
}

/// Serves the routes on one open stream, with the limits of [`serve`], until either side closes it:
/// for listeners of other kinds.
///
/// # Errors
///
/// The stream has failed, or its client does not keep to HTTP or to the limits.
pub async fn serve_stream(
    service: &Service,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let connect = Connect { router: service.router(), ending: CancellationToken::new() };
    connect.run(stream, Transport::Plain).await
}

/// What a connection needs.
#[derive(Clone)]
struct Connect {
    router: Router,
    ending: CancellationToken,
}

/// Accepts connections without an end.
async fn accept(
    listener: &Listener,
    connect: &Connect,
    connections: &TaskTracker,
    permits: &Arc<Semaphore>,
) {
    loop {
        let permit = permits.clone().acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok(handshake) => {
                let (connect, transport) = (connect.clone(), listener.transport());
                connections.spawn(async move {
                    if let Err(error) = connect.accept(handshake, transport).await {
                        tracing::debug!(error = %error, "connection ended");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                // Too few descriptors, or a connection that has ended already.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl Connect {
    async fn accept(
        self,
        handshake: Handshake,
        transport: Transport,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let slow = || io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long");
        let stream = timeout(HANDSHAKE_TIMEOUT, handshake).await.map_err(|_| slow())??;
        self.run(stream, transport).await
    }

    async fn run(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        transport: Transport,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let (stream, requests) = TimedStream::new(stream);
        let respond = service_fn(move |request: Request<Incoming>| {
            let in_request = requests.begin(request.version());
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(transport);
            let response = self.router.clone().call(request);
            async move {
                let response = response.await;
                drop(in_request);
                response
            }
        });
        let mut server = auto::Builder::new(TokioExecutor::new());
        // A head that fills the buffer is too large.
        server.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
        server.http1().max_buf_size(HEAD_BYTES_MAX as usize);
        server.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
        server.http2().max_header_list_size(HEAD_BYTES_MAX);
        let connection = server.serve_connection(TokioIo::new(stream), respond);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            ended = &mut connection => return ended,
            () = self.ending.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }
}
