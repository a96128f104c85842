//! Goal: the scripts do what a lock table does (contract, rules 1, 4, 5, 6 and 11), in any order of
//! commands.
//! Method: random commands, one after the other, from three processes on two keys, sent to a
//! `redis-server` of the test's own by the scripts themselves, and compared with a model of some
//! forty lines. Leases are long, except where a command ends one by hand (`PEXPIRE 1`), so that time
//! decides nothing by chance.
//!
//! A failure prints its commands; `PROPTEST_RNG_SEED=<seed> cargo test -p gaggle-strategies --test
//! redis_model` draws the same ones again, and `PROPTEST_CASES` draws more.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "redis_model/model.rs"]
mod model;
mod redis_support;

use std::collections::BTreeSet;

use model::{Command, Model, N, commands, process_of};
use proptest::{prelude::*, test_runner::TestRunner};
use redis::{Value, aio::MultiplexedConnection};
use redis_support::Server;

const SETTLE: &str = include_str!("../src/redis/settle.lua");
const LOCK: &str = include_str!("../src/redis/lock.lua");
const UNLOCK: &str = include_str!("../src/redis/unlock.lua");
const EXTEND: &str = include_str!("../src/redis/extend.lua");
const POLL: &str = include_str!("../src/redis/poll.lua");

/// The server, and who hears what it publishes.
struct Real {
    connection: MultiplexedConnection,
    run: u32,
}

impl Real {
    fn names(&self, key: u8) -> [String; 6] {
        let prefix = format!("run{}:{{b0}}:", self.run);
        let own = |part: &str| format!("{prefix}{part}:k{key}");
        [format!("{prefix}t"), format!("{prefix}x"), own("l"), own("f"), own("a"), own("g")]
    }

    async fn eval(&mut self, script: &str, nonce: N, arguments: &[String]) -> Value {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script.replace("-- include settle.lua\n", SETTLE))
            .arg(6)
            .arg(&self.names(nonce % 2));
        cmd.arg(process(process_of(nonce)))
            .arg(format!("600000 0 600000 100 100 run{}:p:", self.run));
        cmd.arg(arguments).query_async(&mut self.connection).await.unwrap()
    }

    async fn command<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut cmd = redis::Cmd::new();
        cmd.arg(words).query_async(&mut self.connection).await.unwrap()
    }

    /// Runs a command; returns what the model returns.
    async fn apply(&mut self, command: &Command) -> String {
        match *command {
            Command::Lock { nonce, waits, copies } => {
                let wait = if waits { "-1" } else { "0" };
                let late = "9000000000000000";
                let arguments = [late, &hex(nonce), "600000", wait, flag(copies), "1 host -"];
                let answer = self.eval(LOCK, nonce, &arguments.map(str::to_owned)).await;
                match &answer {
                    Value::Int(_) => "granted".into(),
                    Value::BulkString(_) => first_word(&answer),
                    answer => word(&parts(&parts(answer)[2])[0]),
                }
            }
            Command::Unlock { nonce, copies } => {
                let arguments = [hex(nonce), flag(copies).to_owned()];
                match self.eval(UNLOCK, nonce, &arguments).await {
                    Value::Int(_) => "held".into(),
                    answer @ Value::BulkString(_) => first_word(&answer),
                    answer => word(&parts(&answer)[2]),
                }
            }
            Command::Extend { nonce } => {
                let answer = self.eval(EXTEND, nonce, &[hex(nonce), "600000".into()]).await;
                word(&parts(&answer)[2])
            }
            Command::Poll { nonce } => {
                let answer = self.eval(POLL, nonce, &["1".into(), hex(nonce)]).await;
                let found = parts(&parts(&answer)[2]).to_vec();
                found.get(1).map_or_else(|| "waits".into(), |found| word(&parts(found)[1]))
            }
            Command::Expire { key } => {
                let [.., lock, _, _, _] = self.names(key);
                self.command::<Value>(&["DEL", &lock]).await;
                String::new()
            }
            Command::Silence { process: silent } => {
                for key in 0..2 {
                    let [.., waiters, _] = self.names(key);
                    let field = format!("@{}", process(silent));
                    self.command::<Value>(&["HDEL", &waiters, &field]).await;
                }
                String::new()
            }
        }
    }

    /// The token in the holder's value.
    async fn token(&mut self, key: u8) -> Option<u64> {
        let [_, _, lock, ..] = self.names(key);
        let value: Option<String> = self.command(&["GET", &lock]).await;
        value.map(|value| value.split(' ').nth(2).unwrap().parse().unwrap())
    }

    /// Who holds, who waits, and what is remembered.
    async fn state(&mut self) -> (Vec<(Option<String>, Vec<String>)>, BTreeSet<String>) {
        let (mut keys, mut remembered) = (Vec::new(), BTreeSet::new());
        for key in 0..2 {
            let [_, _, lock, queue, waiters, grant] = self.names(key);
            let holder: Option<String> = self.command(&["GET", &lock]).await;
            let holder = holder.map(|value| value[..32].to_owned());
            let waiting: Vec<String> = self.command(&["ZRANGE", &queue, "0", "-1"]).await;
            let there: bool = self.command(&["EXISTS", &waiters]).await;
            assert_eq!(there, !waiting.is_empty(), "the waiters' data live with the queue");
            // A grant from the queue that nobody has settled yet is remembered there.
            remembered.extend(self.command::<Option<String>>(&["GET", &grant]).await);
            keys.push((holder, waiting));
        }
        let [_, nonces, ..] = self.names(0);
        let ended: Vec<String> = self.command(&["ZRANGE", &nonces, "0", "-1"]).await;
        remembered.extend(ended);
        (keys, remembered)
    }
}

