//! The only place that reads replies of the scripts and publications.
//!
//! No bytes make it panic.

#[cfg(test)]
mod tests;

use std::{slice, sync::Arc, time::Duration};

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

/// A reply of any script.
#[derive(Debug, PartialEq)]
pub(super) struct Reply<T> {
    /// The server's time in microseconds, or zero where the script did not read it.
    pub(super) now: u64,
    /// Grants to waiters of this process that the script made.
    pub(super) grants: Vec<Grant>,
    pub(super) result: T,
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

/// Reads the reply to a LOCK.
pub(super) fn locked(
    value: Value,
    nonce: Nonce,
    key: &Arc<str>,
    lease: Duration,
) -> Read<Reply<Event>> {
    read(Some(value), |words| {
        let word = words.next().unwrap_or_default();
        let mut argument = || field(words);
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
            _ => return Err("unknown reply to LOCK"),
        })
    })
}

/// Reads the reply to an UNLOCK or EXTEND: whether the nonce held the key.
pub(super) fn held(value: Value) -> Read<Reply<bool>> {
    read(Some(value), |words| match words.next() {
        Some(b"held") => Ok(true),
        Some(b"gone") => Ok(false),
        _ => Err("unknown reply"),
    })
}

/// Reads the reply to a POLL: what each of `count` nonces is, in their order.
pub(super) fn found(value: Value, count: usize) -> Read<Reply<Vec<WaiterState>>> {
    let mut parts = array(Some(value))?.into_iter();
    let Reply { now, grants, result } = read(parts.next(), |words| field(words).map(millis))?;
    let mut found = vec![WaiterState::Waiting { remaining: result }; count];
    for part in parts {
        let text = bytes(Some(part))?;
        let mut words = words(&text);
        let number = usize::try_from(field(&mut words)?).ok();
        let at = number.and_then(|number| number.checked_sub(1));
        let entry = at.and_then(|at| found.get_mut(at)).ok_or("unknown waiter in reply to POLL")?;
        *entry = match words.next() {
            Some(b"spent") => WaiterState::Ended,
            Some(b"unknown") => WaiterState::Unknown,
            Some(b"granted") => WaiterState::Holds(Grant::read(&mut words)?),
            _ => return Err("unknown reply to POLL"),
        };
    }
    Ok(Reply { now, grants, result: found })
}

/// Reads the reply to an INSPECT: who holds the key.
pub(super) fn inspected(value: Value) -> Read<Reply<Option<Inspection>>> {
    let mut parts = match value {
        Value::Array(parts) => parts.into_iter(),
        text => vec![text].into_iter(),
    };
    let Reply { now, grants, result: held } = read(parts.next(), |words| match words.next() {
        Some(b"free") => Ok(None),
        Some(b"held") => {
            let nonce = words.next().and_then(parse_nonce).ok_or("nonce of the holder")?;
            Ok(Some((nonce, field(words)?, field(words)?, field(words)?, field(words)?)))
        }
        Some(b"foreign") => Err(FOREIGN),
        _ => Err("unknown reply to INSPECT"),
    })?;
    let Some((nonce, fencing_token, granted, remaining, waiters)) = held else {
        return Ok(Reply { now, grants, result: None });
    };
    let owner = bytes(parts.next())?;
    // "pid host +label", or " -" without a label.
    let text = String::from_utf8_lossy(&owner);
    let fields: Vec<&str> = text.splitn(3, ' ').collect();
    let [pid, host, label] = fields[..] else { return Err(FOREIGN) };
    let result = Some(Inspection {
        fencing_token,
        nonce,
        owner: Owner {
            host: host.to_owned(),
            pid: pid.parse().map_err(|_| FOREIGN)?,
            label: label.strip_prefix('+').map(str::to_owned),
        },
        held_for: Duration::from_micros(now.saturating_sub(granted)),
        remaining: millis(remaining),
        waiters,
    });
    Ok(Reply { now, grants, result })
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

/// Reads "1 nonce token enqueued granted lease", as published. The first number is the version.
pub(super) fn published(payload: &[u8]) -> Option<Grant> {
    let mut fields = words(payload);
    if fields.next()? != b"1" {
        return None;
    }
    Grant::read(&mut fields).ok()
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

/// Reads the text of a reply: "now result", the result by `result`, and a line for each grant.
fn read<T>(text: Option<Value>, result: impl FnOnce(&mut Words<'_>) -> Read<T>) -> Read<Reply<T>> {
    let text = bytes(text)?;
    let mut lines = text.split(|byte| *byte == b'\n').map(words);
    let mut first = lines.next().unwrap_or_else(|| words(&[]));
    let now = field(&mut first)?;
    let result = result(&mut first)?;
    let grants = lines.map(|mut line| Grant::read(&mut line)).collect::<Read<_>>()?;
    Ok(Reply { now, grants, result })
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
