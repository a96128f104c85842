//! Goal: `gaggle serve` grants locks to programs in any language, and refuses to be exposed by
//! mistake.
//! Method: the binary on free ports, with curl, Python and Node as clients.

// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod run_support;
mod serve_support;

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

#[cfg(feature = "tls")]
use gaggle_fixtures::Certificates;
use gaggle_fixtures::{RedisServer, free_port};
use run_support::{finish, tool};
use rustix::process::Signal;
use serve_support::{ANY_PORT, Server};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn scratch(name: &str) -> PathBuf {
    env::temp_dir().join(format!("gaggle-serve-{}-{name}", std::process::id()))
}

#[test]
fn exposed_server_must_be_asked_for() {
    let certificates = ["--tls-cert", "/nowhere/a.pem", "--tls-key", "/nowhere/a-key.pem"];
    for (arguments, problem) in [
        (
            &["--listen", "0.0.0.0:0"][..],
            "in plain text: give --tls-cert and --tls-key, or --insecure",
        ),
        (
            &["--listen", "[::]:0", "--insecure"],
            "could end any claim: give --tokens, or --anonymous",
        ),
        (&["--listen", "host:1"], "expected an IP address or localhost with a port"),
        (&["--tokens", "/nowhere/tokens"], "--tokens /nowhere/tokens: No such file"),
        (&["--url", "noop:"], "claims need a strategy whose waiters queue"),
        (&["--url", "nothing:"], "for example"),
        (&["--url", "redis://u:geheim@127.0.0.1:1"], "127.0.0.1:1"),
        (&["--max-ttl", "25h"], "100ms to 1day"),
        (&["--tls-cert", "x"], "--tls-key"),
        (
            &certificates,
            if cfg!(feature = "tls") { "/nowhere/a.pem: No such" } else { "without TLS" },
        ),
        (
            &["--max-ttl", "20s", "--url", "gaggle+memory://a?name=a&members=a&outside_max=10s"],
            "--max-ttl 20s is longer than the outside_max of the URL, 10s",
        ),
    ] {
        let arguments: Vec<_> = match arguments.contains(&"--listen") {
            true => arguments.to_vec(),
            false => ANY_PORT.iter().chain(arguments).copied().collect(),
        };
        let (code, out, error) = finish(tool(&["serve"]).args(&arguments));
        assert_eq!((code, &*out), (Some(2), ""), "{arguments:?}: {error}");
        assert!(error.contains(problem) && !error.contains("geheim"), "{arguments:?}: {error}");
    }
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    let (code, _, error) = finish(tool(&["serve"]).args(["--listen", &address]));
    assert_eq!(code, Some(2));
    assert!(
        error.contains(&format!("cannot listen on {address}: Address already in use")),
        "{error}"
    );
    let socket = scratch("socket");
    let place = format!("unix:{}", socket.display());
    let _running = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (code, _, error) = finish(tool(&["serve"]).args(["--listen", &place]));
    assert_eq!(code, Some(2));
    let problem = format!("cannot listen on {place}: another server listens there");
    assert!(error.contains(&problem), "{error}");
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "a file of a user").unwrap();
    let (code, _, error) = finish(tool(&["serve"]).args(["--listen", &place]));
    assert_eq!(code, Some(2));
    assert!(error.contains("the file exists, and is not a socket"), "{error}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "a file of a user");
    fs::remove_file(&socket).unwrap();
}

/// Connections that say nothing exceed the limit of open files with which the server begins.
#[test]
fn silent_connections_do_not_use_up_the_files() {
    let mut command = Command::new("sh");
    let serve = "ulimit -S -n 64 && exec \"$0\" serve --listen 127.0.0.1:0";
    command.args(["-c", serve, env!("CARGO_BIN_EXE_gaggle")]);
    let server = Server::start_command(command);
    let connect = |_| TcpStream::connect(server.address()).unwrap();
    let _silent: Vec<_> = (0..200).map(connect).collect();
    let began = Instant::now();
    assert_eq!(server.claim("k").0, 201);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn group_of_one_grants_after_its_longest_ttl() {
    let port = free_port();
    let url = format!("gaggle+tcp://127.0.0.1:{port}?cluster=c&name=a&peers=a@127.0.0.1:{port}");
    let mut arguments = ANY_PORT.to_vec();
    arguments.extend(["--max-ttl", "2s", "--url", &url]);
    let server = Server::start(&arguments);
    let began = Instant::now();
    let (status, reason) = server.request("GET", "/ready", "");
    assert_eq!(status, 503, "{reason}");
    while server.request("GET", "/ready", "").0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(100));
    }
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    let body = r#"{"resource":"k","ttl":2}"#;
    assert_eq!(server.request("POST", "/v1/claims/", body).0, 201);
    assert_eq!(server.claim("l").0, 400, "a longer ttl is refused");
}

