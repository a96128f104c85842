//! What the scripts answer, read with suspicion: bytes from the network never panic.

#[cfg(test)]
mod tests;

use std::{time::Duration, vec};

use redis::Value;

use super::{keys::BUCKETS, trouble::Trouble};
use crate::{Inspection, Nonce, Owner};

/// An answer of any script.
#[derive(Debug)]
pub(super) struct Reply {
    /// The server's time in microseconds, where the reply has it.
    pub(super) now: Option<u64>,
    /// Grants to waiters of this process that the script made on its way.
    pub(super) own: Vec<Granted>,
    /// Whether it was the answer of the shortest way: nobody waited, and nothing was remembered.
    pub(super) short: bool,
    /// The rest, as the verb has it.
    rest: vec::IntoIter<Value>,
}

/// A grant to a waiter, with both stamps of the server's clock in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) nonce: Nonce,
    pub(super) token: u64,
    pub(super) enqueued: u64,
    pub(super) granted: u64,
}

/// The answer to a LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The key was free.
    Granted { token: u64 },
    /// The nonce holds already.
    Again { token: u64, remaining: Duration },
    /// It waits for a lease that ends in this time if it is not extended.
    Queued { remaining: Duration },
    /// Another holds the key.
    Held,
    /// The nonce has ended.
    Spent,
    /// A bound is reached.
    Limit { what: &'static str, limit: u64 },
    /// The sender's time was too old.
    Stale,
}

/// What became of a waiter, as a poll finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Waiting { remaining: Duration },
    Granted(Granted),
    Spent,
    Unknown,
}

type Read<T> = Result<T, Trouble>;

