//! The scripts on a server of the test's own, sent as the strategy sends them.

use redis::{Value, aio::MultiplexedConnection};

use super::redis_support::Server;

pub(super) const SETTLE: &str = include_str!("../../src/redis/settle.lua");
pub(super) const LOCK: &str = include_str!("../../src/redis/lock.lua");
pub(super) const UNLOCK: &str = include_str!("../../src/redis/unlock.lua");
pub(super) const EXTEND: &str = include_str!("../../src/redis/extend.lua");
pub(super) const POLL: &str = include_str!("../../src/redis/poll.lua");

pub(super) const NAMES: [&str; 6] =
    ["ns:{b0}:t", "ns:{b0}:x", "ns:{b0}:l:k", "ns:{b0}:f:k", "ns:{b0}:a:k", "ns:{b0}:g:k"];
pub(super) const TOKENS: &str = NAMES[0];
pub(super) const MEMORY: &str = NAMES[1];
pub(super) const HOLDER: &str = NAMES[2];
pub(super) const QUEUE: &str = NAMES[3];
pub(super) const WAITERS: &str = NAMES[4];
pub(super) const NONCE_MEMORY: i64 = 10_000;
/// No LOCK is too old.
pub(super) const NEVER: &str = "9000000000000000";

pub(super) struct Scripts {
    pub(super) server: Server,
    pub(super) connection: MultiplexedConnection,
}

impl Scripts {
    pub(super) async fn start() -> Self {
        let server = Server::start().await;
        let connection = server.connection().await;
        Self { server, connection }
    }

    /// Runs a script as process `p`, and returns its words.
    pub(super) async fn run(
        &mut self,
        script: &str,
        process: u8,
        arguments: &[&str],
    ) -> Vec<String> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script.replace("-- include settle.lua\n", SETTLE)).arg(NAMES.len()).arg(&NAMES);
        cmd.arg(format!("{process:032x}")).arg(format!("{NONCE_MEMORY} 0 3000 100 100 ns:p:"));
        let reply: Value = cmd.arg(arguments).query_async(&mut self.connection).await.unwrap();
        let mut words = Vec::new();
        flatten(&reply, &mut words);
        words
    }

    /// A LOCK that waits for `wait` ms; `copies` of it may be under way.
    pub(super) async fn lock(
        &mut self,
        nonce: u8,
        duration: u64,
        wait: i64,
        copies: bool,
    ) -> Vec<String> {
        let (nonce, duration, wait) = (hex(nonce), duration.to_string(), wait.to_string());
        let arguments = [NEVER, &nonce, &duration, &wait, flag(copies), "1 host -"];
        self.run(LOCK, 1, &arguments).await
    }

    pub(super) async fn unlock(&mut self, nonce: u8, copies: bool) -> Vec<String> {
        self.run(UNLOCK, 1, &[&hex(nonce), flag(copies)]).await
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

pub(super) fn flatten(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Array(parts) => parts.iter().for_each(|part| flatten(part, words)),
        Value::Int(number) => words.push(number.to_string()),
        Value::BulkString(bytes) => words.push(String::from_utf8_lossy(bytes).into_owned()),
        other => panic!("{other:?}"),
    }
}

pub(super) fn hex(nonce: u8) -> String {
    format!("{nonce:032x}")
}

pub(super) fn flag(copies: bool) -> &'static str {
    if copies { "c" } else { "-" }
}
