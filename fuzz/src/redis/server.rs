use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gaggle_strategies::testing::redis_scripts;
use mlua::{Function, Lua, MultiValue, Table, Value, Variadic};
use tokio::{sync::mpsc, time::Instant};

use super::keyspace::{Answer, KeySpace};

/// The server's clock begins here, in microseconds since 1970.
const BEGINNING: u64 = 1_700_000_000_000_000;

/// The scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Lock,
    Unlock,
    Extend,
    Poll,
}

/// One Redis in this process, on the runtime's virtual clock.
pub struct Server {
    state: Mutex<State>,
    keys: Arc<Mutex<KeySpace>>,
    began: Instant,
}

struct State {
    /// Kept, because the functions live in it.
    lua: Lua,
    scripts: BTreeMap<Verb, Function>,
    topics: BTreeMap<Vec<u8>, mpsc::UnboundedSender<Vec<u8>>>,
    publications: u64,
    /// Every so many publications one is lost; never if zero.
    lose_every: u64,
}

impl Server {
    /// An empty one. Call it within the runtime whose time it follows. One publication in
    /// `lose_every` is lost, none if that is zero.
    ///
    /// # Panics
    ///
    /// When a script does not compile.
    #[must_use]
    pub fn new(lose_every: u64) -> Arc<Self> {
        let (lua, keys) = (Lua::new(), Arc::new(Mutex::new(KeySpace::default())));
        let redis = lua.create_table().expect("memory for a table");
        let shared = keys.clone();
        let call = lua.create_function(move |lua, mut args: Variadic<Value>| {
            let command = argument(&args.remove(0));
            let command = String::from_utf8(command).expect("a command's name");
            let args: Vec<_> = args.iter().map(argument).collect();
            let answer = lock(&shared).call(&command, &args);
            to_lua(lua, answer)
        });
        let call = call.expect("memory for a function");
        redis.set("pcall", call.clone()).expect("a table takes it");
        redis.set("call", call).expect("a table takes it");
        lua.globals().set("redis", redis).expect("a table takes it");
        let verbs = [Verb::Lock, Verb::Unlock, Verb::Extend, Verb::Poll];
        let compile = |(verb, (name, text)): (Verb, (&str, &str))| {
            let script = lua.load(text).set_name(name);
            (verb, script.into_function().expect("a script that ships compiles"))
        };
        let scripts = verbs.into_iter().zip(redis_scripts()).map(compile).collect();
        let (topics, publications) = (BTreeMap::new(), 0);
        let state = State { lua, scripts, topics, publications, lose_every };
        Arc::new(Self { state: Mutex::new(state), keys, began: Instant::now() })
    }

    /// Hears what is published to `topic`.
    pub(super) fn subscribe(&self, topic: &str) -> mpsc::UnboundedReceiver<Vec<u8>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.state).topics.insert(topic.into(), sender);
        receiver
    }

    /// Runs a script, as `EVALSHA` does.
    pub(super) fn eval(&self, verb: Verb, keys: &[String], args: &[String]) -> Answer {
        let mut state = lock(&self.state);
        lock(&self.keys).now_us = self.now_us();
        let table = |items: &[String]| {
            let items = items.iter().map(String::as_str);
            state.lua.create_sequence_from(items).expect("memory for a table")
        };
        let globals = state.lua.globals();
        globals.set("KEYS", table(keys)).expect("a table takes it");
        globals.set("ARGV", table(args)).expect("a table takes it");
        let result: MultiValue = state.scripts[&verb]
            .call(())
            .unwrap_or_else(|error| panic!("{verb:?} failed: {error}"));
        let answer = from_lua(result.into_iter().next().unwrap_or(Value::Nil));
        let published = std::mem::take(&mut lock(&self.keys).published);
        for (topic, payload) in published {
            state.publications += 1;
            let lost = state.lose_every > 0 && state.publications.is_multiple_of(state.lose_every);
            if let Some(topic) = state.topics.get(&topic).filter(|_| !lost) {
                let _ = topic.send(payload);
            }
        }
        answer
    }

    /// What is left in it, but for token counters: nothing, once all has expired (contract, 11).
    #[must_use]
    pub fn residue(&self) -> Vec<String> {
        let mut keys = lock(&self.keys);
        keys.now_us = self.now_us();
        keys.keys().into_iter().filter(|key| !key.ends_with(":t")).collect()
    }

    fn now_us(&self) -> u64 {
        BEGINNING + u64::try_from(self.began.elapsed().as_micros()).expect("centuries")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As Redis turns what a script hands to a command into text.
fn argument(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        // `%.17g`, which for whole numbers below 10^17 is their digits.
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e17 => {
            format!("{number:.0}").into_bytes()
        }
        other => panic!("a script hands {other:?} to a command"),
    }
}

fn to_lua(lua: &Lua, answer: Answer) -> mlua::Result<Value> {
    Ok(match answer {
        Answer::Nil => Value::Boolean(false),
        Answer::Int(number) => Value::Number(number as f64),
        Answer::Text(text) => Value::String(lua.create_string(text)?),
        Answer::List(answers) => {
            let values = answers.into_iter().map(|answer| to_lua(lua, answer));
            let values = values.collect::<mlua::Result<Vec<_>>>()?;
            Value::Table(lua.create_sequence_from(values)?)
        }
        Answer::Done => {
            let table = lua.create_table()?;
            table.set("ok", "OK")?;
            Value::Table(table)
        }
    })
}

/// As Redis turns what a script returns into a reply: numbers are cut to whole ones, and a list
/// ends at its first nil.
fn from_lua(value: Value) -> Answer {
    match value {
        Value::Nil | Value::Boolean(false) => Answer::Nil,
        Value::Boolean(true) => Answer::Int(1),
        Value::Integer(number) => Answer::Int(number),
        Value::Number(number) => Answer::Int(number as i64),
        Value::String(text) => Answer::Text(text.as_bytes().to_vec()),
        Value::Table(table) => Answer::List(list(&table)),
        other => panic!("a script returns {other:?}"),
    }
}

fn list(table: &Table) -> Vec<Answer> {
    let items = table.sequence_values::<Value>();
    items.map(|item| from_lua(item.expect("a table of values"))).collect()
}
