//! A Redis server that a test starts and ends.

use std::{
    ffi::OsString,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::Duration,
};

#[cfg(feature = "tls")]
use super::Certificates;
use super::free_port;

/// The program that a test starts as its Redis: `redis-server`, or what the environment variable
/// `GAGGLE_REDIS_SERVER` names, such as `valkey-server`.
#[must_use]
pub fn redis_program() -> OsString {
    std::env::var_os("GAGGLE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// The arguments of a [`redis_program`] that serves TLS on `port`, also to others of its kind, with
/// the certificate `server` of these. It is issued for `localhost` if it is not there.
#[cfg(feature = "tls")]
#[must_use]
pub fn tls_arguments(certificates: &Certificates, port: u16) -> Vec<String> {
    if !certificates.path("server.pem").exists() {
        certificates.issue("server", "localhost");
    }
    let files = [("cert", "server.pem"), ("key", "server-key.pem"), ("ca-cert", "ca.pem")];
    let files = files.map(|(option, file)| {
        [format!("--tls-{option}-file"), certificates.path(file).display().to_string()]
    });
    let port = port.to_string();
    let others =
        [["--tls-port", &*port], ["--tls-auth-clients", "no"], ["--tls-replication", "yes"]];
    others.into_iter().flatten().map(str::to_owned).chain(files.into_iter().flatten()).collect()
}

static SERVERS: AtomicU32 = AtomicU32::new(0);

/// A [`redis_program`] of a test's own: on a free loopback port, in a directory of its own, without
/// persistence. Dropping it ends that process and no other.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    directory: PathBuf,
    /// Of its command line, beside the usual ones.
    arguments: Vec<String>,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts one, and returns when it replies.
    ///
    /// # Panics
    ///
    /// If `redis-server` is not installed or does not start: a test that needs it fails.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with more arguments.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(arguments: &[&str]) -> Self {
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let own = format!("gaggle-redis-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(own);
        fs::create_dir_all(&directory).expect("the temporary directory can be written");
        // Another process may take a free port before redis does: then the next one.
        for _ in 0..20 {
            let mut server = Self {
                port: free_port(),
                directory: directory.clone(),
                arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
                process: None,
            };
            if server.try_restart() {
                return server;
            }
            std::mem::forget(server);
        }
        panic!("redis-server does not start: is it installed? see ./test");
    }

    /// As [`start`](Self::start), and over TLS on `tls_port` with a certificate for `localhost`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn start_tls(certificates: &Certificates, tls_port: u16) -> Self {
        let arguments = tls_arguments(certificates, tls_port);
        Self::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// `redis://127.0.0.1:PORT/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path of its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// Its process id, while it runs: for signals.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Kills it (`kill -9`): connections break, and its memory is lost.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops it if it runs, and starts it on the same port, empty.
    ///
    /// # Panics
    ///
    /// If it does not start again.
    pub fn restart(&mut self) {
        self.stop();
        for _ in 0..50 {
            if self.try_restart() {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("redis-server does not start again on port {}", self.port);
    }

    fn try_restart(&mut self) -> bool {
        let port = self.port.to_string();
        let directory = self.directory.to_string_lossy().into_owned();
        let socket = self.socket().to_string_lossy().into_owned();
        let arguments = ["--port", &port, "--bind", "127.0.0.1", "--dir", &directory];
        let volatile = ["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"];
        let mut command = Command::new(redis_program());
        command.args(arguments).args(["--unixsocket", &socket]).args(volatile);
        command.args(&self.arguments).stdin(Stdio::null());
        let Ok(process) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            return false;
        };
        self.process = Some(process);
        for _ in 0..500 {
            if self.replies() {
                return true;
            }
            let process = self.process.as_mut().expect("it was just started");
            if !matches!(process.try_wait(), Ok(None)) {
                self.process = None;
                return false;
            }
            sleep(Duration::from_millis(10));
        }
        self.stop();
        false
    }

    fn replies(&self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
            return false;
        };
        let mut reply = [0; 5];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut reply).is_ok()
            && reply == *b"+PONG"
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
