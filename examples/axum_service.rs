//! An HTTP handler that locks around a transaction, and an orderly shutdown:
//! `cargo run --example axum_service [URL]`

use std::{env, sync::Arc, time::Duration};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use gaggle::{Error, LockOptions, Locker, SectionError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Mutex, oneshot},
};

#[derive(Clone)] // for each request; the mutex stands for a database
struct App(Locker, Arc<Mutex<u64>>);

async fn add(State(App(locker, database)): State<App>) -> Result<String, StatusCode> {
    let options = LockOptions::default().max_wait(Duration::from_secs(2));
    let request = locker.lock_with("orders/42", options).auto_extend(Duration::from_secs(60));
    let add = |_lock| async {
        let value = *database.lock().await;
        tokio::time::sleep(Duration::from_millis(10)).await; // other work of the transaction
        *database.lock().await = value + 1; // a real one checks `_lock.fencing_token()`
        (value + 1).to_string()
    };
    match request.run(add).await {
        Ok(value) => Ok(value),
        // Without protection: the addition of another request may be lost.
        Err(SectionError::NotUnlocked { cause: Error::NotHolder | Error::Expired, .. }) => {
            Err(StatusCode::INTERNAL_SERVER_ERROR)
        }
        Err(SectionError::NotUnlocked { output, .. }) => Ok(output), // protected until its end
        Err(SectionError::NotLocked(Error::TimedOut(_))) => Err(StatusCode::CONFLICT),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE), // not locked, or lost while it worked
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::args().nth(1).unwrap_or_else(|| "local:".into());
    let app = App(gaggle::open(&url).await?, Arc::default());
    let router = Router::new().route("/orders/42", post(add)).with_state(app.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    // A service waits for SIGTERM and Ctrl-C: docs/recipes.md, *A service in axum*.
    let server = axum::serve(listener, router).with_graceful_shutdown(async { _ = stopped.await });
    let server = tokio::spawn(server.into_future());
    for request in [0; 8].map(|_| tokio::spawn(request(address.clone()))) {
        request.await??;
    }
    println!("8 requests, the value is {}", app.1.lock().await);
    _ = stop.send(()); // first the handlers end, then the locks
    server.await??;
    app.0.close().await;
    Ok(())
}

async fn request(to: String) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(&to).await?;
    let head = format!("POST /orders/42 HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    if reply.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(std::io::Error::other(reply)) }
}
