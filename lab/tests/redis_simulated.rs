//! Goal: the simulated server of the simulator runs the scripts as Redis does.
//! Method: the same random scripts, from three processes on two keys, on a `redis-server` of the
//! test's own and on the simulated one. Replies and keys must be equal, but for the servers' times.
//!
//! A failure prints its commands; `PROPTEST_RNG_SEED=<seed> cargo test -p gaggle-lab --test
//! redis_simulated` generates the same ones again, and `PROPTEST_CASES` more of them.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test that meets an error has failed

use gaggle_fixtures::RedisServer;
use gaggle_lab::SimulatedRedis;
use gaggle_strategies::redis::scripts;
use proptest::{prelude::*, test_runner::TestRunner};
use redis::{
    AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, Value, aio::MultiplexedConnection,
};

/// A step on both servers: a list of requests of one verb. A nonce has one key, one lease and one
/// wait.
#[derive(Clone, Debug)]
enum Step {
    /// With the last argument but one.
    Lock(Vec<(u8, &'static str)>),
    Unlock(Vec<(u8, bool)>),
    Extend(Vec<(u8, u32)>),
    Poll(Vec<u8>),
    Inspect(Vec<u8>),
    /// The lease of a key ends.
    Expire(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let nonce = || 0..12_u8;
    let copies = prop_oneof![Just("-"), Just("c"), Just("g")];
    let length = || 1..6_usize;
    prop_oneof![
        6 => prop::collection::vec((nonce(), copies), length()).prop_map(Step::Lock),
        4 => prop::collection::vec((nonce(), any::<bool>()), length()).prop_map(Step::Unlock),
        1 => prop::collection::vec((nonce(), 3..12_u32), length()).prop_map(Step::Extend),
        1 => prop::collection::vec(nonce(), length()).prop_map(Step::Poll),
        1 => prop::collection::vec(nonce(), length()).prop_map(Step::Inspect),
        1 => nonce().prop_map(Step::Expire),
    ]
}

fn names(nonce: u8) -> [String; 6] {
    let key = nonce % 2;
    let of_key = ["l", "f", "a", "g"].map(|part| format!("ns:{{b0}}:{part}:k{key}"));
    let [lock, queue, asked, grant] = of_key;
    ["ns:{b0}:t".into(), "ns:{b0}:x".into(), lock, queue, asked, grant]
}

/// Runs a step; the reply as words, times and remaining milliseconds left out.
async fn run(connection: &mut MultiplexedConnection, step: &Step) -> Vec<String> {
    let hex = |nonce: u8| format!("{nonce:032x}");
    let mut list = Vec::new();
    let verb = match step {
        Step::Lock(requests) => {
            for &(nonce, copies) in requests {
                let wait = ["0", "-1", "90000"][usize::from(nonce / 4)];
                let lease = (60_000 + 10_000 * u32::from(nonce)).to_string();
                let (never, owner) = ("9000000000000000".to_owned(), "1 host -".to_owned());
                let arguments = [never, hex(nonce), lease, wait.into(), copies.into(), owner];
                list.push((nonce, arguments.to_vec()));
            }
            "lock"
        }
        Step::Unlock(requests) => {
            for &(nonce, copies) in requests {
                let copies = if copies { "c" } else { "-" }.to_owned();
                let token = token(connection, nonce).await;
                list.push((nonce, vec![hex(nonce), token, copies, String::new()]));
            }
            "unlock"
        }
        Step::Extend(requests) => {
            for &(nonce, tens) in requests {
                let ms = (10_000 * tens).to_string();
                list.push((nonce, vec![hex(nonce), ms, token(connection, nonce).await]));
            }
            "extend"
        }
        Step::Poll(nonces) => {
            list.extend(nonces.iter().map(|&nonce| (nonce, vec![hex(nonce)])));
            "poll"
        }
        Step::Inspect(nonces) => {
            list.extend(nonces.iter().map(|&nonce| (nonce, Vec::new())));
            "inspect"
        }
        Step::Expire(nonce) => {
            let mut del = redis::cmd("DEL");
            let value: Value = del.arg(&names(*nonce)[2]).query_async(connection).await.unwrap();
            return words(&value);
        }
    };
    words(&call(connection, verb, &list).await)
}

async fn call(
    connection: &mut MultiplexedConnection,
    verb: &str,
    list: &[(u8, Vec<String>)],
) -> Value {
    let (_, text) = scripts().into_iter().find(|(name, _)| *name == verb).unwrap();
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(redis::Script::new(text).get_hash()).arg(6 * list.len());
    list.iter().for_each(|(nonce, _)| _ = cmd.arg(&names(*nonce)));
    // A queue of three, and no silence.
    cmd.arg(format!("{:032x} 10000 100000000 3 100 ns:p:", list[0].0 % 3));
    list.iter().for_each(|(_, arguments)| _ = cmd.arg(arguments));
    cmd.query_async(connection).await.unwrap()
}

/// The holder's token, as an INSPECT finds it.
async fn token(connection: &mut MultiplexedConnection, nonce: u8) -> String {
    let reply = call(connection, "inspect", &[(nonce, Vec::new())]).await;
    let reply: String = redis::from_redis_value(reply).unwrap();
    let held = reply.lines().next().unwrap();
    held.split(' ').nth(2).unwrap_or("0").to_owned()
}

fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => {
            let inner = values.iter().flat_map(words);
            std::iter::once("[".into()).chain(inner).chain(std::iter::once("]".into())).collect()
        }
        Value::BulkString(bytes) => {
            String::from_utf8(bytes.clone()).unwrap().split([' ', ',', '\n']).map(plain).collect()
        }
        Value::Int(number) => vec![plain(&number.to_string())],
        other => vec![format!("{other:?}")],
    }
}

/// A word without parts that differ by time: stamps are left out, and milliseconds are rounded to
/// ten seconds. All leases are multiples of ten seconds, so only a run of five seconds differs.
fn plain(word: &str) -> String {
    match word.parse::<u64>() {
        Ok(1_000_000_000_000_000..) => "stamp".into(),
        Ok(ms @ 10_000..) => format!("{}0 s", (ms + 5_000) / 10_000),
        _ => word.to_owned(),
    }
}

async fn load(connection: &mut MultiplexedConnection) {
    for (_, text) in scripts() {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(text).query_async::<Value>(connection).await.unwrap();
    }
}

async fn compare(server: &RedisServer, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let client = redis::Client::open(server.url()).unwrap();
    let mut real = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").query_async::<Value>(&mut real).await.unwrap();
    let simulated = SimulatedRedis::new();
    let login =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    let config = AsyncConnectionConfig::new();
    let opened = MultiplexedConnection::new_with_config(&login, simulated.connect(), config);
    let (mut simulation, driver) = opened.await.unwrap();
    tokio::spawn(driver);
    load(&mut real).await;
    load(&mut simulation).await;
    for step in steps {
        let (found, expected) = (run(&mut simulation, &step).await, run(&mut real, &step).await);
        prop_assert_eq!(found, expected, "{:?}", step);
        let keys = redis::cmd("KEYS").arg("*").query_async(&mut real).await;
        let mut keys: Vec<String> = keys.unwrap();
        keys.retain(|key| !key.ends_with(":t"));
        keys.sort();
        prop_assert_eq!(simulated.residue(), keys, "{:?}", step);
    }
    Ok(())
}

#[test]
fn simulated_scripts_run_as_on_redis() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = RedisServer::start();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) };
    let run = |steps| runtime.block_on(compare(&server, steps));
    TestRunner::new(config).run(&prop::collection::vec(step(), 1..80), run).unwrap();
}
