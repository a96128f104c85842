//! Goal: the scripts agree with the lock table (contract, rules 1, 4, 5, 6, 7 and 11), in any order
//! of commands and over any time.
//! Method: random commands of three processes on two keys run as scripts on the test's own
//! `redis-server`, and are compared with the reference table. Time passes by a script that moves
//! every end and every stamp in Redis into the past.
//!
//! A failure prints its commands; `PROPTEST_RNG_SEED=<seed> cargo test -p gaggle-strategies --test
//! redis_model` draws the same ones again, and `PROPTEST_CASES` draws more.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "redis_model/model.rs"]
mod model;
mod redis_support;

use gaggle_strategies::{lock_table::Wait, testing::redis_scripts};
use model::{
    Command, MEMORY_MS, Model, N, SLACK_MS, commands, key, lease_ms, number, of, process_of, wait,
};
use proptest::{prelude::*, test_runner::TestRunner};
use redis::{Value, aio::MultiplexedConnection};
use redis_support::Server;

const NAMES: [&str; 10] = [
    "ns:{b0}:t",
    "ns:{b0}:x",
    "ns:{b0}:l:k0",
    "ns:{b0}:f:k0",
    "ns:{b0}:a:k0",
    "ns:{b0}:g:k0",
    "ns:{b0}:l:k1",
    "ns:{b0}:f:k1",
    "ns:{b0}:a:k1",
    "ns:{b0}:g:k1",
];

/// Moves ARGV[1] ms of time into the past of everything.
const PASS: &str = "
local ms = tonumber(ARGV[1])
local function earlier(text, unit) return string.format('%.0f', text - ms * unit) end
for number, name in ipairs(KEYS) do
  local left = redis.call('PTTL', name)
  local kind = redis.call('TYPE', name).ok
  if left > 0 and left <= ms then
    redis.call('DEL', name)
  elseif kind ~= 'none' then
    if number == 2 then
      for _, nonce in ipairs(redis.call('ZRANGE', name, 0, -1)) do
        redis.call('ZINCRBY', name, -ms, nonce)
      end
    elseif kind == 'hash' then
      local fields = redis.call('HGETALL', name)
      for at = 1, #fields, 2 do
        local field, value = fields[at], fields[at + 1]
        local head, enqueued, tail = string.match(value, '^(%S+ %d+ )(%d+)( .*)$')
        if field == '#r' then
          value = string.gsub(value, '^%d+', function(heard) return earlier(heard, 1) end)
        elseif string.sub(field, 1, 1) == '@' then
          value = earlier(value, 1)
        elseif string.sub(field, 1, 1) ~= '#' then
          value = head .. earlier(enqueued, 1000) .. tail
        end
        redis.call('HSET', name, field, value)
      end
    elseif string.find(name, ':l:') then
      local value = redis.call('GET', name)
      local head, enqueued, granted, tail = string.match(value, '^(%x+ %S %d+ )(%d+) (%d+)( .*)$')
      value = head .. earlier(enqueued, 1000) .. ' ' .. earlier(granted, 1000) .. tail
      redis.call('SET', name, value, 'KEEPTTL')
    end
    if left > 0 then
      redis.call('PEXPIRE', name, left - ms)
    end
  end
end";

struct Real {
    connection: MultiplexedConnection,
}

impl Real {
    /// Runs a script as the process with this number.
    async fn run(&mut self, verb: &str, of_key: N, process: u64, arguments: &[String]) -> Value {
        let (_, text) = redis_scripts().into_iter().find(|(name, _)| *name == verb).unwrap();
        let at = 2 + 4 * usize::from(of_key % 2);
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(text).arg(6).arg(&NAMES[..2]).arg(&NAMES[at..at + 4]);
        // No process is ever silent: redis_scripts.rs and redis_standstill.rs check silence.
        cmd.arg(format!("{process:032x}")).arg(format!("{MEMORY_MS} 0 100000000 100 100 ns:p:"));
        cmd.arg(arguments).query_async(&mut self.connection).await.unwrap()
    }

