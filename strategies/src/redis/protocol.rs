//! The only place that reads replies of the scripts and publications.
//!
//! No bytes make it panic.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, slice, sync::Arc, time::Duration};

use percent_encoding::percent_decode;
use redis::Value;

use crate::{
    client::commands::Event,
    limits::DURATION_MAX,
    lock::{Inspection, Nonce, Owner},
    printable::is_unsafe,
};

/// Published to the process itself at the handshake, to check the right to publish.
pub(super) const HELLO: &str = "0";

/// What the scripts report for a lease without an end: 1 ms more than the longest.
pub(super) const ENDLESS: Duration = DURATION_MAX.saturating_add(Duration::from_millis(1));

/// Why a reply is malformed.
pub(super) type Malformed = &'static str;

type Read<T> = Result<T, Malformed>;

/// The reply of a script to a list of requests.
#[derive(Debug, PartialEq)]
pub(super) struct Replies {
    /// The server's time in microseconds.
    pub(super) now: u64,
    /// Grants to waiters of this process that the script made.
    pub(super) grants: Vec<Grant>,
    /// The result of each request, or the error that ended it, in the order of the list.
    pub(super) results: Vec<Value>,
}

impl Replies {
    /// Those of a command that is not a script, or of a script that the server refused.
    pub(super) fn without_time(results: Vec<Value>) -> Self {
        Self { now: 0, grants: Vec::new(), results }
    }
}

/// A grant to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) nonce: Nonce,
    pub(super) token: u64,
    /// How long the waiter has waited.
    pub(super) waited: Duration,
    pub(super) lease: Duration,
}

/// The state of a nonce, as a POLL finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterState {
    /// The nonce waits for a lease that ends after this time if it is not extended.
    Waiting {
        remaining: Duration,
    },
    Holds(Grant),
    /// The nonce was granted and its lease is over, or it was withdrawn.
    Ended,
    Unknown,
}

/// Reads the reply to a list of `count` requests.
pub(super) fn replies(value: Value, count: usize) -> Read<Replies> {
    let text = bytes(Some(value))?;
    let mut lines = text.split(|byte| *byte == b'\n');
    let results = lines.by_ref().take(count).map(result).collect::<Read<Vec<_>>>()?;
    let time = lines.next().ok_or("the reply has another length than the list")?;
    let now = parse_number(time).ok_or("time")?;
    let grants = lines.map(|line| Grant::read(&mut words(line))).collect::<Read<_>>()?;
    Ok(Replies { now, grants, results })
}

/// Reads the line of one request. That of an error is as on the wire.
fn result(line: &[u8]) -> Read<Value> {
    match line {
        [b'-', ..] => {
            let error = redis::parse_redis_value(&[line, b"\r\n"].concat());
            error.map_err(|_| "error of a request")
        }
        _ => Ok(Value::BulkString(line.to_vec())),
    }
}

/// Reads the result of a LOCK.
pub(super) fn locked(result: Value, nonce: Nonce, key: &Arc<str>, lease: Duration) -> Read<Event> {
    let text = bytes(Some(result))?;
    let mut words = words(&text);
    let word = words.next().unwrap_or_default();
    let mut argument = || field(&mut words);
    let granted = |token, lease| {
        let (key, waited) = (key.clone(), Duration::ZERO);
        Event::Granted { nonce, key, token, waited, lease }
    };
    let limit = |what, limit| Event::Limit { nonce, what, limit };
    Ok(match word {
        b"granted" => granted(argument()?, lease),
        // Measured after the LOCK was first sent, so that it counts from there.
        b"again" => granted(argument()?, millis(argument()?)),
        b"queued" => Event::Queued { nonce, holder_lease: Some(millis(argument()?)) },
        b"held" => Event::Held { nonce },
        b"spent" => Event::Ended { nonce },
        b"stale" => Event::Stale { nonce },
        b"waiters" => limit("waiters per key", argument()?),
        b"nonces" => limit("nonces remembered", argument()?),
        _ => return Err("unknown result of LOCK"),
    })
}

