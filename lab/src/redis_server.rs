//! A Redis in this process: it runs the scripts that ship, over a key space in virtual time.
//!
//! - `keyspace`: strings, sorted sets and hashes with expiries, and the commands that the scripts
//!   use.
//! - `lua`: runs the scripts in Lua 5.1, as Redis does.
//! - `resp`: the bytes of requests and replies.
//! - `simulated`: the same server for clients on a tokio runtime in paused time.
//!
//! `Server` is a function of its inputs: bytes and the time in, bytes out. The simulator and
//! `simulated` carry the bytes.

mod keyspace;
mod lua;
mod resp;
mod simulated;

use std::{collections::BTreeMap, slice};

use self::lua::Scripts;
pub use self::simulated::SimulatedRedis;
pub(crate) use self::{
    keyspace::{KeySpace, Reply},
    lua::Verb,
};

/// Names a connection.
pub(crate) type ConnectionId = u64;

/// A server: its data, its scripts and its connections.
pub(crate) struct Server {
    scripts: Scripts,
    connections: BTreeMap<ConnectionId, Connection>,
    /// How often it started again.
    restarts: u32,
    /// How many replicas have all that it has.
    replicas: u32,
}

#[derive(Default)]
struct Connection {
    /// Bytes of requests that were not executed yet.
    input: Vec<u8>,
    topics: Vec<Vec<u8>>,
}

/// A request, executed.
pub(crate) struct Executed {
    pub(crate) reply: Vec<u8>,
    /// Publications, as the bytes of pushes, and the connections that subscribed to them. They
    /// leave before the reply.
    pub(crate) pushes: Vec<(ConnectionId, Vec<u8>)>,
    /// The requests of the script that it ran, if it ran one, and the keys after each.
    pub(crate) runs: Vec<(Run, KeySpace)>,
    /// Whether it was a `WAIT`.
    pub(crate) waits: bool,
}

/// A request of a list that a script ran.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) verb: Verb,
    pub(crate) keys: Vec<Vec<u8>>,
    /// The options, and what the list has for this request.
    pub(crate) args: Vec<Vec<u8>>,
    /// An error is a refusal of a command inside the script.
    pub(crate) reply: Result<String, String>,
}

