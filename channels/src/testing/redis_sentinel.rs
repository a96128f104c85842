//! A Sentinel that a test starts and ends.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio, id},
};

use super::{free_port, redis_program};

/// The name that every [`RedisSentinel`] has for its master.
const MASTER: &str = "main";

/// A Sentinel of a test's own, in a directory of its own, which watches one master by the name
/// `main`. Two of them agree on a failover. Dropping it ends that process and no other.
#[derive(Debug)]
pub struct RedisSentinel {
    process: Child,
    directory: PathBuf,
    port: u16,
    tls_port: Option<u16>,
}

impl RedisSentinel {
    /// Starts one for the master at this port. It presumes a master dead that is silent for 500 ms.
    ///
    /// # Panics
    ///
    /// If `redis-server` cannot be started.
    #[must_use]
    pub fn start(master: u16) -> Self {
        Self::start_with(master, None, "")
    }

    /// Starts one that reaches the master and other Sentinels over TLS, and serves TLS. These
    /// arguments are what a [server](super::tls_arguments) takes.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn start_tls(master: u16, certificates: &super::Certificates) -> Self {
        let port = free_port();
        let arguments = super::tls_arguments(certificates, port);
        let pairs = arguments.chunks(2).map(|pair| pair.join(" "));
        let settings: Vec<_> = pairs.map(|pair| pair.trim_start_matches("--").to_owned()).collect();
        Self::start_with(master, Some(port), &settings.join("\n"))
    }

    fn start_with(master: u16, tls_port: Option<u16>, settings: &str) -> Self {
        let port = free_port();
        let directory = std::env::temp_dir().join(format!("gaggle-sentinel-{}-{port}", id()));
        fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let file = directory.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n{settings}\n\
             sentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER} 500\n\
             sentinel failover-timeout {MASTER} 3000\n",
            directory.display(),
        );
        fs::write(&file, text).expect("the temporary directory can be written");
        let mut command = Command::new(redis_program());
        command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().expect("redis-server is installed: see ./test");
        Self { process, directory, port, tls_port }
    }

    /// Its port in plain text.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address for its clients: over TLS if it was started so.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.tls_port.unwrap_or(self.port))
    }
}

impl Drop for RedisSentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