    async fn command<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut cmd = redis::Cmd::new();
        cmd.arg(words).query_async(&mut self.connection).await.unwrap()
    }

    /// Runs a command; returns one of the model's words.
    async fn apply(&mut self, model: &Model, command: &Command) -> String {
        match *command {
            Command::Lock { nonce, copies } => {
                let wait = match wait(nonce) {
                    Wait::No => "0".to_owned(),
                    Wait::Forever => "-1".to_owned(),
                    Wait::Ms(ms) => ms.to_string(),
                };
                let lease = lease_ms(nonce).to_string();
                let late = "9000000000000000".to_owned();
                let arguments =
                    [late, hex(nonce), lease, wait, flag(copies), "1 host -".to_owned()];
                let process = process_of(nonce);
                match &self.run("lock", nonce, process, &arguments).await {
                    Value::Int(_) => "granted".into(),
                    answer @ Value::BulkString(_) => first_word(answer),
                    answer => word(&parts(&parts(answer)[2])[0]),
                }
            }
            Command::Unlock { nonce, copies } => {
                let process = process_of(nonce);
                let arguments = [hex(nonce), flag(copies)];
                match self.run("unlock", nonce, process, &arguments).await {
                    Value::Int(_) => "held".into(),
                    answer @ Value::BulkString(_) => first_word(&answer),
                    answer => word(&parts(&answer)[2]),
                }
            }
            Command::Extend { nonce } => {
                let process = process_of(nonce);
                let arguments = [hex(nonce), lease_ms(nonce).to_string()];
                word(&parts(&self.run("extend", nonce, process, &arguments).await)[2])
            }
            Command::Poll { nonce } => {
                let process = process_of(nonce);
                let answer = self.run("poll", nonce, process, &["1".into(), hex(nonce)]).await;
                let found = parts(&parts(&answer)[2]).to_vec();
                let Some(found) = found.get(1) else { return "waits".into() };
                let found = parts(found);
                if let [_, _, _, _, _, Value::Int(lease)] = found {
                    let held = model.table.holder(&key(nonce)).unwrap();
                    let expected = held.expires_at.since(held.granted_at);
                    assert!(lease.unsigned_abs().abs_diff(expected) < SLACK_MS, "{lease}");
                }
                word(&found[1])
            }
            Command::Pass { hundreds } => {
                let mut cmd = redis::cmd("EVAL");
                cmd.arg(PASS).arg(NAMES.len()).arg(&NAMES).arg(100_000 * hundreds);
                cmd.query_async::<Value>(&mut self.connection).await.unwrap();
                String::new()
            }
        }
    }

    /// The holder of a key with its token and remaining time (ms), and the waiters.
    async fn state(&mut self, of_key: N) -> (Option<(N, u64, u64)>, Vec<N>) {
        let inspected = self.run("inspect", of_key, 99, &[]).await;
        let holder = match &parts(&inspected)[2..] {
            [value, Value::Int(left), Value::Int(_)] => {
                let value = word(value);
                let words: Vec<_> = value.split(' ').collect();
                Some((from_hex(words[0]), words[2].parse().unwrap(), left.unsigned_abs()))
            }
            _ => None,
        };
        let queue = format!("ns:{{b0}}:f:k{of_key}");
        let waiting: Vec<String> = self.command(&["ZRANGE", &queue, "0", "-1"]).await;
        let asked = format!("ns:{{b0}}:a:k{of_key}");
        let there: bool = self.command(&["EXISTS", &asked]).await;
        assert_eq!(there, !waiting.is_empty(), "the waiters' data live with the queue");
        (holder, waiting.iter().map(|nonce| from_hex(nonce)).collect())
    }
}

fn hex(nonce: N) -> String {
    of(nonce).to_string()
}

fn from_hex(hex: &str) -> N {
    number(gaggle_strategies::Nonce::from_u128(u128::from_str_radix(hex, 16).unwrap()))
}

fn flag(copies: bool) -> String {
    if copies { "c" } else { "-" }.to_owned()
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
    let mut model = Model::new();
    let mut last = [(None, 0); 2];
    real.command::<Value>(&["FLUSHALL"]).await;
    for (step, command) in commands.iter().enumerate() {
        if !model.is_legal(command) {
            continue;
        }
        let at = format!("step {step}: {command:?}");
        let expected = model.apply(command);
        let got = real.apply(&model, command).await;
        prop_assert!(expected.contains(&&*got), "{}: {}, not {:?}", at, got, expected);
        for of_key in 0..2 {
            let (holder, waiting) = real.state(of_key).await;
            let held = model.table.holder(&key(of_key));
            let nonce = holder.map(|(nonce, ..)| nonce);
            prop_assert_eq!(nonce, held.as_ref().map(|held| number(held.nonce)), "{}", at);
            if let Some(((nonce, token, left), held)) = holder.zip(held) {
                let expected = held.expires_at.0 - model.now_ms;
                prop_assert!(left.abs_diff(expected) < SLACK_MS, "{}: {} ms left", at, left);
                let before =
                    std::mem::replace(&mut last[usize::from(of_key)], (Some(nonce), token));
                let fresh = before.0 != Some(nonce);
                prop_assert!(if fresh { before.1 < token } else { before.1 == token }, "{}", at);
            }
            let living = waiting.into_iter().filter(|nonce| model.is_waiting(*nonce));
            prop_assert_eq!(living.collect::<Vec<_>>(), model.waiting(of_key), "{}", at);
        }
        let remembered: Vec<(String, f64)> =
            real.command(&["ZRANGE", "ns:{b0}:x", "0", "-1", "WITHSCORES"]).await;
        let now: Vec<u64> = real.command(&["TIME"]).await;
        for (nonce, _) in remembered.into_iter().filter(|(_, till)| *till > now[0] as f64 * 1e3) {
            prop_assert!(model.may_be_remembered(from_hex(&nonce)), "{}: {}", at, nonce);
        }
    }
    Ok(())
}

#[test]
fn scripts_agree_with_the_reference_table() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    let connection = runtime.block_on(server.connection());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&commands(), |commands| {
        let mut real = Real { connection: connection.clone() };
        runtime.block_on(compare(&mut real, &commands))
    });
    if let Err(error) = result {
        panic!("{error}\n{error:?}");
    }
}
