//! The only place that reads replies of the scripts and publications. No bytes make it panic.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration, vec};

use redis::Value;

use super::keys::BUCKETS;
use crate::{Inspection, Nonce, Owner, printable::is_unsafe};

/// Published to the process itself at the handshake, to check the right to publish.
pub(super) const HELLO: &str = "0";

/// Why a reply is malformed.
pub(super) type Malformed = &'static str;

type Read<T> = Result<T, Malformed>;

/// A reply of any script.
#[derive(Debug, PartialEq)]
pub(super) struct Reply<T> {
    /// The server's time in microseconds, where the reply has it.
    pub(super) now: Option<u64>,
    /// Grants to waiters of this process that the script made.
    pub(super) grants: Vec<Grant>,
    pub(super) result: T,
}

/// A grant to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) nonce: Nonce,
    pub(super) token: u64,
    /// Both stamps are microseconds of the server's clock.
    enqueued: u64,
    granted: u64,
    lease: Option<Duration>,
}

impl Grant {
    #[cfg(test)]
    pub(super) fn example(nonce: Nonce, token: u64) -> Self {
        Self { nonce, token, enqueued: 100, granted: 400, lease: Some(Duration::from_secs(5)) }
    }

    /// How long the waiter has waited, and its lease; `requested` is the lease in its LOCK.
    pub(super) fn waited_and_lease(&self, requested: Duration) -> (Duration, Duration) {
        let waited = Duration::from_micros(self.granted.saturating_sub(self.enqueued));
        (waited, self.lease.unwrap_or(requested))
    }
}

/// The reply to a LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    /// The key was free.
    Now { token: u64 },
    /// The nonce holds already, for this much longer.
    Again { token: u64, remaining: Duration },
    /// It waits for a lease that ends after this time if it is not extended.
    Queued { remaining: Duration },
    /// Another acquisition holds the key.
    Held,
    /// The nonce has ended.
    Ended,
    /// A bound is reached.
    Limit { what: &'static str, limit: u64 },
    /// The time that the sender knew was too old.
    Stale,
}

/// The state of a nonce, as a POLL finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It waits for a lease that ends after this time if it is not extended.
    Waiting {
        remaining: Duration,
    },
    Holds(Grant),
    /// It was granted and its lease is over, or it was withdrawn.
    Ended,
    Unknown,
}

/// Reads the reply to a LOCK of one nonce.
pub(super) fn locked(value: Value) -> Read<Reply<Locked>> {
    // The fast path: a grant whose token is the time.
    if let Value::Int(token) = value {
        let token = u64::try_from(token).map_err(|_| "negative token")?;
        let (now, grants) = (Some(token), Vec::new());
        return Ok(Reply { now, grants, result: Locked::Now { token } });
    }
    read(value, |rest| {
        let mut parts = array(rest.next())?.into_iter();
        let word = bytes(parts.next())?;
        let mut argument = || number(parts.next());
        Ok(match word.as_slice() {
            b"granted" => Locked::Now { token: argument()? },
            b"again" => Locked::Again { token: argument()?, remaining: millis(argument()?) },
            b"queued" => Locked::Queued { remaining: millis(argument()?) },
            b"held" => Locked::Held,
            b"spent" => Locked::Ended,
            b"stale" => Locked::Stale,
            b"waiters" => Locked::Limit { what: "waiters per key", limit: argument()? },
            b"nonces" => Locked::Limit { what: "nonces remembered", limit: argument()? },
            _ => return Err("unknown reply to LOCK"),
        })
    })
}

/// Reads the reply to an UNLOCK: whether the nonce held the key or waited for it.
pub(super) fn unlocked(value: Value) -> Read<Reply<bool>> {
    match &value {
        // It held, and there was no waiter.
        Value::Int(1) => return Ok(Reply { now: None, grants: Vec::new(), result: true }),
        Value::BulkString(text) => return handed_off(text),
        _ => {}
    }
    read(value, |rest| {
        Ok(match bytes(rest.next())?.as_slice() {
            b"held" | b"waited" => true,
            b"gone" => false,
            _ => return Err("unknown reply to UNLOCK"),
        })
    })
}

/// Reads "held now", and a grant if the next holder is of this process.
fn handed_off(text: &[u8]) -> Read<Reply<bool>> {
    let mut fields = text.split(|byte| *byte == b' ').peekable();
    if fields.next() != Some(b"held") {
        return Err("unknown text in reply to UNLOCK");
    }
    let now = Some(field(&mut fields)?);
    let mut grants = Vec::new();
    if fields.peek().is_some() {
        grants.push(Grant::read(&mut fields)?);
    }
    Ok(Reply { now, grants, result: true })
}

/// Reads the reply to an EXTEND: whether the nonce holds the key with that token.
pub(super) fn extended(value: Value) -> Read<Reply<bool>> {
    read(value, |rest| {
        Ok(match bytes(rest.next())?.as_slice() {
            b"held" => true,
            b"gone" => false,
            _ => return Err("unknown reply to EXTEND"),
        })
    })
}