/// Reads the result of an UNLOCK or EXTEND: whether the nonce held the key.
pub(super) fn held(result: Value) -> Read<bool> {
    match &*bytes(Some(result))? {
        b"held" => Ok(true),
        b"gone" => Ok(false),
        _ => Err("unknown result"),
    }
}

/// Reads the result of a POLL: the state of each of these nonces, in their order.
pub(super) fn found(result: Value, nonces: impl Iterator<Item = Nonce>) -> Read<Vec<WaiterState>> {
    let text = bytes(Some(result))?;
    let mut parts = text.split(|byte| *byte == b',');
    let remaining = parts.next().and_then(parse_number).ok_or("remaining lease")?;
    let waiting = WaiterState::Waiting { remaining: millis(remaining) };
    let mut others = BTreeMap::new();
    for part in parts {
        let mut of_part = words(part);
        let nonce = of_part.next().and_then(parse_nonce).ok_or("nonce of a waiter")?;
        let state = match of_part.next() {
            Some(b"spent") => WaiterState::Ended,
            Some(b"unknown") => WaiterState::Unknown,
            _ => WaiterState::Holds(Grant::read(&mut words(part))?),
        };
        others.insert(nonce, state);
    }
    Ok(nonces.map(|nonce| others.get(&nonce).copied().unwrap_or(waiting)).collect())
}

/// Reads the result of an INSPECT at this time of the server: who holds the key.
pub(super) fn inspected(result: Value, now: u64) -> Read<Option<Inspection>> {
    let text = bytes(Some(result))?;
    let mut words = text.splitn(7, |byte| *byte == b' ');
    match words.next() {
        Some(b"free") => return Ok(None),
        Some(b"held") => {}
        Some(b"foreign") => return Err(FOREIGN),
        _ => return Err("unknown result of INSPECT"),
    }
    let nonce = words.next().and_then(parse_nonce).ok_or("nonce of the holder")?;
    let mut number = || words.next().and_then(parse_number).ok_or("number expected in a text");
    let (fencing_token, granted, remaining, waiters) =
        (number()?, number()?, millis(number()?), number()?);
    // "pid host +label", or " -" without a label.
    let owner = percent_decode(words.next().ok_or(FOREIGN)?).decode_utf8_lossy();
    let fields: Vec<&str> = owner.splitn(3, ' ').collect();
    let [pid, host, label] = fields[..] else { return Err(FOREIGN) };
    Ok(Some(Inspection {
        fencing_token,
        nonce,
        owner: Owner {
            host: host.to_owned(),
            pid: pid.parse().map_err(|_| FOREIGN)?,
            label: label.strip_prefix('+').map(str::to_owned),
        },
        held_for: Duration::from_micros(now.saturating_sub(granted)),
        remaining,
        waiters,
    }))
}

const FOREIGN: &str = "the stored value is not a lock";

/// The keys of a part of a scan, and the cursor of the next part, if there is one.
pub(super) type Scanned = (Vec<Vec<u8>>, Option<Arc<str>>);

/// Reads the reply to `SCAN`: names, and where to continue if there may be more.
pub(super) fn scanned(value: Value) -> Read<Scanned> {
    let mut parts = array(Some(value))?.into_iter();
    let cursor = String::from_utf8(bytes(parts.next())?).map_err(|_| "cursor")?;
    let names = array(parts.next())?.into_iter().map(|name| bytes(Some(name)));
    Ok((names.collect::<Read<_>>()?, (cursor != "0").then(|| cursor.into())))
}

