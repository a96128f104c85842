//! The only place that knows the API: methods, paths and bodies of requests.

use std::{fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderValue, Method};
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

/// What a request sends. A connection adds its address and its token.
pub(super) type Message = http::Request<Bytes>;

/// Asks for the name of the API: whether it is one, and knows the token.
pub(super) fn describe() -> Message {
    message(Method::GET, "/v1/", None)
}

/// Requests a lock, or the state of a waiter. The response may wait for the grant: `wait` seconds.
pub(super) fn claim(
    nonce: Nonce,
    key: &str,
    lease: Duration,
    process: &Owner,
    (may_wait, wait): (bool, u64),
) -> Message {
    let create = json!({
        "resource": key,
        "ttl": lease.as_secs_f64(),
        // How long the claim keeps its place without a request; 0 if it does not wait.
        "waiting_ttl": if may_wait { WAITER_TTL.as_secs_f64() } else { 0.0 },
        "process": process,
    });
    let mut message = message(Method::POST, CLAIMS, Some(&create));
    let mut set = |name, text: String| {
        let value = HeaderValue::from_str(&text).expect("digits and letters");
        message.headers_mut().insert(name, value);
    };
    set("idempotency-key", at_server(nonce).to_string());
    if wait > 0 {
        set("prefer", format!("wait={wait}"));
    }
    message
}

/// The request of any other command.
pub(super) fn command(command: &Command) -> Message {
    match command {
        Command::Unlock { nonce, key, token, forced, .. } => {
            let change = match forced {
                Some(note) => json!({ "status": "revoked", "reason": note }),
                None if *token == 0 => json!({ "status": "withdrawn" }),
                None => json!({ "status": "released" }),
            };
            message(Method::PATCH, &path_of(*nonce, key), Some(&change))
        }
        Command::Extend { nonce, key, lease, .. } => {
            let ttl = (*lease).max(TTL_MIN).as_secs_f64();
            message(Method::PATCH, &path_of(*nonce, key), Some(&json!({ "ttl": ttl })))
        }
        Command::Check { nonce, key, .. } => message(Method::GET, &path_of(*nonce, key), None),
        Command::Inspect { key, .. } => list(&[("resource", key)]),
        Command::Scan { after, prefix, limit, .. } => {
            let cursor = after.as_deref().unwrap_or_default();
            let limit = limit.to_string();
            list(&[("prefix", prefix), ("cursor", cursor), ("limit", &limit)])
        }
        Command::Lock { .. } => unreachable!("a LOCK is a claim"),
    }
}

/// Asks for active claims.
fn list(filters: &[(&str, &str)]) -> Message {
    let mut path = format!("{CLAIMS}?status=active");
    for (name, value) in filters {
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        write!(path, "&{name}={value}").expect("a String takes all");
    }
    message(Method::GET, &path, None)
}

fn message(method: Method, path: &str, body: Option<&Value>) -> Message {
    let body = body.map(|body| body.to_string().into()).unwrap_or_default();
    let message = http::Request::builder().method(method).uri(path).body(body);
    message.expect("the path is encoded")
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