/// Reads the reply to a POLL of these nonces, grouped by key: what each is, in their order.
pub(super) fn found(value: Value, groups: &[Vec<Nonce>]) -> Read<Reply<Vec<Found>>> {
    read(value, |rest| {
        let mut all = Vec::with_capacity(groups.iter().map(Vec::len).sum());
        for nonces in groups {
            let mut parts = array(rest.next())?.into_iter();
            let remaining = millis(number(parts.next())?);
            let first = all.len();
            all.resize(first + nonces.len(), Found::Waiting { remaining });
            for part in parts {
                let mut part = array(Some(part))?.into_iter();
                let place = usize::try_from(number(part.next())?).ok();
                let place = place.and_then(|place| place.checked_sub(1));
                let (at, nonce) = place
                    .and_then(|at| Some((at, *nonces.get(at)?)))
                    .ok_or("unknown waiter in reply to POLL")?;
                all[first + at] = match bytes(part.next())?.as_slice() {
                    b"spent" => Found::Ended,
                    b"unknown" => Found::Unknown,
                    b"granted" => Found::Holds(Grant {
                        nonce,
                        token: number(part.next())?,
                        enqueued: number(part.next())?,
                        granted: number(part.next())?,
                        lease: part
                            .next()
                            .map(|lease| number(Some(lease)))
                            .transpose()?
                            .map(millis),
                    }),
                    _ => return Err("unknown reply to POLL"),
                };
            }
        }
        Ok(all)
    })
}

/// Reads the reply to an INSPECT: who holds the key.
pub(super) fn inspected(value: Value) -> Read<Reply<Option<Inspection>>> {
    let now = match &value {
        Value::Array(values) => number(values.first().cloned())?,
        _ => return Err("array expected"),
    };
    read(value, |rest| {
        let value = match rest.next() {
            Some(Value::Nil | Value::Boolean(false)) => return Ok(None),
            value => bytes(value)?,
        };
        let (remaining, waiters) = (millis(number(rest.next())?), number(rest.next())?);
        let wrong = "the stored value is no lock";
        let text = String::from_utf8_lossy(&value);
        // "nonce flag token enqueued granted owner", the owner being "pid host" and " +label" or
        // " -".
        let fields: Vec<&str> = text.splitn(8, ' ').collect();
        let [nonce, _, token, _, granted, pid, host, label] = fields[..] else { return Err(wrong) };
        let granted = parse_number(granted.as_bytes()).ok_or(wrong)?;
        Ok(Some(Inspection {
            fencing_token: token.parse().map_err(|_| wrong)?,
            nonce: parse_nonce(nonce.as_bytes()).ok_or(wrong)?,
            owner: Owner {
                host: host.to_owned(),
                pid: pid.parse().map_err(|_| wrong)?,
                label: label.strip_prefix('+').map(str::to_owned),
            },
            held_for: Duration::from_micros(now.saturating_sub(granted)),
            remaining,
            waiters,
        }))
    })
}

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
    let Value::Array(parts) = value else { return None };
    let part = |part: Option<&Value>| match part {
        Some(Value::BulkString(digits)) => parse_number(digits),
        _ => None,
    };
    let (seconds, micros) = (part(parts.first())?, part(parts.get(1))?);
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// Reads the reply to `INFO`.
pub(super) fn text(value: Value) -> String {
    match value {
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    }
}

/// Reads where a Sentinel says that a master is: host and port, which errors show.
pub(super) fn master(value: Value) -> Option<(String, u16)> {
    let mut parts = array(Some(value)).ok()?.into_iter();
    let host = String::from_utf8(bytes(parts.next()).ok()?).ok()?;
    let port = String::from_utf8(bytes(parts.next()).ok()?).ok()?;
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
    Ok((host.filter(|host| !host.is_empty()), port))
}

/// A force-unlock, as published to all processes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forced {
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
pub(super) fn forced(payload: &[u8]) -> Option<Forced> {
    let mut fields = payload.splitn(5, |byte| *byte == b' ');
    if fields.next()? != b"2" {
        return None;
    }
    let nonce = parse_nonce(fields.next()?)?;
    let (token, length) = (parse_number(fields.next()?)?, parse_number(fields.next()?)?);
    let rest = std::str::from_utf8(fields.next()?).ok()?;
    let (key, note) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some(Forced { nonce, token, key: key.into(), note: note.into() })
}

/// Reads "1 bucket nonce token enqueued granted lease", as published. The first number is the
/// version.
pub(super) fn published(payload: &[u8]) -> Option<Grant> {
    let mut fields = payload.split(|byte| *byte == b' ');
    if fields.next()? != b"1" {
        return None;
    }
    let bucket = usize::try_from(parse_number(fields.next()?)?).ok()?;
    let grant = Grant::read(&mut fields).ok()?;
    (bucket < BUCKETS).then_some(grant)
}

impl Grant {
    /// Reads "nonce token enqueued granted lease".
    fn read<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Read<Self> {
        let nonce = fields.next().and_then(parse_nonce).ok_or("nonce of a grant")?;
        let (token, enqueued, granted) = (field(fields)?, field(fields)?, field(fields)?);
        let lease = fields.next().map(|lease| parse_number(lease).ok_or("lease of a grant"));
        Ok(Self { nonce, token, enqueued, granted, lease: lease.transpose()?.map(millis) })
    }
}

/// Reads what every long reply begins with, and its result by `result`.
fn read<T>(
    value: Value,
    result: impl FnOnce(&mut vec::IntoIter<Value>) -> Read<T>,
) -> Read<Reply<T>> {
    let mut rest = array(Some(value))?.into_iter();
    let now = Some(number(rest.next())?);
    let grants = array(rest.next())?.into_iter().map(|grant| {
        let text = bytes(Some(grant))?;
        Grant::read(&mut text.split(|byte| *byte == b' '))
    });
    let grants = grants.collect::<Read<_>>()?;
    Ok(Reply { now, grants, result: result(&mut rest)? })
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

fn field<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Read<u64> {
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