/// The server's time, and for how long the lease lasts that a LOCK waits for, where its answer says
/// nothing else.
pub(super) fn only_queued(value: &Value) -> Option<(u64, Duration)> {
    let parts = match value {
        Value::BulkString(text) => return place(text),
        Value::Array(parts) => parts,
        _ => return None,
    };
    let (now, remaining) = match &parts[..] {
        [Value::Int(now), Value::Array(own), Value::Array(answer)] if own.is_empty() => {
            match &answer[..] {
                [Value::BulkString(word), Value::Int(remaining)] if word == b"queued" => {
                    (now, remaining)
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    let (now, remaining) = (u64::try_from(*now).ok()?, u64::try_from(*remaining).ok()?);
    Some((now, Duration::from_millis(remaining)))
}

/// Reads "queued now remaining".
fn place(text: &[u8]) -> Option<(u64, Duration)> {
    let mut numbers = text.strip_prefix(b"queued ")?.split(|byte| *byte == b' ').map(parse_number);
    let (Some(now), Some(remaining), None) = (numbers.next()?, numbers.next()?, numbers.next())
    else {
        return None;
    };
    Some((now, Duration::from_millis(remaining)))
}

impl Reply {
    pub(super) fn read(value: Value) -> Read<Self> {
        // The shortest answers are a number, the next a text.
        match value {
            Value::Int(_) => {
                let rest = vec![value].into_iter();
                return Ok(Self { now: None, own: Vec::new(), short: true, rest });
            }
            Value::BulkString(text) => return Self::read_text(&text),
            _ => {}
        }
        let mut rest = array(value)?.into_iter();
        let now = Some(number(next(&mut rest)?)?);
        let own = array(next(&mut rest)?)?.into_iter();
        let own = own.map(|grant| {
            let text = bytes(grant)?;
            Granted::read(&mut text.split(|byte| *byte == b' '))
        });
        let own = own.collect::<Read<_>>()?;
        let short = matches!(rest.as_slice(), [Value::Int(_)]);
        Ok(Self { now, own, short, rest })
    }

    /// Reads "queued now remaining", of a LOCK, or "held now" and a grant if there is one, of an UNLOCK.
    fn read_text(text: &[u8]) -> Read<Self> {
        if let Some((now, remaining)) = place(text) {
            let remaining = i64::try_from(remaining.as_millis()).unwrap_or(i64::MAX);
            let queued = vec![Value::SimpleString("queued".into()), Value::Int(remaining)];
            let rest = vec![Value::Array(queued)].into_iter();
            return Ok(Self { now: Some(now), own: Vec::new(), short: false, rest });
        }
        let mut fields = text.split(|byte| *byte == b' ').peekable();
        if fields.next() != Some(b"held") {
            return Err(Trouble::Malformed("a text of an unknown kind"));
        }
        let now = fields.next().and_then(parse_number).ok_or(Trouble::Malformed("no time"))?;
        let mut own = Vec::new();
        if fields.peek().is_some() {
            own.push(Granted::read(&mut fields)?);
        }
        let rest = vec![Value::SimpleString("held".into())].into_iter();
        Ok(Self { now: Some(now), own, short: false, rest })
    }

    /// The next answer to a LOCK.
    pub(super) fn answer(&mut self) -> Read<Answer> {
        let parts = match next(&mut self.rest)? {
            // A grant whose token is its time, unless that stands before it.
            Value::Int(token) => {
                let token = number(Value::Int(token))?;
                self.now.get_or_insert(token);
                return Ok(Answer::Granted { token });
            }
            parts => array(parts)?,
        };
        let mut parts = parts.into_iter();
        let word = bytes(next(&mut parts)?)?;
        let mut argument = || number(next(&mut parts)?);
        Ok(match word.as_slice() {
            b"granted" => Answer::Granted { token: argument()? },
            b"again" => {
                Answer::Again { token: argument()?, remaining: Duration::from_millis(argument()?) }
            }
            b"queued" => Answer::Queued { remaining: Duration::from_millis(argument()?) },
            b"held" => Answer::Held,
            b"spent" => Answer::Spent,
            b"stale" => Answer::Stale,
            b"waiters" => Answer::Limit { what: "waiters per key", limit: argument()? },
            b"nonces" => Answer::Limit { what: "nonces remembered", limit: argument()? },
            _ => return Err(Trouble::Malformed("an answer to LOCK of an unknown kind")),
        })
    }

    /// Whether the nonce of an UNLOCK or EXTEND held the key.
    pub(super) fn held(&mut self) -> Read<bool> {
        Ok(match next(&mut self.rest)? {
            Value::Int(number) => number == 1,
            word => bytes(word)? == b"held",
        })
    }

    /// What a POLL found of the next key's nonces.
    pub(super) fn found(&mut self, nonces: &[Nonce]) -> Read<Vec<(Nonce, Found)>> {
        let mut parts = array(next(&mut self.rest)?)?.into_iter();
        let remaining = Duration::from_millis(number(next(&mut parts)?)?);
        let waiting = |nonce: &Nonce| (*nonce, Found::Waiting { remaining });
        let mut found: Vec<_> = nonces.iter().map(waiting).collect();
        for part in parts {
            let mut part = array(part)?.into_iter();
            let place = usize::try_from(number(next(&mut part)?)?).ok();
            let entry = place.and_then(|place| found.get_mut(place.checked_sub(1)?));
            let (nonce, entry) = entry.ok_or(Trouble::Malformed("no such waiter in a POLL"))?;
            *entry = match bytes(next(&mut part)?)?.as_slice() {
                b"spent" => Found::Spent,
                b"unknown" => Found::Unknown,
                b"granted" => Found::Granted(Granted {
                    nonce: *nonce,
                    token: number(next(&mut part)?)?,
                    enqueued: number(next(&mut part)?)?,
                    granted: number(next(&mut part)?)?,
                }),
                _ => return Err(Trouble::Malformed("an answer to POLL of an unknown kind")),
            };
        }
        Ok(found)
    }

    /// Who holds, as INSPECT has it.
    pub(super) fn inspection(&mut self) -> Read<Option<Inspection>> {
        let value = match next(&mut self.rest)? {
            Value::Nil | Value::Boolean(false) => return Ok(None),
            value => bytes(value)?,
        };
        let remaining = Duration::from_millis(number(next(&mut self.rest)?)?);
        let waiters = number(next(&mut self.rest)?)?;
        // "nonce flag token enqueued granted owner", the owner being "pid host" and " +label" or
        // " -".
        let text = String::from_utf8_lossy(&value);
        let fields: Vec<&str> = text.splitn(8, ' ').collect();
        let [nonce, _, token, _, _, pid, host, label] = fields[..] else {
            return Err(Trouble::Malformed("a lock's value"));
        };
        let wrong = || Trouble::Malformed("a lock's value");
        Ok(Some(Inspection {
            fencing_token: token.parse().map_err(|_| wrong())?,
            nonce: parse_nonce(nonce.as_bytes()).ok_or_else(wrong)?,
            owner: Owner {
                host: host.to_owned(),
                pid: pid.parse().map_err(|_| wrong())?,
                label: label.strip_prefix('+').map(str::to_owned),
            },
            remaining,
            waiters,
        }))
    }
}

impl Granted {
    /// Reads "1 bucket nonce token enqueued granted", as published. The first number is the
    /// version.
    pub(super) fn published(payload: &[u8]) -> Option<(usize, Self)> {
        let mut fields = payload.split(|byte| *byte == b' ');
        if fields.next()? != b"1" {
            return None;
        }
        let bucket = usize::try_from(parse_number(fields.next()?)?).ok()?;
        let granted = Self::read(&mut fields).ok()?;
        (bucket < BUCKETS).then_some((bucket, granted))
    }

    fn read<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Read<Self> {
        let mut field = || fields.next().ok_or(Trouble::Malformed("a short grant"));
        let wrong = Trouble::Malformed("a grant");
        let nonce = parse_nonce(field()?).ok_or_else(|| wrong.clone())?;
        let mut number = || parse_number(field()?).ok_or_else(|| wrong.clone());
        Ok(Self { nonce, token: number()?, enqueued: number()?, granted: number()? })
    }
}

fn next(values: &mut impl Iterator<Item = Value>) -> Read<Value> {
    values.next().ok_or(Trouble::Malformed("too short"))
}

fn array(value: Value) -> Read<Vec<Value>> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(Trouble::Malformed("no array")),
    }
}

fn number(value: Value) -> Read<u64> {
    match value {
        Value::Int(number) => u64::try_from(number).map_err(|_| Trouble::Malformed("negative")),
        _ => Err(Trouble::Malformed("no number")),
    }
}

fn bytes(value: Value) -> Read<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        _ => Err(Trouble::Malformed("no string")),
    }
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn parse_nonce(hex: &[u8]) -> Option<Nonce> {
    let digits = std::str::from_utf8(hex).ok().filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok().map(Nonce::from_u128)
}
