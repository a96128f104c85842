//! The data of the server, and the commands that the scripts use.

use std::collections::BTreeMap;

/// The reply to a command, as Lua sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Self>),
    Error(String),
    Done,
}

/// Topic and payload.
pub(super) type Publication = (Vec<u8>, Vec<u8>);

/// The data of one Redis.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySpace {
    /// Microseconds of the server's clock; expiries count whole milliseconds of it.
    pub(super) now_us: u64,
    values: BTreeMap<Vec<u8>, (Value, Option<u64>)>,
    /// Not sent yet.
    pub(super) published: Vec<Publication>,
}

#[derive(Clone, Debug)]
enum Value {
    Text(Vec<u8>),
    Sorted(BTreeMap<Vec<u8>, f64>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

type Args<'a> = &'a [Vec<u8>];

impl KeySpace {
    /// The names of all keys that have not expired.
    pub(super) fn keys(&mut self) -> Vec<String> {
        let now = self.now_ms();
        self.values.retain(|_, (_, end)| end.is_none_or(|end| now <= end));
        self.values.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// A text, and the last millisecond in which it lives, if that has an end.
    pub(crate) fn text(&mut self, key: &[u8]) -> Option<(String, Option<u64>)> {
        match self.live(key)? {
            (Value::Text(text), end) => Some((String::from_utf8_lossy(text).into_owned(), *end)),
            _ => None,
        }
    }

    /// The members of a sorted set, in order.
    pub(crate) fn members(&mut self, key: &[u8]) -> Vec<String> {
        let Some(set) = self.sorted(key) else { return Vec::new() };
        let mut members: Vec<_> = set.iter().map(|(member, score)| (*score, member)).collect();
        members.sort_by(|a, b| a.0.total_cmp(&b.0));
        members.into_iter().map(|(_, m)| String::from_utf8_lossy(m).into_owned()).collect()
    }

    /// The score of a member of a sorted set.
    pub(crate) fn score(&mut self, key: &[u8], member: &str) -> Option<u64> {
        self.sorted(key)?.get(member.as_bytes()).map(|score| *score as u64)
    }

    /// The text of a field of a hash.
    pub(crate) fn field(&mut self, key: &[u8], field: &str) -> Option<String> {
        match self.live(key)? {
            (Value::Hash(hash), _) => {
                hash.get(field.as_bytes()).map(|text| String::from_utf8_lossy(text).into_owned())
            }
            _ => None,
        }
    }

    /// The last millisecond in which a key lives, if it lives and has an end.
    pub(crate) fn end(&mut self, key: &[u8]) -> Option<u64> {
        self.live(key)?.1
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    fn live(&mut self, key: &[u8]) -> Option<&mut (Value, Option<u64>)> {
        let now = self.now_ms();
        // A key lives, as in Redis, through the millisecond at which it ends.
        if self.values.get(key).is_some_and(|(_, end)| end.is_some_and(|end| now > end)) {
            self.values.remove(key);
        }
        self.values.get_mut(key)
    }

    fn sorted(&mut self, key: &[u8]) -> Option<&mut BTreeMap<Vec<u8>, f64>> {
        match self.live(key) {
            Some((Value::Sorted(set), _)) => Some(set),
            Some(_) => panic!("WRONGTYPE: no sorted set"),
            None => None,
        }
    }

    fn hash(&mut self, key: &[u8]) -> Option<&mut BTreeMap<Vec<u8>, Vec<u8>>> {
        match self.live(key) {
            Some((Value::Hash(hash), _)) => Some(hash),
            Some(_) => panic!("WRONGTYPE: no hash"),
            None => None,
        }
    }

    /// An empty set or hash is no key.
    fn drop_empty(&mut self, key: &[u8]) {
        let empty = match self.live(key) {
            Some((Value::Sorted(set), _)) => set.is_empty(),
            Some((Value::Hash(hash), _)) => hash.is_empty(),
            _ => false,
        };
        if empty {
            self.values.remove(key);
        }
    }

    /// Runs one command.
    ///
    /// # Panics
    ///
    /// On a command or form of a command that no script uses.
    pub(super) fn call(&mut self, command: &str, args: Args<'_>) -> Reply {
        match (command, args) {
            ("TIME", []) => {
                let (s, us) = (self.now_us / 1_000_000, self.now_us % 1_000_000);
                Reply::List(vec![text(s), text(us)])
            }
            ("PUBLISH", [topic, payload]) => {
                self.published.push((topic.clone(), payload.clone()));
                Reply::Int(1)
            }
            ("GET", [key]) => self.get(key),
            ("SET", [key, value, options @ ..]) => self.set(key, value, options),
            ("EXISTS", keys) => count(keys.iter().filter(|key| self.live(key).is_some()).count()),
            ("DEL", keys) => count(keys.iter().filter(|key| self.delete(key)).count()),
            ("PTTL", [key]) => {
                let now = self.now_ms();
                match self.live(key) {
                    None => Reply::Int(-2),
                    Some((_, None)) => Reply::Int(-1),
                    Some((_, Some(end))) => Reply::Int(signed(*end - now)),
                }
            }
            ("PEXPIRE", [key, ..]) if self.live(key).is_none() => Reply::Int(0),
            ("PEXPIRE", [key, ms]) => self.expire(key, self.now_ms() + number(ms), false),
            ("PEXPIRE", [key, ms, nx]) if nx == b"NX" => match self.live(key) {
                Some((_, None)) => self.expire(key, self.now_ms() + number(ms), false),
                _ => Reply::Int(0),
            },
            ("PEXPIRE", [key, ms, gt]) if gt == b"GT" => {
                self.expire(key, self.now_ms() + number(ms), true)
            }
            ("PEXPIRE", [key, ms, lt]) if lt == b"LT" => {
                let at = self.now_ms() + number(ms);
                match self.live(key) {
                    Some((_, Some(end))) if *end <= at => Reply::Int(0),
                    _ => self.expire(key, at, false),
                }
            }
            ("PEXPIREAT", [key, at]) => self.expire(key, number(at), false),
            (command, [key, rest @ ..]) if command.starts_with('Z') => {
                let reply = self.of_sorted(command, key, rest);
                self.drop_empty(key);
                reply
            }
            (command, [key, rest @ ..]) if command.starts_with('H') => {
                let reply = self.of_hash(command, key, rest);
                self.drop_empty(key);
                reply
            }
            _ => panic!("no script used {command} with {} arguments", args.len()),
        }
    }

    fn get(&mut self, key: &[u8]) -> Reply {
        match self.live(key) {
            Some((Value::Text(text), _)) => Reply::Text(text.clone()),
            _ => Reply::Nil,
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: Args<'_>) -> Reply {
        let before = self.get(key);
        let mut reply = Reply::Done;
        let options: Vec<&[u8]> = options.iter().map(Vec::as_slice).collect();
        let end = match options[..] {
            [] => None,
            [b"GET"] => {
                reply = before;
                None
            }
            [b"PX", ms] => Some(self.now_ms() + number(ms)),
            _ => panic!("no script used SET with {options:?}"),
        };
        self.values.insert(key.to_vec(), (Value::Text(value.to_vec()), end));
        reply
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.live(key).is_some() && self.values.remove(key).is_some()
    }

    fn expire(&mut self, key: &[u8], at: u64, only_later: bool) -> Reply {
        let now = self.now_ms();
        let Some((_, end)) = self.live(key) else { return Reply::Int(0) };
        // A key without an expiry never ends.
        if only_later && end.is_none_or(|end| at <= end) {
            return Reply::Int(0);
        }
        *end = Some(at);
        if at <= now {
            self.values.remove(key);
        }
        Reply::Int(1)
    }

    fn of_sorted(&mut self, command: &str, key: &[u8], args: Args<'_>) -> Reply {
        if command == "ZADD" {
            let fresh = || (Value::Sorted(BTreeMap::new()), None);
            self.live(key);
            let (Value::Sorted(set), _) = self.values.entry(key.to_vec()).or_insert_with(fresh)
            else {
                panic!("WRONGTYPE: no sorted set");
            };
            let (pairs, rest) = args.as_chunks::<2>();
            assert!(rest.is_empty(), "no script used ZADD with half a pair");
            let added = pairs.iter().filter(|[score, member]| {
                set.insert(member.clone(), number(score) as f64).is_none()
            });
            return count(added.count());
        }
        let Some(set) = self.sorted(key) else {
            return match command {
                "ZSCORE" => Reply::Nil,
                "ZPOPMIN" | "ZRANGE" => Reply::List(vec![]),
                _ => Reply::Int(0),
            };
        };
        let by_score = |a: &(&Vec<u8>, &f64), b: &(&Vec<u8>, &f64)| {
            a.1.total_cmp(b.1).then_with(|| a.0.cmp(b.0))
        };
        let pair = |(member, score): (&Vec<u8>, &f64)| {
            Reply::List(vec![Reply::Text(member.clone()), text(*score)])
        };
        match (command, args) {
            ("ZCARD", []) => count(set.len()),
            ("ZSCORE", [member]) => set.get(member).map_or(Reply::Nil, |score| text(*score)),
            ("ZREM", members) => {
                count(members.iter().filter(|member| set.remove(*member).is_some()).count())
            }
            ("ZPOPMIN", []) => {
                let Some(least) = set.iter().min_by(by_score).map(|(member, _)| member.clone())
                else {
                    return Reply::List(vec![]);
                };
                let score = set.remove(&least).expect("it was just seen");
                pair((&least, &score))
            }
            ("ZRANGE", [from, to]) if from == b"0" && to == b"1" => {
                let mut found: Vec<_> = set.iter().collect();
                found.sort_by(by_score);
                let found = found.into_iter().take(2);
                Reply::List(found.map(|(member, _)| Reply::Text(member.clone())).collect())
            }
            ("ZRANGE", [from, to, by, limit, offset, most])
                if from == b"-inf" && by == b"BYSCORE" && limit == b"LIMIT" && offset == b"0" =>
            {
                let to = number(to) as f64;
                let mut found: Vec<_> = set.iter().filter(|(_, score)| **score <= to).collect();
                found.sort_by(by_score);
                let found = found.into_iter().take(number(most) as usize);
                Reply::List(found.map(|(member, _)| Reply::Text(member.clone())).collect())
            }
            ("ZRANGE", [at, to, scores])
                if at.starts_with(b"-") && at == to && scores == b"WITHSCORES" =>
            {
                let mut found: Vec<_> = set.iter().collect();
                found.sort_by(|a, b| by_score(b, a));
                let found = found.into_iter().nth(number(&at[1..]) as usize - 1);
                found.map_or(Reply::List(vec![]), pair)
            }
            _ => panic!("no script used {command} with {} arguments", args.len()),
        }
    }

    fn of_hash(&mut self, command: &str, key: &[u8], args: Args<'_>) -> Reply {
        if command == "HSET" {
            self.live(key);
            let fresh = || (Value::Hash(BTreeMap::new()), None);
            let (Value::Hash(hash), _) = self.values.entry(key.to_vec()).or_insert_with(fresh)
            else {
                panic!("WRONGTYPE: no hash");
            };
            let pairs = args.chunks_exact(2);
            assert!(pairs.remainder().is_empty(), "no script used HSET with half a pair");
            let set = pairs.filter(|pair| hash.insert(pair[0].clone(), pair[1].clone()).is_none());
            return count(set.count());
        }
        let Some(hash) = self.hash(key) else {
            return match command {
                "HGET" => Reply::Nil,
                "HMGET" => Reply::List(vec![Reply::Nil; args.len()]),
                _ => Reply::Int(0),
            };
        };
        match (command, args) {
            ("HMGET", fields) => {
                let value =
                    |field| hash.get(field).map_or(Reply::Nil, |value| Reply::Text(value.clone()));
                Reply::List(fields.iter().map(value).collect())
            }
            ("HGET", [field]) => {
                hash.get(field).map_or(Reply::Nil, |value| Reply::Text(value.clone()))
            }
            // In one step, as Redis replies for a small hash.
            ("HSCAN", [_, matches, pattern, rest @ ..])
                if matches == b"MATCH" && pattern.ends_with(b"*") && rest.len() == 2 =>
            {
                let stem = &pattern[..pattern.len() - 1];
                let found = hash.iter().filter(|(field, _)| field.starts_with(stem));
                let pairs = found.flat_map(|(field, value)| [field.clone(), value.clone()]);
                Reply::List(vec![text(0), Reply::List(pairs.map(Reply::Text).collect())])
            }
            ("HDEL", fields) => {
                count(fields.iter().filter(|field| hash.remove(*field).is_some()).count())
            }
            _ => panic!("no script used {command} with {} arguments", args.len()),
        }
    }
}

fn text(value: impl ToString) -> Reply {
    Reply::Text(value.to_string().into_bytes())
}

fn count(count: usize) -> Reply {
    Reply::Int(signed(count as u64))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("a number of Redis")
}

fn number(digits: &[u8]) -> u64 {
    let text = std::str::from_utf8(digits).expect("digits");
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no whole number: Redis would refuse it"))
}
