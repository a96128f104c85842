//! The interpreter of the server: Lua 5.1, as in Redis.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Function, Lua, MultiValue, Value, Variadic};

use super::keyspace::{KeySpace, Publication, Reply};

/// The scripts, in the order in which the strategy names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Lock,
    Unlock,
    Extend,
    Poll,
    Inspect,
    Mark,
}

const VERBS: [Verb; 6] =
    [Verb::Lock, Verb::Unlock, Verb::Extend, Verb::Poll, Verb::Inspect, Verb::Mark];

/// What a server whose memory is full replies to a command that needs more.
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Errors of commands are tables, whose text `pcall` returns, as in Redis. A script runs each request
/// of its list by one `pcall`. Any other error is a bug of the script, which ends it.
const FUNCTIONS: &str = "
    local step, command, catch = redis.step, redis.pcall, pcall
    function redis.call(...)
        local reply = command(...)
        return type(reply) == 'table' and reply.err and error(reply) or reply
    end
    function pcall(...)
        local done, result = catch(...)
        step()
        if done then
            return true, result
        end
        return false, type(result) == 'table' and result.err or error(result, 0)
    end
";

/// The interpreter, the scripts that it knows, and the data that they work on.
pub(super) struct Scripts {
    /// Kept, because the functions live in it.
    lua: Lua,
    functions: Vec<Function>,
    known: [bool; 6],
    /// By which a server that has loaded the scripts knows them.
    hashes: [String; 6],
    data: Arc<Mutex<Data>>,
}

#[derive(Default)]
struct Data {
    keys: KeySpace,
    full: bool,
    /// Whether the script that runs has written.
    wrote: bool,
    /// The keys after each request of its list.
    steps: Vec<KeySpace>,
}

impl Data {
    /// Runs one command of a script. From its first write on, a script is refused nothing.
    fn call(&mut self, command: &str, args: &[Vec<u8>]) -> Result<Reply, &'static str> {
        let adds = matches!(command, "SET" | "ZADD" | "HSET");
        if adds && self.full && !self.wrote {
            return Err(FULL);
        }
        let removes = matches!(command, "DEL" | "HDEL" | "PEXPIRE" | "PEXPIREAT" | "ZPOPMIN");
        self.wrote |= adds || removes || command.starts_with("ZREM");
        Ok(self.keys.call(command, args))
    }
}

impl Scripts {
    /// An interpreter that knows none, with no data.
    pub(super) fn new() -> Self {
        let (lua, data) = (Lua::new(), Arc::new(Mutex::new(Data::default())));
        let redis = lua.create_table().expect("memory for a table");
        let calls = data.clone();
        let call = lua.create_function(move |lua, mut args: Variadic<Value>| {
            let command = argument(&args.remove(0));
            let command = std::str::from_utf8(&command).expect("a command's name");
            let args: Vec<_> = args.iter().map(argument).collect();
            let reply = hold(&calls).call(command, &args);
            to_lua(lua, reply.unwrap_or_else(|error| Reply::Error(error.to_owned())))
        });
        redis.set("pcall", call.expect("memory for a function")).expect("a table takes it");
        let steps = data.clone();
        let step = lua.create_function(move |_, ()| {
            let mut data = hold(&steps);
            let keys = data.keys.clone();
            data.steps.push(keys);
            Ok(())
        });
        redis.set("step", step.expect("memory for a function")).expect("a table takes it");
        lua.globals().set("redis", redis).expect("a table takes it");
        lua.load(FUNCTIONS).exec().expect("it compiles");
        let compile = |(name, text): (&str, &str)| {
            lua.load(text).set_name(name).into_function().expect("a script that ships compiles")
        };
        let functions = gaggle_strategies::redis::scripts().map(compile).into();
        let hash = |(_, text): (&str, &str)| redis::Script::new(text).get_hash().to_owned();
        let hashes = gaggle_strategies::redis::scripts().map(hash);
        Self { lua, functions, known: [false; 6], hashes, data }
    }

