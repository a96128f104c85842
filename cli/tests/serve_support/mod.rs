//! `gaggle serve` as a process, and requests to it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails by a panic")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::run_support::tool;

pub(crate) const ANY_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// A server, which is killed with its test.
pub(crate) struct Server {
    pub(crate) process: Child,
    /// The URL that it has printed.
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = tool(&["serve"]);
        command.args(arguments);
        Self::start_command(command)
    }

    /// Starts this command of `gaggle serve`.
    pub(crate) fn start_command(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(url.starts_with("http"), "{line:?}");
        Self { process, url }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.split("//").nth(1).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// The status and the body of the response to a request.
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(70))).unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let head = format!("{head}Prefer: wait=60\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{reply:?}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub(crate) fn claim(&self, resource: &str) -> (u16, String) {
        let body = format!(r#"{{"resource":"{resource}","ttl":10}}"#);
        self.request("POST", "/v1/claims/", &body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
