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

    /// Runs a script as process `p`, and returns its words.
    pub(super) async fn run(
        &mut self,
        script: &str,
        process: u8,
        arguments: &[&str],
    ) -> Vec<String> {
        let reply = self.try_run(script, process, arguments).await.unwrap();
        let mut words = Vec::new();
        flatten(&reply, &mut words);
        words
    }

    pub(super) async fn try_run(
        &mut self,
        script: &str,
        process: u8,
        arguments: &[&str],
    ) -> RedisResult<Value> {
        let (_, text) = scripts().into_iter().find(|(name, _)| *name == script).unwrap();
        let settings = format!("{} 3000 {} {NONCES_MAX} ns:p:", self.memory, self.waiters_max);
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(text).arg(NAMES.len()).arg(&NAMES).arg(format!("{process:032x}")).arg(settings);
        cmd.arg(arguments).query_async(&mut self.connection).await
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
        self.run(UNLOCK, 1, &[&hex(nonce), flag(copies), token]).await
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

pub(super) fn flatten(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Array(parts) => parts.iter().for_each(|part| flatten(part, words)),
        Value::Int(number) => words.push(number.to_string()),
        Value::BulkString(bytes) => {
            words.extend(String::from_utf8_lossy(bytes).split([' ', '\n']).map(str::to_owned));
        }
        Value::Nil => words.push("nil".to_owned()),
        other => panic!("{other:?}"),
    }
}

pub(super) fn hex(nonce: u8) -> String {
    format!("{nonce:032x}")
}

pub(super) fn flag(copies: bool) -> &'static str {
    if copies { "c" } else { "-" }
}