    pub(super) fn keys(&self) -> impl std::ops::DerefMut<Target = KeySpace> {
        Keys(hold(&self.data))
    }

    pub(super) fn set_full(&self, full: bool) {
        hold(&self.data).full = full;
    }

    pub(super) fn flush(&mut self) {
        self.known = [false; 6];
    }

    /// Learns a script by its text.
    pub(super) fn teach(&mut self, text: &[u8]) -> &str {
        let scripts = gaggle_strategies::redis::scripts();
        let at = scripts.iter().position(|(_, known)| known.as_bytes() == text);
        let at = at.expect("a client of ours sends a script that ships");
        self.known[at] = true;
        &self.hashes[at]
    }

    pub(super) fn known(&self, hash: &[u8]) -> Option<Verb> {
        let at = self.hashes.iter().position(|known| known.as_bytes() == hash)?;
        self.known[at].then_some(VERBS[at])
    }

    /// Runs a script. Returns its reply, the keys after each request of its list, and what it
    /// published.
    pub(super) fn run(
        &self,
        verb: Verb,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> (Reply, Vec<KeySpace>, Vec<Publication>) {
        let table = |items: &[Vec<u8>]| {
            let items = items.iter().map(|item| self.lua.create_string(item));
            let items = items.collect::<mlua::Result<Vec<_>>>().expect("memory for a text");
            self.lua.create_sequence_from(items).expect("memory for a table")
        };
        let globals = self.lua.globals();
        globals.set("KEYS", table(keys)).expect("a table takes it");
        globals.set("ARGV", table(args)).expect("a table takes it");
        hold(&self.data).wrote = false;
        let result = self.functions[verb as usize].call::<MultiValue>(());
        let values = result.unwrap_or_else(|error| panic!("{verb:?} failed: {error}"));
        let mut data = hold(&self.data);
        let reply = from_lua(values.into_iter().next().unwrap_or(Value::Nil));
        (reply, std::mem::take(&mut data.steps), std::mem::take(&mut data.keys.published))
    }
}

/// The key space behind its mutex.
struct Keys<'a>(MutexGuard<'a, Data>);

impl std::ops::Deref for Keys<'_> {
    type Target = KeySpace;

    fn deref(&self) -> &KeySpace {
        &self.0.keys
    }
}

impl std::ops::DerefMut for Keys<'_> {
    fn deref_mut(&mut self) -> &mut KeySpace {
        &mut self.0.keys
    }
}

fn hold(mutex: &Mutex<Data>) -> MutexGuard<'_, Data> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Turns what a script hands to a command into text, as Redis does.
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

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Nil => Value::Boolean(false),
        Reply::Int(number) => Value::Number(number as f64),
        Reply::Text(text) => Value::String(lua.create_string(text)?),
        Reply::List(replies) => {
            let values = replies.into_iter().map(|reply| to_lua(lua, reply));
            let values = values.collect::<mlua::Result<Vec<_>>>()?;
            Value::Table(lua.create_sequence_from(values)?)
        }
        Reply::Done => table_of(lua, "ok", "OK")?,
        Reply::Error(text) => table_of(lua, "err", &text)?,
    })
}

fn table_of(lua: &Lua, field: &str, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.set(field, text)?;
    Ok(Value::Table(table))
}

/// Turns what a script returns into a reply, as Redis does.
fn from_lua(value: Value) -> Reply {
    match value {
        Value::Nil | Value::Boolean(false) => Reply::Nil,
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(number),
        Value::Number(number) => Reply::Int(number as i64),
        Value::String(text) => Reply::Text(text.as_bytes().to_vec()),
        Value::Table(table) => match table.get("err").expect("a table of values") {
            Value::String(text) => Reply::Error(text.to_string_lossy()),
            _ => Reply::Done,
        },
        other => panic!("a script returns {other:?}"),
    }
}
