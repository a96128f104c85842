//! Servers of this run alone: on free loopback ports, in separate directories, in memory where
//! there is one to write to.
//!
//! Dropping one ends that process and no other, and removes its directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use gaggle_fixtures::free_port;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{sleep, timeout};

use crate::contenders::BoxError;

static DIRECTORIES: AtomicU32 = AtomicU32::new(0);
/// How long a server may take until it replies.
const START_WITHIN: Duration = Duration::from_secs(30);
/// How long a server may take to end after SIGTERM.
const STOP_WITHIN_MS: u64 = 5_000;

/// A directory that is removed with its owner. On tmpfs, because the other contenders are volatile
/// too.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(what: &str) -> Result<Self, BoxError> {
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("gaggle-competitors-{what}-{}-{number}", std::process::id());
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with its owner.
pub(crate) struct Server {
    process: Child,
    /// Asked first: PostgreSQL leaves shared memory behind when it is killed.
    asked: Option<Signal>,
    _directory: Directory,
}

impl Server {
    fn spawn(mut command: Command, directory: Directory) -> Result<Self, BoxError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: command.spawn()?, asked: None, _directory: directory })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(signal) = self.asked
            && let Ok(process) = i32::try_from(self.process.id())
            && let Some(process) = Pid::from_raw(process)
            && kill_process(process, signal).is_ok()
        {
            for _ in 0..STOP_WITHIN_MS / 10 {
                if !matches!(self.process.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A PostgreSQL, without fsync: nothing of it outlives the run.
pub(crate) struct Postgres {
    pub(crate) url: String,
    _server: Server,
}

impl Postgres {
    pub(crate) async fn start() -> Result<Self, BoxError> {
        let directory = Directory::new("postgres")?;
        let data = directory.0.join("data").to_string_lossy().into_owned();
        let root = is_root();
        if root {
            run(Command::new("chown").arg("postgres:postgres").arg(&directory.0))?;
        }
        let init = ["-D", &data, "-U", "postgres", "-A", "trust", "-N"];
        run(as_postgres(root, &postgres_tool("initdb")).args(init))?;
        let port = free_port();
        let sockets = directory.0.to_string_lossy().into_owned();
        let mut command = as_postgres(root, &postgres_tool("postgres"));
        command.args(["-D", &data, "-p", &port.to_string(), "-h", "127.0.0.1", "-k", &sockets]);
        command.args(["-c", "max_connections=200", "-c", "fsync=off"]);
        let mut server = Server::spawn(command, directory)?;
        // A fast shutdown.
        server.asked = Some(Signal::INT);
        let url = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        until_it_replies("postgres", || async {
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_ok()
        })
        .await?;
        Ok(Self { url, _server: server })
    }
}

/// PostgreSQL refuses to run as root.
fn as_postgres(root: bool, program: &str) -> Command {
    if !root {
        return Command::new(program);
    }
    // Becomes the program, so that the process started is the process to end.
    let mut command = Command::new("setpriv");
    let who =
        ["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--pdeathsig", "KILL"];
    command.args(who).arg(program).current_dir("/");
    command
}

/// Debian keeps them off the path.
pub(crate) fn postgres_tool(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut tools: Vec<PathBuf> = versions.map(|at| at.path().join("bin").join(name)).collect();
    tools.sort();
    let latest = tools.into_iter().rev().find(|tool| tool.exists());
    latest.map_or_else(|| name.to_owned(), |tool| tool.to_string_lossy().into_owned())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|about| std::os::unix::fs::MetadataExt::uid(&about) == 0)
}

fn run(command: &mut Command) -> Result<(), BoxError> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// A `gaggle serve` at each of these members.
pub(crate) struct Serve {
    pub(crate) urls: Vec<String>,
    _servers: Vec<Server>,
}

impl Serve {
    pub(crate) async fn start(gaggle: &Path, members: &[String]) -> Result<Self, BoxError> {
        let (mut urls, mut servers) = (Vec::new(), Vec::new());
        for member in members {
            let listen = format!("127.0.0.1:{}", free_port());
            let mut command = Command::new(gaggle);
            command.args(["serve", "--url", member, "--listen", &listen]);
            servers.push(Server::spawn(command, Directory::new("serve")?)?);
            urls.push(format!("http://{listen}"));
        }
        for url in &urls {
            until_it_replies("gaggle serve", || async {
                match gaggle::open(url).await {
                    Ok(locker) => locker.lock("ready").await.is_ok(),
                    Err(_) => false,
                }
            })
            .await?;
        }
        Ok(Self { urls, _servers: servers })
    }
}

/// An etcd of one node or three.
pub(crate) struct Etcd {
    pub(crate) endpoints: Vec<String>,
    _servers: Vec<Server>,
}

impl Etcd {
    pub(crate) async fn start(nodes: usize) -> Result<Self, BoxError> {
        let ports: Vec<(u16, u16)> = (0..nodes).map(|_| (free_port(), free_port())).collect();
        let url = |port| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> =
            ports.iter().enumerate().map(|(n, (_, peer))| format!("n{n}={}", url(*peer))).collect();
        let mut servers = Vec::new();
        for (node, (client, peer)) in ports.iter().enumerate() {
            let directory = Directory::new("etcd")?;
            let mut command = Command::new("etcd");
            command.arg("--name").arg(format!("n{node}"));
            command.arg("--data-dir").arg(directory.0.join("data"));
            for (option, port) in [("client", client), ("peer", peer)] {
                command.arg(format!("--listen-{option}-urls")).arg(url(*port));
            }
            command.arg("--advertise-client-urls").arg(url(*client));
            command.arg("--initial-advertise-peer-urls").arg(url(*peer));
            command.arg("--initial-cluster").arg(cluster.join(","));
            servers.push(Server::spawn(command, directory)?);
        }
        let endpoints: Vec<String> = ports.iter().map(|(client, _)| url(*client)).collect();
        until_it_replies("etcd", || async {
            let Ok(mut client) = etcd_client::Client::connect(&endpoints, None).await else {
                return false;
            };
            client.put("ready", "1", None).await.is_ok()
        })
        .await?;
        Ok(Self { endpoints, _servers: servers })
    }
}

async fn until_it_replies<F: Future<Output = bool>>(
    what: &str,
    mut replies: impl FnMut() -> F,
) -> Result<(), BoxError> {
    let ready = async {
        while !matches!(timeout(Duration::from_secs(2), replies()).await, Ok(true)) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let late = |_| BoxError::from(format!("{what} does not reply within {START_WITHIN:?}"));
    timeout(START_WITHIN, ready).await.map_err(late)
}
