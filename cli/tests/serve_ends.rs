//! Goal: a server of a supervisor says when it serves, ends in order by a signal, and leaves the
//! claims to the next one.
//! Method: the binary on free ports, over a Redis and a group too, and a socket in place of systemd.

// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod run_support;
mod serve_support;

use std::{
    io::Write as _,
    net::TcpStream,
    os::unix::{net::UnixDatagram, process::ExitStatusExt as _},
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

use gaggle_fixtures::{RedisServer, free_port};
use run_support::{finish, tool, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use serve_support::{ANY_PORT, Server};

/// The socket on which a supervisor receives what its service reports.
struct Supervisor {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Supervisor {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gaggle-{}-{name}", std::process::id()));
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path }
    }

    /// Starts a service whose watchdog has this period.
    fn start(&self, arguments: &[&str], watchdog: Duration) -> Server {
        let mut command = tool(&["serve"]);
        command.args(ANY_PORT).args(arguments).env("NOTIFY_SOCKET", &self.path);
        command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        Server::start_command(command)
    }

    /// What arrives within this time.
    fn received(&self, within: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let mut bytes = [0; 256];
        let length = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).trim().to_owned())
    }

    /// Waits for this report, among those of the watchdog.
    fn expect(&self, report: &str) {
        while let Some(received) = self.received(Duration::from_secs(20)) {
            match &*received {
                "WATCHDOG=1" => {}
                received => return assert_eq!(received, report),
            }
        }
        panic!("no {report}");
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn supervisor_hears_of_readiness_life_and_end() {
    let (supervisor, watchdog) = (Supervisor::new("local"), Duration::from_secs(2));
    let server = supervisor.start(&[], watchdog);
    supervisor.expect("READY=1");
    for _ in 0..3 {
        let report = supervisor.received(watchdog / 2);
        assert_eq!(report.as_deref(), Some("WATCHDOG=1"));
    }
    server.signal(Signal::TERM);
    supervisor.expect("STOPPING=1");
}

#[test]
fn group_is_ready_once_it_grants() {
    let port = free_port();
    let url = format!("gaggle+tcp://127.0.0.1:{port}?cluster=c&name=a&peers=a@127.0.0.1:{port}");
    let supervisor = Supervisor::new("group");
    let began = Instant::now();
    let server = supervisor.start(&["--max-ttl", "2s", "--url", &url], Duration::from_secs(60));
    assert_eq!(server.request("GET", "/ready", "").0, 503);
    supervisor.expect("READY=1");
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(server.request("GET", "/ready", "").0, 200);
}

#[test]
fn terminated_server_answers_and_ends() {
    let mut server = Server::start(&ANY_PORT);
    assert_eq!(server.claim("k").0, 201);
    let (status, metrics) = server.request("GET", "/metrics", "");
    assert_eq!(status, 200);
    for line in ["gaggle_http_requests_total{", "gaggle_claims{status=\"active\"} 1"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert!(!metrics.contains("\"k\""), "no key is in a label");
    let began = Instant::now();
    let (status, body) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.claim("k"));
        sleep(Duration::from_millis(500));
        server.signal(Signal::TERM);
        waiting.join().unwrap()
    });
    assert_eq!(status, 503, "{body}");
    assert!(server.process.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Connections that would keep the server for long: one without a request, one whose head and one
/// whose body is not complete, and one that reads no response.
fn stuck_connections(server: &Server) -> Vec<TcpStream> {
    let begun = [
        "",
        "GET /health HTTP/1.1\r\nHost: localhost\r\n",
        "POST /v1/claims/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
        "GET /v1/claims/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let connect = |text: &str| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let streams = begun.map(connect).into();
    sleep(Duration::from_millis(200));
    streams
}

#[test]
fn stuck_connections_delay_the_end_by_3_s() {
    let mut server = Server::start(&ANY_PORT);
    let streams = stuck_connections(&server);
    let began = Instant::now();
    server.signal(Signal::TERM);
    assert!(server.process.wait().unwrap().success());
    // The body of a request may take 5 s.
    assert!(began.elapsed() < Duration::from_millis(4_500), "{:?}", began.elapsed());
    drop(streams);
}

#[test]
fn second_signal_ends_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut server = Server::start(&ANY_PORT);
        let _streams = stuck_connections(&server);
        server.signal(signal);
        sleep(Duration::from_millis(500));
        assert!(server.process.try_wait().unwrap().is_none(), "a request is under way");
        let began = Instant::now();
        server.signal(signal);
        let status = server.process.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(code), None));
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    }
}