/// Python and Node increment one counter, over a Redis behind two servers.
#[test]
fn examples_exclude_each_other() {
    let redis = RedisServer::start();
    let url = redis.url();
    let arguments = || ANY_PORT.into_iter().chain(["--url", &url]).collect::<Vec<_>>();
    let servers = [Server::start(&arguments()), Server::start(&arguments())];
    let counter = scratch("counter");
    fs::write(&counter, "0").unwrap();
    let program = |program: &str, file: &str, server: &Server| {
        let mut command = Command::new(program);
        command.arg(root().join("examples").join(file)).args([&server.url, "counter"]);
        command.arg(&counter).arg("10").stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut running = Vec::new();
    for server in &servers {
        running.push(program("python3", "claims.py", server));
        running.push(program("node", "claims.mjs", server));
    }
    for process in running {
        let output = process.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    }
    assert_eq!(fs::read_to_string(&counter).unwrap(), "40");
    fs::remove_file(&counter).unwrap();
}

#[test]
fn examples_notice_a_loss() {
    let server = Server::start(&ANY_PORT);
    for (program, file) in [("python3", "claims.py"), ("node", "claims.mjs")] {
        let mut command = Command::new(program);
        command.arg(root().join("examples").join(file)).args([&server.url, file]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("held "));
        // Longer than the ttl: it renews.
        sleep(Duration::from_secs(6));
        let (_, claims) = server.request("GET", &format!("/v1/claims/?resource={file}"), "");
        let (_, id) = claims.split_once("\"id\":\"").unwrap();
        let path = format!("/v1/claims/{}/", id.split('"').next().unwrap());
        assert_eq!(server.request("PATCH", &path, r#"{"status":"revoked"}"#).0, 204, "{claims}");
        assert_eq!(lines.next().unwrap().unwrap(), "lost");
        process.wait().unwrap();
    }
}

/// The lines of docs/http-api.md.
#[test]
fn documented_lines_run() {
    let page = fs::read_to_string(root().join("docs/http-api.md")).unwrap();
    let block = page.split("```sh\n").nth(2).unwrap().split("```").next().unwrap();
    let server = Server::start(&ANY_PORT);
    let script = block.replace("http://127.0.0.1:7080", &server.url);
    assert!(script.matches("curl").count() == 5 && script.contains(&server.url));
    let (code, out, error) = finish(Command::new("sh").args(["-eu", "-c", &script]));
    assert_eq!((code, &*error), (Some(0), ""), "{out}");
    assert!(out.matches("\"status\":\"active\"").count() >= 2, "{out}");
    assert!(out.contains("\"status\":\"released\",\"status_history\""), "{out}");
}

#[cfg(feature = "tls")]
#[test]
fn tokens_and_tls_guard_a_server() {
    use std::os::unix::fs::PermissionsExt as _;
    let certificates = Certificates::new();
    certificates.issue("server", "localhost");
    let file = |name: &str| certificates.path(name).to_str().unwrap().to_owned();
    let (ca, cert, key, tokens) =
        (file("ca.pem"), file("server.pem"), file("server-key.pem"), file("tokens"));
    fs::write(&tokens, "one client token-of-one-0001").unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    let files = ["--tls-cert", &cert, "--tls-key", &key, "--tokens", &tokens];
    let listen = ["--listen", "0.0.0.0:0"];
    let server = Server::start(&listen.into_iter().chain(files).collect::<Vec<_>>());
    let port = server.address().rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}");
    let curl = |token: &str, path: &str, more: &[&str]| {
        let token = format!("Authorization: Bearer {token}");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--cacert", &ca, "-H", &token, "-w", " %{http_code}"]);
        let (code, out, error) = finish(curl.args(more).arg(format!("{url}{path}")));
        assert_eq!(code, Some(0), "{error}");
        out
    };
    let claim = ["--json", r#"{"resource":"k","ttl":10}"#];
    let made = curl("token-of-one-0001", "/v1/claims/", &claim);
    assert!(made.ends_with(" 201") && made.contains(&format!("{url}/v1/claims/")), "{made}");
    let refused = curl("token-of-two-0002", "/v1/claims/", &claim);
    assert!(refused.ends_with(" 401") && !refused.contains("token-of"), "{refused}");
    assert!(curl("", "/ready", &[]).ends_with(" 200"));

    fs::write(&tokens, "two client token-of-two-0002").unwrap();
    server.signal(Signal::HUP);
    let began = Instant::now();
    while !curl("token-of-one-0001", "/v1/claims/", &[]).ends_with(" 401") {
        assert!(began.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(50));
    }
    assert!(curl("token-of-two-0002", "/v1/claims/", &[]).ends_with("[] 200"));
}
