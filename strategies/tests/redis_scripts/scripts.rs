//! The scripts on a server of the test's own, sent as the strategy sends them.

use gaggle_strategies::redis::scripts;
use redis::{RedisResult, Value, aio::MultiplexedConnection};

use super::redis_support::Server;

pub(super) const LOCK: &str = "lock";
pub(super) const UNLOCK: &str = "unlock";
pub(super) const EXTEND: &str = "extend";
pub(super) const POLL: &str = "poll";
pub(super) const INSPECT: &str = "inspect";

pub(super) const NAMES: [&str; 6] =
    ["ns:{b0}:t", "ns:{b0}:x", "ns:{b0}:l:k", "ns:{b0}:f:k", "ns:{b0}:a:k", "ns:{b0}:g:k"];
pub(super) const TOKENS: &str = NAMES[0];
pub(super) const MEMORY: &str = NAMES[1];
pub(super) const HOLDER: &str = NAMES[2];
pub(super) const QUEUE: &str = NAMES[3];
pub(super) const WAITERS: &str = NAMES[4];
pub(super) const GRANT: &str = NAMES[5];
pub(super) const NONCE_MEMORY: i64 = 10_000;
/// In a bucket.
pub(super) const NONCES_MAX: i64 = 100;
/// No LOCK is too old.
pub(super) const NEVER: &str = "9000000000000000";

pub(super) struct Scripts {
    pub(super) server: Server,
    pub(super) connection: MultiplexedConnection,
    /// How long processes remember nonces (ms), and how many may wait.
    pub(super) memory: i64,
    pub(super) waiters_max: u32,
}

impl Scripts {
    pub(super) async fn start() -> Self {
        let server = Server::start().await;
        let connection = server.connection().await;
        Self { server, connection, memory: NONCE_MEMORY, waiters_max: 100 }
    }

    /// Runs a script with one request as process `p`. Returns the words of the time, of the result,
    /// and of the grants to the process.
    pub(super) async fn run(
        &mut self,
        script: &str,
        process: u8,
        arguments: &[&str],
    ) -> Vec<String> {
        let reply = self.try_run(script, process, arguments).await.unwrap();
        let mut lines: Vec<&str> = reply.lines().collect();
        lines.swap(0, 1);
        lines.join(" ").split([' ', ',']).map(str::to_owned).collect()
    }

    /// The same; an error of the request is one of the script.
    pub(super) async fn try_run(
        &mut self,
        script: &str,
        process: u8,
        arguments: &[&str],
    ) -> RedisResult<String> {
        let reply = self.run_list(script, process, &[("k", arguments)]).await?;
        if reply.starts_with('-') {
            let error = reply.replacen('\n', "\r\n", 1);
            redis::parse_redis_value(error.as_bytes())?.extract_error()?;
        }
        Ok(reply)
    }

    /// Runs a script with a list of requests: the key and the arguments of each.
    pub(super) async fn run_list(
        &mut self,
        script: &str,
        process: u8,
        list: &[(&str, &[&str])],
    ) -> RedisResult<String> {
        let (_, text) = scripts().into_iter().find(|(name, _)| *name == script).unwrap();
        let Self { memory, waiters_max, .. } = self;
        let settings = format!("{process:032x} {memory} 3000 {waiters_max} {NONCES_MAX} ns:p:");
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(text).arg(NAMES.len() * list.len());
        for (key, _) in list {
            let of_key = |name: &str| name.strip_suffix('k').map(|part| format!("{part}{key}"));
            let names = NAMES.map(|name| of_key(name).unwrap_or_else(|| name.to_owned()));
            cmd.arg(&names);
        }
        cmd.arg(settings);
        list.iter().for_each(|(_, arguments)| _ = cmd.arg(*arguments));
        cmd.query_async(&mut self.connection).await
    }

    /// A LOCK that waits for `wait` ms; `copies` of it may be in flight.
    pub(super) async fn lock(
        &mut self,
        nonce: u8,
        duration: u64,
        wait: i64,
        copies: bool,
    ) -> Vec<String> {
        self.lock_as(1, nonce, duration, wait, copies).await
    }

    pub(super) async fn lock_as(
        &mut self,
        process: u8,
        nonce: u8,
        duration: u64,
        wait: i64,
        copies: bool,
    ) -> Vec<String> {
        let (nonce, duration, wait) = (hex(nonce), duration.to_string(), wait.to_string());
        let arguments = [NEVER, &nonce, &duration, &wait, flag(copies), "1 host -"];
        self.run(LOCK, process, &arguments).await
    }

    pub(super) async fn unlock(&mut self, nonce: u8, copies: bool) -> Vec<String> {
        let value: Option<String> = self.server.command(&["GET", HOLDER]).await;
        let token = value.as_ref().and_then(|value| value.split(' ').nth(2)).unwrap_or("0");
        self.run(UNLOCK, 1, &[&hex(nonce), token, flag(copies), ""]).await
    }

    pub(super) async fn extend(&mut self, process: u8, nonce: u8, duration: u64) -> Vec<String> {
        let token = self.tokens().await.0.to_string();
        self.run(EXTEND, process, &[&hex(nonce), &duration.to_string(), &token]).await
    }

    /// Ends the lease of the key.
    pub(super) async fn expire(&self) {
        let _: Value = self.server.command(&["DEL", HOLDER]).await;
    }

    pub(super) async fn number(&self, words: &[&str]) -> i64 {
        self.server.command::<Option<i64>>(words).await.unwrap_or(-1)
    }

    pub(super) async fn holder(&self) -> Option<String> {
        let value: Option<String> = self.server.command(&["GET", HOLDER]).await;
        value.map(|value| value[..32].to_owned())
    }

    /// The token in the holder's value, and the counter.
    pub(super) async fn tokens(&self) -> (i64, i64) {
        let value: String = self.server.command(&["GET", HOLDER]).await;
        let token = value.split(' ').nth(2).unwrap().parse().unwrap();
        (token, self.number(&["GET", TOKENS]).await)
    }

    /// For how many milliseconds more anything is remembered.
    pub(super) async fn remembered_for(&self) -> i64 {
        self.number(&["PTTL", MEMORY]).await
    }
}

pub(super) fn hex(nonce: u8) -> String {
    format!("{nonce:032x}")
}

pub(super) fn flag(copies: bool) -> &'static str {
    if copies { "c" } else { "-" }
}
