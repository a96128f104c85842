//! The meaning of responses, and the causes of failures.

use std::{io, sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{session::Response, wire::from_server};
use crate::{
    client::{Cause, Fate},
    error::UnavailableKind,
    lock::{Inspection, Owner},
};

/// The name of the API in the response at `/v1/`.
const API: &str = "gaggle-claims";

/// A claim in a response.
#[derive(Deserialize)]
pub(super) struct Claim {
    id: String,
    pub(super) resource: Arc<str>,
    status: String,
    ttl: Option<f64>,
    waited: Option<f64>,
    active_duration: Option<f64>,
    fencing_token: Option<String>,
    waiters: Option<u64>,
    process: Option<Owner>,
    /// The name and the reason of an operator who ended it.
    pub(super) revoked_by: Option<String>,
}

/// The response to the `POST` of a claim.
pub(super) enum Claimed {
    Granted { token: u64, waited: Duration, lease: Duration },
    Waiting,
    Held,
    Ended,
    Limit(u64),
}

/// Why a server did not do what it was asked for.
pub(super) struct Refusal {
    status: u16,
    code: String,
    text: String,
    details: Map<String, Value>,
}

impl Claim {
    /// The token of an active claim.
    pub(super) fn active_token(&self) -> Option<u64> {
        let token = self.fencing_token.as_deref().filter(|_| self.status == "active");
        token.and_then(|token| token.parse().ok())
    }

    pub(super) fn inspection(self) -> Option<Inspection> {
        Some(Inspection {
            fencing_token: self.active_token()?,
            nonce: from_server(&self.id)?,
            held_for: seconds(self.active_duration)?,
            remaining: seconds(self.ttl)?,
            waiters: self.waiters.unwrap_or(0),
            owner: self.process.unwrap_or_default(),
        })
    }
}

fn seconds(value: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(value?).ok()
}

/// Reads the response to the `POST` of a claim.
pub(super) fn claimed(response: &Response) -> Result<Claimed, Refusal> {
    match response.status.as_u16() {
        201 => {
            let claim: Claim = parsed(response)?;
            let granted = || {
                let (waited, lease) = (seconds(claim.waited)?, seconds(claim.ttl)?);
                Some(Claimed::Granted { token: claim.active_token()?, waited, lease })
            };
            granted().ok_or_else(|| Refusal::malformed("an active claim"))
        }
        202 => Ok(Claimed::Waiting),
        _ => {
            let refusal = Refusal::of(response);
            match (refusal.status, &*refusal.code) {
                (409, "locked") => Ok(Claimed::Held),
                (409, _) => Ok(Claimed::Ended),
                (429, _) => Ok(Claimed::Limit(
                    refusal.details.get("limit").and_then(Value::as_u64).unwrap_or(0),
                )),
                _ => Err(refusal),
            }
        }
    }
}

/// Reads the body of a success.
pub(super) fn parsed<'a, T: Deserialize<'a>>(response: &'a Response) -> Result<T, Refusal> {
    if !response.status.is_success() {
        return Err(Refusal::of(response));
    }
    serde_json::from_slice(&response.body).map_err(|_| Refusal::malformed("JSON of this API"))
}

/// The token of the lock that an UNLOCK has freed; 0 for a waiter.
pub(super) fn unlocked(response: &Response) -> Result<Option<u64>, Refusal> {
    if response.status.is_success() {
        let token = response.headers.get("fencing-token");
        return Ok(token.and_then(|token| token.to_str().ok()?.parse().ok()));
    }
    let refusal = Refusal::of(response);
    if refusal.is_final() { Ok(None) } else { Err(refusal) }
}

/// The cursor of the next page.
pub(super) fn next_cursor(response: &Response) -> Option<Arc<str>> {
    let next = response.headers.get("next-cursor")?.to_str().ok()?;
    Some(percent_encoding::percent_decode_str(next).decode_utf8().ok()?.into())
}

impl Refusal {
    fn of(response: &Response) -> Self {
        let details: Map<String, Value> =
            serde_json::from_slice(&response.body).unwrap_or_default();
        let text = |name| details.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (code, mut message) = (text("code"), text("message"));
        if code == "invalid-parameters" {
            // The reasons, as that a ttl is beyond the limit of the server.
            for name in ["resource", "ttl", "waiting_ttl", "process", "status"] {
                if let Some(reason) = details.get(name).and_then(Value::as_str) {
                    message = format!("{name}: {reason}");
                }
            }
        }
        Self { status: response.status.as_u16(), code, text: message, details }
    }

    fn malformed(expected: &str) -> Self {
        let text = format!("malformed response, expected {expected}");
        Self { status: 200, code: String::new(), text, details: Map::new() }
    }

    /// Whether the claim has ended, or is unknown.
    pub(super) fn is_final(&self) -> bool {
        matches!((self.status, &*self.code), (400, "invalid-status") | (404, "no-claim"))
    }

    /// The name and the reason of an operator who ended the claim.
    pub(super) fn revoked_by(&self) -> Option<String> {
        self.details.get("revoked_by").and_then(Value::as_str).map(str::to_owned)
    }

    /// How far the request got.
    pub(super) fn fate(&self) -> Fate {
        match self.status {
            // A server of ours has a code for each refusal.
            503 if self.code.is_empty() => Fate::NoReply,
            408 | 500 | 502 | 504 => Fate::NoReply,
            _ => Fate::Refused,
        }
    }

    /// Whether another node may serve the request, if there is one.
    pub(super) fn is_of_node(&self, nodes: usize) -> bool {
        self.code == "closing" || nodes > 1 && matches!(&*self.code, "no-quorum" | "unavailable")
    }

    pub(super) fn cause(&self, address: &str) -> Cause {
        let text = if self.text.is_empty() { "no reason given" } else { &self.text };
        let (kind, text) = match self.status {
            401 => return no_token(address, text),
            503 if self.code == "no-quorum" => (UnavailableKind::NoQuorum, text.to_owned()),
            429 | 503 => (UnavailableKind::Refused, text.to_owned()),
            408 | 500 | 502 | 504 => (UnavailableKind::Unreachable, text.to_owned()),
            status => (UnavailableKind::Misconfigured, format!("{text} (HTTP {status})")),
        };
        Cause::new(kind, format!("the server at {address} refused the request: {text}"))
    }
}

/// Checks that the server is one of ours, and knows the token.
pub(super) fn described(address: &str, response: &Response) -> Result<(), Cause> {
    #[derive(Deserialize)]
    struct Description {
        api: String,
    }
    match parsed::<Description>(response) {
        Ok(Description { api }) if api == API => Ok(()),
        Err(refusal) if matches!(refusal.status, 401 | 403 | 429 | 503) => {
            Err(refusal.cause(address))
        }
        _ => {
            let text = format!("the server at {address} is not a `gaggle serve`");
            Err(Cause::new(UnavailableKind::Misconfigured, text))
        }
    }
}

fn no_token(address: &str, message: &str) -> Cause {
    let text = format!(
        "the server at {address} refused the token: {message}; give it by token_file, or as the \
         password in the URL"
    );
    Cause::new(UnavailableKind::Misconfigured, text)
}

pub(super) fn unreachable(address: &str, reason: &str) -> Cause {
    let text = format!("cannot reach the server at {address}: {reason}");
    Cause::new(UnavailableKind::Unreachable, text)
}

/// The cause of an attempt that opened no stream.
pub(super) fn unopened(address: &str, error: &io::Error) -> Cause {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            let text = format!("TLS to the server at {address} failed: {error}");
            Cause::new(UnavailableKind::Misconfigured, text)
        }
        _ => unreachable(address, &error.to_string()),
    }
}

pub(super) fn no_http2(address: &str, is_tls: bool) -> Cause {
    let remedy = if is_tls { "" } else { "; if it has TLS, write https in place of http" };
    let text = format!("the server at {address} did not answer with HTTP/2{remedy}");
    Cause::new(UnavailableKind::Misconfigured, text)
}