/// Reads the reply to `TIME`, in microseconds.
pub(super) fn time(value: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(value).ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// Reads where a Sentinel says that a master is: host and port, which errors show.
pub(super) fn master(value: Value) -> Option<(String, u16)> {
    let (host, port): (String, String) = redis::from_redis_value(value).ok()?;
    (!host.contains(is_unsafe)).then_some((host, port.parse().ok()?))
}

/// A node of a Cluster: its host, unless it is the host of the node that says so, and its port.
pub(super) type Node = (Option<String>, u16);

/// Reads the replies to `CLUSTER KEYSLOT` and `CLUSTER SLOTS`: the slot, and the nodes that serve
/// it, its master first.
pub(super) fn slot_and_nodes([slot, ranges]: [Value; 2]) -> Read<(u64, Vec<Node>)> {
    let slot = number(Some(slot))?;
    for range in array(Some(ranges))? {
        let mut parts = array(Some(range))?.into_iter();
        if (number(parts.next())?..=number(parts.next())?).contains(&slot) {
            return Ok((slot, parts.map(node).collect::<Read<_>>()?));
        }
    }
    Ok((slot, Vec::new()))
}

fn node(value: Value) -> Read<Node> {
    let mut parts = array(Some(value))?.into_iter();
    let host = match parts.next() {
        Some(Value::Nil) => None,
        host => Some(String::from_utf8(bytes(host)?).map_err(|_| "host")?),
    };
    if host.as_deref().is_some_and(|host| host.contains(is_unsafe)) {
        return Err("host");
    }
    let port = number(parts.next())?.try_into().map_err(|_| "port")?;
    // An unknown endpoint is that at which the node was asked.
    Ok((host.filter(|host| !matches!(host.as_str(), "" | "?")), port))
}

/// A force-unlock, as published to all processes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForceUnlock {
    pub(super) nonce: Nonce,
    pub(super) token: u64,
    pub(super) key: Arc<str>,
    /// The process and the reason.
    pub(super) note: Arc<str>,
}

/// Writes "2 nonce token bytes key note", where `bytes` is the length of the key.
pub(super) fn forced_payload(nonce: Nonce, token: u64, key: &str, note: &str) -> String {
    format!("2 {nonce} {token} {} {key}{note}", key.len())
}

/// Reads what [`forced_payload`] writes.
pub(super) fn forced(payload: &[u8]) -> Option<ForceUnlock> {
    let mut fields = payload.splitn(5, |byte| *byte == b' ');
    if fields.next()? != b"2" {
        return None;
    }
    let nonce = parse_nonce(fields.next()?)?;
    let (token, length) = (parse_number(fields.next()?)?, parse_number(fields.next()?)?);
    let rest = std::str::from_utf8(fields.next()?).ok()?;
    let (key, note) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some(ForceUnlock { nonce, token, key: key.into(), note: note.into() })
}

/// Reads "1 nonce token enqueued granted lease", as published, with a line for each further grant.
/// The first number is the version.
pub(super) fn published(payload: &[u8]) -> Option<Vec<Grant>> {
    let payload = payload.strip_prefix(b"1 ")?;
    let lines = payload.split(|byte| *byte == b'\n');
    lines.map(|line| Grant::read(&mut words(line)).ok()).collect()
}

impl Grant {
    /// Reads "nonce token enqueued granted lease": both stamps are microseconds of the server's
    /// clock, which can be stepped back.
    fn read(fields: &mut Words<'_>) -> Read<Self> {
        let nonce = fields.next().and_then(parse_nonce).ok_or("nonce of a grant")?;
        let (token, enqueued, granted) = (field(fields)?, field(fields)?, field(fields)?);
        let waited = Duration::from_micros(granted.saturating_sub(enqueued));
        Ok(Self { nonce, token, waited, lease: millis(field(fields)?) })
    }
}

/// The words of a line.
type Words<'a> = slice::Split<'a, u8, fn(&u8) -> bool>;

fn words(line: &[u8]) -> Words<'_> {
    line.split(|byte| *byte == b' ')
}

fn array(value: Option<Value>) -> Read<Vec<Value>> {
    match value {
        Some(Value::Array(values)) => Ok(values),
        _ => Err("array expected"),
    }
}

fn number(value: Option<Value>) -> Read<u64> {
    match value {
        Some(Value::Int(number)) => u64::try_from(number).map_err(|_| "negative number"),
        _ => Err("number expected"),
    }
}

fn bytes(value: Option<Value>) -> Read<Vec<u8>> {
    match value {
        Some(Value::BulkString(bytes)) => Ok(bytes),
        Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
        _ => Err("string expected"),
    }
}

fn field(fields: &mut Words<'_>) -> Read<u64> {
    fields.next().and_then(parse_number).ok_or("number expected in a text")
}

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn parse_nonce(hex: &[u8]) -> Option<Nonce> {
    let digits = std::str::from_utf8(hex).ok().filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok().map(Nonce::from_u128)
}