fn process(process: u8) -> String {
    format!("{process:032x}")
}

fn hex(nonce: N) -> String {
    format!("{:032x}", u32::from(nonce) + 100)
}

fn flag(copies: bool) -> &'static str {
    if copies { "c" } else { "-" }
}

fn parts(value: &Value) -> &[Value] {
    let Value::Array(parts) = value else { panic!("no array: {value:?}") };
    parts
}

fn word(value: &Value) -> String {
    let Value::BulkString(bytes) = value else { panic!("no word: {value:?}") };
    String::from_utf8(bytes.clone()).unwrap()
}

/// Of a short answer that is a text.
fn first_word(value: &Value) -> String {
    word(value).split(' ').next().unwrap().to_owned()
}

async fn compare(real: &mut Real, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    let (mut last_token, mut granted_last) = (0_u64, [0_u64; 2]);
    for (step, command) in commands.iter().enumerate() {
        let expected = model.apply(command);
        let got = real.apply(command).await;
        prop_assert_eq!(&got, expected, "step {}: {:?}", step, command);
        let (keys, remembered) = real.state().await;
        for (key, (holder, waiting)) in model.keys.iter().zip(keys) {
            prop_assert_eq!(holder, key.holder.map(|(nonce, _)| hex(nonce)), "step {}", step);
            let queue: Vec<_> = key.queue.iter().map(|(nonce, _)| hex(*nonce)).collect();
            prop_assert_eq!(waiting, queue, "step {}", step);
        }
        let expected: BTreeSet<_> = model.remembered.iter().map(|nonce| hex(*nonce)).collect();
        prop_assert_eq!(remembered, expected, "step {}", step);
        let [counter, ..] = real.names(0);
        let token: Option<u64> = real.command(&["GET", &counter]).await;
        let token = token.unwrap_or_default();
        let granted =
            !model.told.is_empty() || got == "granted" && !matches!(command, Command::Poll { .. });
        prop_assert_eq!(token > last_token, granted, "a token a grant; step {}", step);
        for key in 0..2 {
            let Some(of_holder) = real.token(key).await else { continue };
            let before = std::mem::replace(&mut granted_last[usize::from(key)], of_holder);
            prop_assert!(before <= of_holder && of_holder <= token, "tokens rise; step {step}");
            if model.told.iter().any(|nonce| nonce % 2 == key) {
                prop_assert!(before < of_holder, "another grant, another token; step {step}");
            }
        }
        last_token = token;
    }
    Ok(())
}

#[test]
fn the_scripts_agree_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    let connection = runtime.block_on(server.connection());
    let runs = std::cell::Cell::new(0);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&commands(), |commands| {
        runs.set(runs.get() + 1);
        let mut real = Real { connection: connection.clone(), run: runs.get() };
        runtime.block_on(compare(&mut real, &commands))
    });
    if let Err(error) = result {
        panic!("{error}\n{error:?}");
    }
}
