//! The only place that knows the API: methods, paths and bodies of requests.

use std::{fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::{
    client::{Cause, Command, Event, Fate, RequestId},
    clock::Instant,
    defaults::WAITER_TTL,
    lock::{Nonce, Owner},
};

const CLAIMS: &str = "/v1/claims/";
/// A server grants no shorter lease.
const TTL_MIN: Duration = Duration::from_millis(3);

/// A request to a server, which gets one response.
#[derive(Debug)]
pub(super) enum Request {
    /// Keeps an idle connection open.
    KeepAlive,
    Claim(ClaimRequest),
    /// Neither a LOCK nor the check of a waiter.
    Command(Command),
}

/// The `POST` of a LOCK, or of the check of a waiter, which is the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimRequest {
    pub(super) nonce: Nonce,
    pub(super) is_check: bool,
    pub(super) sent: Instant,
    /// How long the response may wait, in seconds.
    pub(super) wait: u64,
}

impl Request {
    /// Reports that it failed.
    pub(super) fn fail(&self, fate: Fate, cause: &Cause, events: &mut Vec<Event>) {
        let request = match self {
            Self::KeepAlive => return,
            Self::Claim(claim) if claim.is_check => RequestId::WaiterCheck(claim.nonce),
            Self::Claim(claim) => RequestId::Lock(claim.nonce),
            Self::Command(command) => command.request_id(),
        };
        events.push(Event::Failed { request, fate, cause: cause.clone() });
    }
}

/// What a request sends.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) method: Method,
    pub(super) path: String,
    /// Empty without a body.
    pub(super) body: Bytes,
    pub(super) idempotency_key: Option<Nonce>,
    /// How long the response may wait for the grant, in seconds.
    pub(super) wait: u64,
}

impl Message {
    fn new(method: Method, path: String, body: Option<String>) -> Self {
        let body = body.map_or_else(Bytes::new, Bytes::from);
        Self { method, path, body, idempotency_key: None, wait: 0 }
    }

    /// Asks for the name of the API: whether it is one, and knows the token.
    pub(super) fn describe() -> Self {
        Self::new(Method::GET, "/v1/".into(), None)
    }

    /// Requests a lock, or the state of a waiter.
    pub(super) fn claim(
        nonce: Nonce,
        key: &str,
        lease: Duration,
        process: &Owner,
        (may_wait, wait): (bool, u64),
    ) -> Self {
        let create = json!({
            "resource": key,
            "ttl": lease.as_secs_f64(),
            // How long the claim keeps its place without a request; 0 if it does not wait.
            "waiting_ttl": if may_wait { WAITER_TTL.as_secs_f64() } else { 0.0 },
            "process": process,
        });
        let message = Self::new(Method::POST, CLAIMS.into(), Some(create.to_string()));
        Self { idempotency_key: Some(at_server(nonce)), wait, ..message }
    }

    /// The request of any other command.
    pub(super) fn of(command: &Command) -> Self {
        match command {
            Command::Unlock { nonce, key, token, forced, .. } => {
                let change = match forced {
                    Some(note) => json!({ "status": "revoked", "reason": note }),
                    None if *token == 0 => json!({ "status": "withdrawn" }),
                    None => json!({ "status": "released" }),
                };
                update(*nonce, key, &change)
            }
            Command::Extend { nonce, key, lease, .. } => {
                let ttl = (*lease).max(TTL_MIN).as_secs_f64();
                update(*nonce, key, &json!({ "ttl": ttl }))
            }
            Command::Check { nonce, key, .. } => Self::new(Method::GET, path_of(*nonce, key), None),
            Command::Inspect { key, .. } => list(&[("resource", key)]),
            Command::Scan { after, prefix, limit, .. } => {
                let cursor = after.as_deref().unwrap_or_default();
                let limit = limit.to_string();
                list(&[("prefix", prefix), ("cursor", cursor), ("limit", &limit)])
            }
            Command::Lock { .. } => unreachable!("a LOCK is a claim"),
        }
    }
}

fn update(nonce: Nonce, key: &str, change: &Value) -> Message {
    Message::new(Method::PATCH, path_of(nonce, key), Some(change.to_string()))
}

/// Asks for active claims.
fn list(filters: &[(&str, &str)]) -> Message {
    let mut path = format!("{CLAIMS}?status=active");
    for (name, value) in filters {
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        write!(path, "&{name}={value}").expect("a String takes all");
    }
    Message::new(Method::GET, path, None)
}

fn path_of(nonce: Nonce, key: &str) -> String {
    let key = URL_SAFE_NO_PAD.encode(key.as_bytes());
    format!("{CLAIMS}{}.{key}/", at_server(nonce))
}

/// A server gives the nonces of its clients the version 8, and others have 7. Here it is the other
/// way round: the core withdraws only nonces of the version 7.
pub(super) fn at_server(nonce: Nonce) -> Nonce {
    if nonce.is_given() { Nonce::generated(nonce.as_u128()) } else { Nonce::given(nonce.as_u128()) }
}

/// The nonce here of one at a server: the inverse of [`at_server`].
pub(super) fn from_server(text: &str) -> Option<Nonce> {
    let (nonce, _) = text.split_once('.')?;
    Some(at_server(Nonce::from_u128(u128::from_str_radix(nonce, 16).ok()?)))
}