/// The path of the claim in a response.
fn path(body: &str) -> String {
    let claim: Value = serde_json::from_str(body).unwrap();
    format!("/v1/claims/{}/", claim["id"].as_str().unwrap())
}

#[test]
fn claim_outlives_the_server_of_a_redis() {
    let redis = RedisServer::start();
    let url = redis.url();
    let arguments = || ANY_PORT.into_iter().chain(["--url", &url]).collect::<Vec<_>>();
    let mut server = Server::start(&arguments());
    let (status, made) = server.claim("k");
    assert_eq!(status, 201);
    server.signal(Signal::TERM);
    assert!(server.process.wait().unwrap().success());
    let server = Server::start(&arguments());
    let path = path(&made);
    let (status, renewed) = server.request("PATCH", &path, r#"{"ttl":10}"#);
    assert_eq!(status, 200, "{renewed}");
    let token = |body: &str| serde_json::from_str::<Value>(body).unwrap()["fencing_token"].clone();
    assert_eq!(token(&renewed), token(&made));
    assert_eq!(server.request("PATCH", &path, r#"{"status":"released"}"#).0, 204);
}

/// Three servers that end and start again one by one, the leader first.
#[test]
fn rolling_restart_keeps_claims_and_transfers_leadership() {
    let names = ["a", "b", "c"];
    let ports = names.map(|_| free_port());
    let peers: Vec<String> =
        names.iter().zip(ports).map(|(name, port)| format!("{name}@127.0.0.1:{port}")).collect();
    let start = |at: usize| {
        let (name, port, peers) = (names[at], ports[at], peers.join(","));
        let url = format!("gaggle+tcp://127.0.0.1:{port}?cluster=c&name={name}&peers={peers}");
        let mut arguments = ANY_PORT.to_vec();
        arguments.extend(["--max-ttl", "2s", "--url", &url]);
        Server::start(&arguments)
    };
    let is_ready = |server: &Server| server.request("GET", "/ready", "").0 == 200;
    let leader = |server: &Server| -> Option<String> {
        let (_, body) = server.request("GET", "/v1/status", "");
        let status: Value = serde_json::from_str(&body).unwrap();
        status["group"]["leader"].as_str().map(str::to_owned)
    };
    let mut servers: Vec<Server> = (0..names.len()).map(start).collect();
    wait_until(|| servers.iter().all(is_ready));
    let (status, made) = servers[0].request("POST", "/v1/claims/", r#"{"resource":"k","ttl":2}"#);
    assert_eq!(status, 201, "{made}");
    let path = path(&made);
    let first = leader(&servers[0]).unwrap();
    let order = names.iter().position(|name| *name == first).unwrap();
    for at in (0..names.len()).map(|step| (order + step) % names.len()) {
        let other = (at + 1) % names.len();
        let led = leader(&servers[at]).is_some_and(|leader| leader == names[at]);
        servers[at].signal(Signal::TERM);
        assert!(servers[at].process.wait().unwrap().success());
        if led {
            // The election after a silent leader takes longer.
            assert!(leader(&servers[other]).is_some_and(|leader| leader != names[at]));
        }
        let (status, renewed) = servers[other].request("PATCH", &path, r#"{"ttl":2}"#);
        assert_eq!(status, 200, "{renewed}");
        servers[at] = start(at);
        wait_until(|| {
            assert_eq!(servers[other].request("PATCH", &path, r#"{"ttl":2}"#).0, 200);
            is_ready(&servers[at])
        });
    }
    assert_eq!(servers[0].request("PATCH", &path, r#"{"status":"released"}"#).0, 204);
}

/// The name of a member that runs is given to another process.
#[test]
fn second_member_of_a_name_ends() {
    let ports = [free_port(), free_port(), free_port()];
    let start = |name: &str, own: u16, a: u16| {
        let b = ports[1];
        let peers = format!("a@127.0.0.1:{a},b@127.0.0.1:{b}");
        let url = format!("gaggle+tcp://127.0.0.1:{own}?cluster=c&name={name}&peers={peers}");
        let mut command = tool(&["serve", "--listen", "127.0.0.1:0", "--max-ttl", "1s"]);
        command.args(["--url", &url]);
        command
    };
    let servers = [("a", 0), ("b", 1)]
        .map(|(name, at)| Server::start_command(start(name, ports[at], ports[0])));
    wait_until(|| servers.iter().all(|it| it.request("GET", "/ready", "").0 == 200));
    let (code, _, error) = finish(start("a", ports[2], ports[2]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("the name a is in use by another process"), "{error}");
    assert_eq!(servers[0].claim("k").0, 400, "a ttl of 10 s is too long");
    assert!(servers.iter().all(|it| it.request("GET", "/ready", "").0 == 200));
}