impl Server {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { scripts: Scripts::new(), connections: BTreeMap::new(), restarts: 0, replicas: 0 }
    }

    pub(crate) fn connect(&mut self, id: ConnectionId) {
        self.connections.insert(id, Connection::default());
    }

    pub(crate) fn disconnect(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
    }

    /// Starts again, with the data that it had. It knows no script.
    pub(crate) fn restart(&mut self) {
        self.connections.clear();
        self.scripts.flush();
        self.restarts += 1;
    }

    /// Loses its data.
    pub(crate) fn wipe(&mut self) {
        self.set_data(KeySpace::default());
    }

    /// What a replica has once it has everything.
    pub(crate) fn data(&self) -> KeySpace {
        self.scripts.keys().clone()
    }

    /// Has the data of a replica.
    pub(crate) fn set_data(&mut self, data: KeySpace) {
        *self.scripts.keys() = data;
    }

    /// Forgets the scripts that it was taught.
    pub(crate) fn flush_scripts(&mut self) {
        self.scripts.flush();
    }

    /// While its memory is full it refuses commands that need more.
    pub(crate) fn set_full(&mut self, full: bool) {
        self.scripts.set_full(full);
    }

    /// How many replicas have all that it has.
    pub(crate) fn set_replicas(&mut self, count: u32) {
        self.replicas = count;
    }

    /// Looks at the data at this time, in microseconds.
    pub(crate) fn look<T>(&self, now_us: u64, look: impl FnOnce(&mut KeySpace) -> T) -> T {
        let mut keys = self.scripts.keys();
        keys.now_us = now_us;
        look(&mut keys)
    }

    /// The names of the keys that are left, but for token counters.
    pub(crate) fn residue(&self, now_us: u64) -> Vec<String> {
        let keys = self.look(now_us, KeySpace::keys);
        keys.into_iter().filter(|key| !key.ends_with(":t")).collect()
    }

    /// Takes bytes that have arrived on a connection, if it has not ended.
    pub(crate) fn receive(&mut self, id: ConnectionId, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.input.extend_from_slice(bytes);
        }
    }

    /// Executes the next request of a connection that has arrived whole.
    pub(crate) fn execute(&mut self, id: ConnectionId, now_us: u64) -> Option<Executed> {
        let connection = self.connections.get_mut(&id)?;
        let request = resp::take_request(&mut connection.input)?;
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let (mut pushes, mut runs) = (Vec::new(), Vec::new());
        let reply = match words[..] {
            [b"HELLO", ..] => b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec(),
            [b"SELECT", ..] => resp::encoded(&Reply::Done),
            [b"INFO"] => {
                let run = self.restarts;
                let info = format!(
                    "redis_version:7.2.4\r\nrun_id:r{run}\r\nmaxmemory_policy:noeviction\r\n"
                );
                resp::encoded(&Reply::Text(info.into_bytes()))
            }
            [b"TIME"] => resp::encoded(&self.look(now_us, |keys| keys.call("TIME", &[]))),
            [b"SUBSCRIBE", topic] => {
                connection.topics.push(topic.to_vec());
                resp::subscribed(topic)
            }
            [b"PUBLISH", topic, payload] => {
                pushes = self.pushes(topic, payload);
                resp::encoded(&Reply::Int(1))
            }
            [b"WAIT", ..] => resp::encoded(&Reply::Int(self.replicas.into())),
            [verb @ (b"GET" | b"SET" | b"DEL"), _, ..] => {
                let verb = std::str::from_utf8(verb).expect("it is one of these");
                resp::encoded(&self.look(now_us, |keys| keys.call(verb, &request[1..])))
            }
            [b"SCRIPT", b"LOAD", text] => {
                let hash = self.scripts.teach(text);
                resp::encoded(&Reply::Text(hash.into()))
            }
            [b"EVALSHA", hash, ..] => match self.scripts.known(hash) {
                Some(verb) => self.run(now_us, verb, &request, &mut pushes, &mut runs),
                None => resp::error("NOSCRIPT No matching script."),
            },
            _ => panic!("no client of ours sends {:?}", String::from_utf8_lossy(words[0])),
        };
        Some(Executed { reply, pushes, runs, waits: words[0] == b"WAIT" })
    }

    fn run(
        &mut self,
        now_us: u64,
        verb: Verb,
        request: &[Vec<u8>],
        pushes: &mut Vec<(ConnectionId, Vec<u8>)>,
        runs: &mut Vec<(Run, KeySpace)>,
    ) -> Vec<u8> {
        let count = std::str::from_utf8(&request[2]).expect("a number").parse::<usize>();
        let (keys, args) = request[3..].split_at(count.expect("a number"));
        self.scripts.keys().now_us = now_us;
        let (reply, steps, published) = self.scripts.run(verb, keys, args);
        for (topic, payload) in published {
            pushes.append(&mut self.pushes(&topic, &payload));
        }
        if let Reply::Text(text) = &reply {
            let text = std::str::from_utf8(text).expect("a client of ours sends no other bytes");
            let (settings, args) = args.split_first().expect("a script has options");
            let stride = args.len() / steps.len();
            for (at, (result, after)) in text.split('\n').zip(steps).enumerate() {
                let args = [slice::from_ref(settings), &args[stride * at..][..stride]].concat();
                let reply = match result.strip_prefix('-') {
                    Some(error) => Err(error.to_owned()),
                    None => Ok(result.to_owned()),
                };
                runs.push((Run { verb, keys: keys[6 * at..][..6].to_vec(), args, reply }, after));
            }
        }
        resp::encoded(&reply)
    }

    fn pushes(&self, topic: &[u8], payload: &[u8]) -> Vec<(ConnectionId, Vec<u8>)> {
        let subscribed = self.connections.iter();
        let reads = |other: &Connection| other.topics.iter().any(|other| other == topic);
        let subscribed = subscribed.filter(|(_, other)| reads(other));
        subscribed.map(|(id, _)| (*id, resp::message(topic, payload))).collect()
    }
}
