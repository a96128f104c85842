//! Goal: slow and silent clients are cut off, large requests are refused, and the end of a server
//! leaves no client waiting.
//! Method: servers on free ports, and raw bytes.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use std::{future::pending, path::PathBuf, time::Duration};

use gaggle_server::{Access, Listen, Options, Service, serve};
use support::Tokens;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// A server over a fresh table.
struct Server {
    address: String,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

async fn start() -> Server {
    let locker = gaggle::open("local:").await.unwrap();
    start_with(Service::new(locker, Access::anonymous(), Options::default()).unwrap()).await
}

async fn start_with(service: Service) -> Server {
    let listener = "127.0.0.1:0".parse::<Listen>().unwrap().bind().await.unwrap();
    let address = listener.url().strip_prefix("http://").unwrap().to_owned();
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(serve(service, vec![listener], async { _ = stopped.await }));
    Server { address, stop, running }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }
}

fn post(body: &str, headers: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/claims/ HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

const CLAIM: &str = r#"{"resource":"k","ttl":10}"#;

/// The response, as far as it comes until the connection ends or a while has passed.
async fn response(stream: &mut (impl AsyncRead + Unpin), within: Duration) -> String {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while let Ok(Ok(read @ 1..)) = timeout(within, stream.read(&mut part)).await {
        bytes.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("\r\n\r\n") && (text.ends_with('}') || text.contains("content-length: 0"))
        {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}

async fn request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    response(stream, Duration::from_secs(5)).await
}

#[track_caller]
fn has_status(response: &str, status: u16) {
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response:?}");
}

#[tokio::test]
async fn claim_travels_over_tcp_and_a_unix_socket() {
    let server = start().await;
    let mut stream = server.connect().await;
    let made = request(&mut stream, &post(CLAIM, "")).await;
    has_status(&made, 201);
    assert!(made.contains("location: http://localhost/v1/claims/"), "{made}");
    // The connection is kept, also beyond the time for one head.
    sleep(Duration::from_millis(2_500)).await;
    has_status(&request(&mut stream, &post(CLAIM, "")).await, 202);

    let path = std::env::temp_dir().join(format!("gaggle-{}.sock", std::process::id()));
    let listen = Listen::Unix(path.clone());
    let locker = gaggle::open("local:").await.unwrap();
    let service = Service::new(locker, Access::anonymous(), Options::default()).unwrap();
    let listener = listen.bind().await.unwrap();
    let again = listen.bind().await.unwrap_err();
    assert!(again.to_string().contains("another server listens there"), "{again}");
    let running = tokio::spawn(serve(service, vec![listener], pending()));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let named = post(CLAIM, "").replace("localhost", "x");
    has_status(&request(&mut stream, &named).await, 201);
    running.abort();
    let _ = running.await;
    assert!(!path.exists(), "the socket leaves with its server");
}

/// A page whose name has the address of this machine is, to a browser, of the server's own site.
#[tokio::test]
async fn host_of_another_name_is_refused_on_loopback() {
    let server = start().await;
    let of = |host: &str| post(CLAIM, "").replace("localhost", host);
    let mut stream = server.connect().await;
    for host in ["evil.example", "evil.example:7080", "localhost.evil.example"] {
        let refused = request(&mut stream, &of(host)).await;
        has_status(&refused, 403);
        assert!(refused.contains("wrong-host") && refused.contains(host), "{refused}");
    }
    has_status(&request(&mut stream, &of(&server.address)).await, 201);

    let tokens = Tokens::new("hosts");
    let locker = gaggle::open("local:").await.unwrap();
    let access = Access::tokens(tokens.path()).unwrap();
    let server = start_with(Service::new(locker, access, Options::default()).unwrap()).await;
    let with_token = post(CLAIM, "Authorization: Bearer token-of-one-0001\r\n");
    let named = with_token.replace("localhost", "locks.example");
    has_status(&request(&mut server.connect().await, &named).await, 201);
}

#[tokio::test]
async fn place_in_use_is_named() {
    let server = start().await;
    let error = server.address.parse::<Listen>().unwrap().bind().await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {}: ", server.address)), "{error}");
    let file: PathBuf = std::env::temp_dir().join(format!("gaggle-{}.file", std::process::id()));
    std::fs::write(&file, "x").unwrap();
    let error = Listen::Unix(file.clone()).bind().await.unwrap_err().to_string();
    assert!(error.contains("the file exists, and is not a socket"), "{error}");
    std::fs::remove_file(&file).unwrap();
    // The socket of a server that was killed.
    drop(std::os::unix::net::UnixListener::bind(&file).unwrap());
    Listen::Unix(file).bind().await.unwrap();
    for text in ["", "7080", "host:7080", "unix:", "127.0.0.1"] {
        assert!(text.parse::<Listen>().is_err(), "{text}");
    }
}

#[tokio::test]
async fn slow_and_silent_clients_are_cut_off() {
    let server = start().await;
    let began = Instant::now();
    let mut silent = server.connect().await;
    let mut slow = server.connect().await;
    let slow = async {
        for byte in "GET /health HTTP/1.1\r\nHost: localhost\r\nX: y\r\n".bytes().cycle() {
            if slow.write_all(&[byte]).await.is_err() {
                return began.elapsed();
            }
            sleep(Duration::from_millis(100)).await;
        }
        unreachable!()
    };
    let silent = async {
        assert_eq!(response(&mut silent, Duration::from_secs(10)).await, "");
        began.elapsed()
    };
    let other = async {
        for _ in 0..20 {
            has_status(&request(&mut server.connect().await, &post(CLAIM, "")).await, 202);
            sleep(Duration::from_millis(50)).await;
        }
    };
    has_status(&request(&mut server.connect().await, &post(CLAIM, "")).await, 201);
    let (slow, silent, ()) = tokio::join!(slow, silent, other);
    for took in [slow, silent] {
        assert!(took >= Duration::from_millis(1_900) && took < Duration::from_secs(4), "{took:?}");
    }
}

#[tokio::test]
async fn large_request_is_refused() {
    let server = start().await;
    let head = format!(
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "y".repeat((16 << 10) + 200)
    );
    has_status(&request(&mut server.connect().await, &head).await, 431);
    let head = "POST /v1/claims/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10485760\r\n\r\n";
    let refused = request(&mut server.connect().await, head).await;
    has_status(&refused, 413);
    assert!(refused.contains("body-too-large"), "{refused}");
    let chunk = format!("11000\r\n{}\r\n", "y".repeat(0x11000));
    let head = "POST /v1/claims/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    has_status(&request(&mut server.connect().await, &format!("{head}{chunk}")).await, 413);
    for garbage in ["\0\0\0\0\r\n\r\n", "GET / HTTP/9\r\n\r\n", "GET /\u{fc} HTTP/1.1\r\n\r\n"] {
        let reply = request(&mut server.connect().await, garbage).await;
        assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 4"), "{reply:?}");
    }
    has_status(&request(&mut server.connect().await, &post(CLAIM, "")).await, 201);
}

#[tokio::test]
async fn ending_server_answers_what_waits() {
    let server = start().await;
    let mut first = server.connect().await;
    has_status(&request(&mut first, &post(CLAIM, "")).await, 201);
    let mut second = server.connect().await;
    second.write_all(post(CLAIM, "Prefer: wait=60\r\n").as_bytes()).await.unwrap();
    sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    server.stop.send(()).unwrap();
    let answer = response(&mut second, Duration::from_secs(5)).await;
    has_status(&answer, 503);
    assert!(answer.contains("retry-after: 1") && answer.contains("\"closing\""), "{answer}");
    timeout(Duration::from_secs(9), server.running).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(TcpStream::connect(&server.address).await.is_err(), "it listens no longer");
}

/// A connection of HTTP/2, as a program with prior knowledge opens it.
async fn http2(server: &Server) -> h2::client::SendRequest<&'static [u8]> {
    let stream = server.connect().await;
    let (sender, connection) = h2::client::Builder::new().handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The status of a request without a body, or why it has none.
async fn status(
    sender: &h2::client::SendRequest<&'static [u8]>,
    request: axum::http::request::Builder,
) -> Result<u16, h2::Error> {
    let mut sender = sender.clone().ready().await?;
    let (response, _) = sender.send_request(request.body(()).unwrap(), true)?;
    Ok(response.await?.status().as_u16())
}

fn head(path: &str) -> axum::http::request::Builder {
    axum::http::Request::get(format!("http://localhost{path}"))
}

#[tokio::test]
async fn http2_has_the_limits_of_a_head() {
    let server = start().await;
    let sender = http2(&server).await;
    assert_eq!(status(&sender, head("/health")).await.unwrap(), 200);
    let long = "y".repeat(16 << 10);
    let refused = status(&sender, head("/health").header("x", long)).await;
    assert!(matches!(refused, Ok(431) | Err(_)), "{refused:?}");
    // Requests may come beyond the time for one head.
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(status(&http2(&server).await, head("/v1/")).await.unwrap(), 200);

    // A preface without a request is cut off.
    let began = Instant::now();
    let mut silent = server.connect().await;
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    while silent.read(&mut [0; 256]).await.is_ok_and(|read| read > 0) {}
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_900) && took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn large_body_over_http2_is_refused() {
    let server = start().await;
    let mut sender = http2(&server).await.ready().await.unwrap();
    let request = axum::http::Request::post("http://localhost/v1/claims/").body(()).unwrap();
    let (response, mut body) = sender.send_request(request, false).unwrap();
    static LARGE: [u8; (64 << 10) + 1] = [b' '; (64 << 10) + 1];
    body.send_data(&LARGE, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 413);
}

#[tokio::test]
async fn slow_body_over_http2_is_refused() {
    let server = start().await;
    let mut sender = http2(&server).await.ready().await.unwrap();
    let request = axum::http::Request::post("http://localhost/v1/claims/").body(()).unwrap();
    let (response, mut body) = sender.send_request(request, false).unwrap();
    body.send_data(b"{", false).unwrap();
    let began = Instant::now();
    assert_eq!(response.await.unwrap().status(), 408);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
