//! What operations ask: readiness, metrics, the status as JSON, and the page that shows it.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    sync::{Arc, LazyLock, PoisonError},
};

use axum::{
    Extension,
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use gaggle::{
    MemberStatus, Nonce,
    operator::{Entry, ListOptions},
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::{
    access::Caller,
    id::ClaimId,
    owner::{process_of, token_of},
    problem::{self, Problem},
    service::ServiceState,
};

/// How many keys are shown: those with the most waiters.
const KEYS_MAX: usize = 100;

const PAGE: &str = include_str!("status/page.html");

/// The page may run its own script, apply its own style, and send requests to its own server.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |tag: &str| {
        let (_, rest) = PAGE.split_once(&format!("<{tag}>")).expect("the page has one");
        let (text, _) = rest.split_once(&format!("</{tag}>")).expect("it is closed");
        STANDARD.encode(digest(&SHA256, text.as_bytes()))
    };
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash("script"),
        hash("style")
    );
    HeaderValue::from_str(&policy).expect("it is ASCII")
});

/// `GET /`: the page, which has no data.
pub(crate) async fn page() -> Response {
    let fixed = HeaderValue::from_static;
    let headers: [(HeaderName, HeaderValue); 3] = [
        (header::CONTENT_SECURITY_POLICY, POLICY.clone()),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::REFERRER_POLICY, fixed("no-referrer")),
    ];
    (headers, Html(PAGE)).into_response()
}

/// `GET /ready`.
pub(crate) async fn ready(State(state): State<Arc<ServiceState>>) -> Response {
    match state.readiness.check(&state.claims).await {
        Ok(()) => problem::json(StatusCode::OK, &json!({ "ready": true })),
        Err(problem) => problem.with("ready", false).into_response(),
    }
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(state): State<Arc<ServiceState>>) -> Result<Response, Problem> {
    let handle = state.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let handle = handle.ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "no-metrics", "this server has no metrics")
    })?;
    let media_type = HeaderValue::from_static("text/plain; version=0.0.4");
    Ok(([(header::CONTENT_TYPE, media_type)], handle.render()).into_response())
}

/// `GET /v1/status`, with the keys and losses that the caller may see.
pub(crate) async fn read(
    State(state): State<Arc<ServiceState>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    problem::json(StatusCode::OK, &status(&state, &caller).await)
}

async fn status(state: &ServiceState, caller: &Caller) -> Value {
    let claims = &*state.claims;
    let mut problem = state.readiness.check(claims).await.err();
    let (mut entries, is_complete) =
        claims.all_held(ListOptions::default()).await.unwrap_or_else(|error| {
            problem.get_or_insert(error);
            Default::default()
        });
    let nonces: BTreeSet<Nonce> = entries.iter().map(|entry| entry.holder.nonce).collect();
    entries.retain(|entry| caller.may_see(token_of(&entry.holder.owner)));
    let waiting: u64 = entries.iter().map(|entry| entry.holder.waiters).sum();
    let count = entries.len();
    entries.sort_by_key(|Entry { holder, .. }| Reverse((holder.waiters, holder.held_for)));
    entries.truncate(KEYS_MAX);
    json!({
        "strategy": claims.mutex.capabilities().strategy,
        "caller": &*caller.name,
        "role": if caller.is_operator() { "operator" } else { "client" },
        "ready": problem.is_none(),
        "problem": problem.as_ref().map(Problem::summary),
        "group": claims.mutex.group_status().as_ref().map(group),
        "held": count,
        "waiting": waiting,
        "is_complete": is_complete,
        "keys": entries.iter().map(key).collect::<Vec<_>>(),
        "losses": claims.losses(caller, &nonces),
    })
}

fn group(status: &MemberStatus) -> Value {
    json!({
        "id": status.group.map(|id| format!("{id:032x}")),
        "leader": status.leader.as_ref().map(ToString::to_string),
        "leads": status.leads,
        "members": status.members.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "term": status.term,
    })
}

fn key(Entry { key, holder }: &Entry) -> Value {
    json!({
        "id": ClaimId { nonce: holder.nonce, key: key.clone() }.to_string(),
        "resource": &**key,
        "holder": process_of(&holder.owner).to_string(),
        "held_for": holder.held_for.as_secs_f64(),
        "ttl": holder.remaining.as_secs_f64(),
        "waiters": holder.waiters,
        "fencing_token": holder.fencing_token.to_string(),
    })
}
