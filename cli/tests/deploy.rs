//! Goal: the commands of the deployment files make the files that their URLs name, the members of
//! both files form a group, and the job locks in the Redis.
//!
//! Method: the files are read line by line; the commands run and the URLs are opened here, with
//! directories and ports of the test.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use gaggle::Locker;
use gaggle_fixtures::{Certificates, free_port, redis_program};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/deploy").join(name);
    fs::read_to_string(path).unwrap()
}

/// The lines of a service of the Compose file.
fn service<'a>(compose: &'a str, name: &str) -> &'a str {
    let (_, rest) = compose.split_once(&format!("\n  {name}:")).unwrap();
    rest.split_once("\n\n").unwrap().0
}

/// What follows a key on its line: in these files also JSON.
fn value<T: serde::de::DeserializeOwned>(lines: &str, key: &str) -> T {
    let line = lines.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap();
    serde_json::from_str(line.trim()).unwrap_or_else(|error| panic!("{key} {line}: {error}"))
}

/// The user and the group of this process.
fn user() -> String {
    let id = |option| String::from_utf8(Command::new("id").arg(option).output().unwrap().stdout);
    format!("{}:{}", id("-u").unwrap().trim(), id("-g").unwrap().trim())
}

/// A shell or another program that finds `gaggle`.
fn program(command: &[String]) -> Command {
    let gaggle = Path::new(env!("CARGO_BIN_EXE_gaggle")).parent().unwrap();
    let path = format!("{}:{}", gaggle.display(), env::var("PATH").unwrap());
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env("PATH", path).stdin(Stdio::null());
    program
}

fn shown(output: &Output) -> String {
    format!("{output:?}")
}

/// Each member locks.
async fn all_lock(urls: &[String]) {
    let mut lockers: Vec<Locker> = Vec::new();
    for url in urls {
        lockers.push(gaggle::open(url).await.unwrap_or_else(|error| panic!("{url}: {error}")));
    }
    for locker in &lockers {
        tokio::time::timeout(Duration::from_secs(20), locker.ready()).await.unwrap().unwrap();
        locker.lock("orders/42").await.unwrap().unlock().await.unwrap();
    }
    for locker in &lockers {
        locker.close().await;
    }
}

/// The URL with ports of loopback in place of these hosts; the first host is that of the member.
fn on_loopback(url: &str, hosts: &[(&str, u16)], own: u16) -> String {
    let url = url.replacen("0.0.0.0:7001", &format!("127.0.0.1:{own}"), 1);
    hosts.iter().fold(url, |url, (host, port)| {
        let (host, here) = (format!("@{host}:7001"), format!("@127.0.0.1:{port}"));
        assert!(url.contains(&host), "{host} is not in {url}");
        url.replace(&host, &here)
    })
}

/// A process of the test, which ends with it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_the_compose_file_work_together() {
    // A directory that is removed at the end; its own authority gives way to that of the file.
    let (compose, keys) = (file("compose.yaml"), Certificates::new());
    for own in ["ca.pem", "ca-key.pem"] {
        fs::remove_file(keys.path(own)).unwrap();
    }
    let directory = keys.path("").to_str().unwrap().to_owned();
    let here = |text: &str| text.replace("/keys/", &directory).replace("999:999", &user());
    let makes = service(&compose, "keys");
    let command: Vec<String> =
        [value::<Vec<String>>(makes, "entrypoint:"), value(makes, "command:")].concat();
    let command: Vec<String> = command.iter().map(|word| here(word)).collect();
    // The second start leaves the keys as they are.
    for _ in 0..2 {
        let made = program(&command).current_dir(&directory).output().unwrap();
        assert!(made.status.success(), "{}", shown(&made));
    }

    let hosts = [("a", free_port()), ("b", free_port()), ("c", free_port())];
    let urls = hosts.map(|(name, port)| {
        let url: String = value(service(&compose, name), "GAGGLE_URL:");
        on_loopback(&here(&url), &hosts, port)
    });
    all_lock(&urls).await;

    let port = free_port();
    let command: Vec<String> = value(service(&compose, "redis"), "command:");
    let is_port = |word: &String| word == "6379";
    assert_eq!(command.iter().filter(|word| is_port(word)).count(), 1);
    let place = |word: String| if is_port(&word) { port.to_string() } else { here(&word) };
    let mut command: Vec<String> = command.into_iter().map(place).collect();
    command[0] = redis_program().into_string().unwrap();
    let server = program(&command).current_dir(&directory).stdout(Stdio::null()).spawn();
    let _server = Server(server.unwrap());
    let report = service(&compose, "report");
    let url = here(&value::<String>(report, "GAGGLE_URL:"));
    let url = url.replacen("redis:6379", &format!("127.0.0.1:{port}"), 1);
    let mut command: Vec<String> = value(report, "command:");
    *command.last_mut().unwrap() = "true".into();
    let run = || program(&command).env("GAGGLE_URL", &url).output().unwrap();
    // The first one waits for the server, and `--at-least` keeps its key.
    for code in [0, 124] {
        let ran = run();
        assert_eq!(ran.status.code(), Some(code), "{}", shown(&ran));
    }
    // Only with a certificate of the authority.
    let (url, _) = url.split_once("&tls_cert=").unwrap();
    let name = "&tls_name=redis.member.orders.gaggle";
    let refused = program(&command).env("GAGGLE_URL", format!("{url}{name}")).output().unwrap();
    assert_eq!(refused.status.code(), Some(122), "{}", shown(&refused));
    assert!(shown(&refused).to_lowercase().contains("certificate"), "{}", shown(&refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_of_the_statefulset_serves_each_pod() {
    let (manifest, files) = (file("statefulset.yaml"), Certificates::new());
    let secret = files.path("secret");
    let made = program(&["gaggle".into(), "secret".into(), secret.display().to_string()]).output();
    assert!(made.as_ref().unwrap().status.success(), "{made:?}");
    assert!(manifest.contains("\n  replicas: 3\n") && manifest.contains("containerPort: 7001"));
    let (_, env) = manifest.split_once("- name: GAGGLE_URL").unwrap();
    let url = value::<String>(env, "value:");
    let url = url.replace("/etc/gaggle/secret", secret.to_str().unwrap());
    let pods = ["app-0", "app-1", "app-2"];
    let hosts = pods.map(|pod| (format!("{pod}.app"), free_port()));
    let hosts = hosts.each_ref().map(|(host, port)| (host.as_str(), *port));
    let urls: Vec<String> = pods
        .iter()
        .zip(hosts)
        .map(|(pod, (_, port))| on_loopback(&url.replace("$(POD_NAME)", pod), &hosts, port))
        .collect();
    all_lock(&urls).await;
}
