//! Goal: the commands lock at a `gaggle serve`, also over a group. Method: the binary as server and
//! as client, on free ports.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod run_support;
mod serve_support;

use std::{env, fs, os::unix::fs::PermissionsExt as _, thread::sleep, time::Duration};

#[cfg(feature = "tls")]
use gaggle_fixtures::Certificates;
use gaggle_fixtures::free_port;
use run_support::{Running, finish, gaggle, tool};
use serve_support::{ANY_PORT, Server};

/// A run that holds the key until it loses it.
fn holder(url: &str) -> Running {
    let arguments = ["--duration", "1s", "k", "--", "sh", "-c", "echo held; exec sleep 60"];
    Running::start(gaggle(url, &arguments))
}

/// A second run does not get the key, an operator sees the first and ends it.
fn assert_commands_work(url: &str) {
    let running = holder(url);
    assert_eq!(running.first_line, "held");
    let (code, ..) = finish(&mut gaggle(url, &["--try", "--duration", "1s", "k", "--", "true"]));
    assert_eq!(code, Some(124), "another process holds the key");
    for command in [&["list"][..], &["inspect", "k"]] {
        let (code, out, error) = finish(tool(command).env("GAGGLE_URL", url));
        assert_eq!(code, Some(0), "{command:?}: {error}");
        assert!(out.contains(&running.process.id().to_string()), "{command:?}: {out}");
    }
    let mut unlock = tool(&["unlock", "--force", "--reason", "ticket 7", "k"]);
    let (code, out, error) = finish(unlock.env("GAGGLE_URL", url));
    assert_eq!((code, out.contains("is unlocked")), (Some(0), true), "{out}{error}");
    let (code, _, error) = running.finish();
    assert_eq!(code, Some(123), "its lock is lost");
    assert!(error.contains("force-unlocked by http: ") && error.contains("ticket 7"), "{error}");
    let (code, out, _) = finish(tool(&["inspect", "k"]).env("GAGGLE_URL", url));
    assert_eq!((code, out.contains("is not held")), (Some(1), true), "{out}");
}

#[test]
fn commands_work_on_a_server_of_one_machine() {
    let server = Server::start(&ANY_PORT);
    assert_commands_work(&server.url);
}

#[test]
fn commands_work_on_a_group() {
    let port = free_port();
    let url = format!("gaggle+tcp://127.0.0.1:{port}?cluster=c&name=a&peers=a@127.0.0.1:{port}");
    let mut arguments = ANY_PORT.to_vec();
    arguments.extend(["--max-ttl", "2s", "--url", &url]);
    let server = Server::start(&arguments);
    while server.request("GET", "/ready", "").0 != 200 {
        sleep(Duration::from_millis(100));
    }
    assert_commands_work(&server.url);
    let (code, _, error) = finish(&mut gaggle(&server.url, &["k", "--", "true"]));
    assert_eq!(code, Some(122), "{error}");
    assert!(error.contains("from 0.003 to 2, the limits of this server"), "{error}");
}

#[test]
fn bench_measures_a_server() {
    let server = Server::start(&ANY_PORT);
    let arguments = ["bench", "--http", &server.url, "--duration", "100ms", "--members", "2"];
    let (code, out, error) = finish(&mut tool(&arguments));
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("http"), "{out}");
    let (code, _, error) = finish(&mut tool(&["bench", "--strategy", "http"]));
    assert_eq!(code, Some(2));
    assert!(error.contains("the strategy http needs --http http://127.0.0.1:7080"), "{error}");
}

#[test]
fn token_is_needed_and_not_shown() {
    const TOKEN: &str = "geheim-0123456789";
    let file = env::temp_dir().join(format!("gaggle-http-{}", std::process::id()));
    fs::write(&file, format!("ci client {TOKEN}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut arguments = ANY_PORT.to_vec();
    arguments.extend(["--tokens", file.to_str().unwrap()]);
    let server = Server::start(&arguments);
    let with = |token: &str| server.url.replace("http://", &format!("http://:{token}@"));
    let run = |url: &str| finish(&mut gaggle(url, &["--try", "k", "--", "true"]));
    let (code, _, error) = run(&with(TOKEN));
    assert_eq!(code, Some(0), "{error}");
    for url in [server.url.clone(), with("geheim-of-another")] {
        let (code, out, error) = run(&url);
        assert_eq!(code, Some(122), "{out}{error}");
        assert!(error.contains("refused the token") && !error.contains("geheim"), "{error}");
    }
    fs::write(&file, TOKEN).unwrap();
    let (code, _, error) = run(&format!("{}?token_file={}", server.url, file.display()));
    assert_eq!(code, Some(0), "{error}");
    fs::remove_file(&file).unwrap();
}

#[test]
fn server_of_a_server_is_refused() {
    let url = "http://127.0.0.1:1";
    let (code, _, error) = finish(tool(&["serve"]).args(ANY_PORT).args(["--url", url]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--url is of a `gaggle serve`"), "{error}");
}

#[test]
fn runs_lock_over_a_unix_socket() {
    let socket = env::temp_dir().join(format!("gaggle-http-{}.sock", std::process::id()));
    let listen = format!("unix:{}", socket.display());
    let server = Server::start(&["--listen", &listen]);
    let url = format!("http+unix://{}", socket.display());
    assert_eq!(finish(&mut gaggle(&url, &["k", "--", "true"])).0, Some(0), "{}", server.url);
}

#[cfg(feature = "tls")]
#[test]
fn runs_lock_over_tls() {
    let certificates = Certificates::new();
    certificates.issue("server", "localhost");
    let file = |name: &str| certificates.path(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server-key.pem"));
    let mut arguments = ANY_PORT.to_vec();
    arguments.extend(["--tls-cert", &cert, "--tls-key", &key]);
    let server = Server::start(&arguments);
    let port = server.address().rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}");
    let trusted = format!("{url}?tls_ca={ca}");
    let (code, _, error) = finish(&mut gaggle(&trusted, &["k", "--", "true"]));
    assert_eq!(code, Some(0), "{error}");
    let (code, _, error) = finish(&mut gaggle(&url, &["--try", "k", "--", "true"]));
    assert!(code == Some(122) && error.contains("certificate"), "{code:?}: {error}");
}
