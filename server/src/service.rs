//! [`Service`]: the routes over one strategy.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use gaggle::{Error, Locker, Order};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use url::form_urlencoded;

use crate::{
    access::{Access, Caller},
    claims::{Claim, Claims, Standing, Status, invalid_status},
    id::ClaimId,
    listen::Transport,
    log,
    options::Options,
    owner::process_of,
    problem::{self, Problem},
    readiness::{self, Readiness},
    request::{
        Create, Filters, GRANT_GRACE, Update, host, idempotency_key, object, preferred_wait,
        read_body,
    },
    status,
};

const PREFIX: &str = "/v1/claims/";
/// The name of the API in the response at `/v1/`.
const API: &str = "gaggle-claims";
/// The header of a `PATCH` to a final status: the token of the lock that it freed, or 0. Without it
/// the claim had this status before.
const FENCING_TOKEN: &str = "fencing-token";
/// The header with the cursor of the next page of a list.
const NEXT_CURSOR: &str = "next-cursor";

/// Claims over HTTP, over the strategy of a [`Locker`]. Cloning is cheap; clones share the claims.
///
/// [`router`](Self::router) is mounted in any server of axum; [`serve`](crate::serve()) is one with
/// limits for slow and silent clients.
///
/// ```
/// use gaggle_server::{Access, Options, Service};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// let service = Service::new(locker, Access::anonymous(), Options::default())?;
/// let router: axum::Router = service.router();
/// service.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Service {
    pub(crate) state: Arc<ServiceState>,
}

pub(crate) struct ServiceState {
    locker: Locker,
    pub(crate) access: Access,
    pub(crate) claims: Arc<Claims>,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Mutex<Option<PrometheusHandle>>,
}

/// The strategy cannot serve claims.
#[derive(Debug, thiserror::Error)]
#[error("claims need a strategy whose waiters queue: not noop, raft, or a Redis with queue=none")]
pub struct NoQueue;

impl Service {
    /// A service over the strategy of this locker. Over a group it spawns a task, which ends with
    /// [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// [`NoQueue`] if the strategy grants in no order.
    pub fn new(locker: Locker, access: Access, options: Options) -> Result<Self, NoQueue> {
        if locker.capabilities().order != Order::Fifo {
            return Err(NoQueue);
        }
        let claims = Arc::new(Claims::new(locker.strategy().clone(), options));
        let readiness = Readiness::watch(&claims);
        claims.watch_outages();
        let metrics = Mutex::default();
        Ok(Self { state: Arc::new(ServiceState { locker, access, claims, readiness, metrics }) })
    }

    /// Serves these metrics at `/metrics`.
    #[must_use]
    pub fn metrics(self, handle: PrometheusHandle) -> Self {
        *self.state.metrics.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        self
    }

    /// The routes, for a server of axum.
    pub fn router(&self) -> Router {
        let state = &self.state;
        let list = get(list_claims).post(create_claim);
        let claim = get(read_claim).patch(update_claim).put(update_claim);
        let guarded = Router::new()
            .route("/v1", get(describe))
            .route("/v1/", get(describe))
            .route("/v1/claims", list.clone())
            .route(PREFIX, list)
            .route("/v1/claims/{id}", claim.clone())
            .route("/v1/claims/{id}/", claim)
            .route("/v1/status", get(status::read))
            .route("/metrics", get(status::metrics))
            .layer(from_fn_with_state(state.clone(), authenticate));
        Router::new()
            .route("/", get(status::page))
            .route("/health", get(|| async { Json(json!({ "status": "ok" })) }))
            .route("/ready", get(status::ready))
            .merge(guarded)
            .fallback(|| async {
                Problem::new(StatusCode::NOT_FOUND, "no-route", "the API is at /v1/claims/")
            })
            .method_not_allowed_fallback(|| async {
                let message = "expected GET, POST, PATCH or PUT, as the path allows";
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", message)
            })
            .layer(from_fn(read_body))
            .layer(from_fn_with_state(state.clone(), log::record))
            .layer(from_fn(no_store))
            .with_state(state.clone())
    }

    /// Reads the file of tokens again.
    ///
    /// # Errors
    ///
    /// As [`Access::reload`].
    pub fn reload(&self) -> Result<(), String> {
        self.state.access.reload()
    }

    /// Completes once claims are granted, as `/ready` says: over a group when it has formed, and no
    /// claim of a former group can be active. After [`close`](Self::close) it never completes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn ready(&self) {
        self.state.readiness.wait(&self.state.claims).await;
    }

    /// Completes once the strategy has failed permanently, such as a member whose name another
    /// process has. Every later request is answered with 503.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn failure(&self) -> Error {
        readiness::failure(&self.state.claims).await
    }

    /// Answers waiting requests, refuses new claims, and closes the strategy. Active claims stay,
    /// and so do the places of waiting ones while the granting side keeps them.
    pub async fn close(&self) {
        self.begin_close();
        self.state.locker.close().await;
    }

    pub(crate) fn begin_close(&self) {
        self.state.claims.closing.cancel();
    }
}

async fn no_store(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn authenticate(
    State(state): State<Arc<ServiceState>>,
    mut request: Request,
    next: Next,
) -> Response {
    match state.access.identify(&request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller.clone());
            let mut response = next.run(request).await;
            response.extensions_mut().insert(caller);
            response
        }
        Err(problem) => {
            metrics::counter!("gaggle_http_unauthorized_total").increment(1);
            problem.into_response()
        }
    }
}

/// The URLs of claims: absolute, by the `Host` that the client has used. Without a listener of this
/// package they are relative.
struct Base(String);

impl Base {
    fn of(request: &Request) -> Self {
        let transport = request.extensions().get::<Transport>();
        Self(match transport.zip(host(request)) {
            Some((transport, host)) => format!("{}://{host}", transport.scheme()),
            None => String::new(),
        })
    }

    fn url(&self, id: &str) -> String {
        format!("{}{PREFIX}{id}/", self.0)
    }

    fn view(&self, mut claim: Value) -> Value {
        claim["url"] = self.url(claim["id"].as_str().unwrap_or_default()).into();
        claim
    }
}

async fn create_claim(
    State(state): State<Arc<ServiceState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let claims = &state.claims;
    if claims.closing.is_cancelled() {
        return Err(Problem::closing());
    }
    let base = Base::of(&request);
    let (head, body) = request.into_parts();
    let key = idempotency_key(&head.headers)?;
    let wait = preferred_wait(&head.headers);
    let object = object(&head.headers, body).await?;
    let create = Create::parse(object, claims.options.max_ttl)?;
    let received = claims.clock.now();
    let claim = claims.create(&caller, create, key).await?;
    // The client of a claim without a key learns its id by this response alone.
    let unknown = Unknown { claims, claim: Some(&claim).filter(|_| key.is_none()) };
    let standing = claims.activate(&claim, wait.max(GRANT_GRACE)).await?;
    unknown.disarm();
    let status = match standing {
        Standing::Active => StatusCode::CREATED,
        Standing::Waiting(_) => StatusCode::ACCEPTED,
        Standing::Final => {
            let status = claim.status().word();
            let message = format!("the claim of this Idempotency-Key is {status}: use another key");
            let problem = Problem::new(StatusCode::CONFLICT, "claim-ended", message);
            return Err(problem.with("status", status).with("claim_id", claim.id.to_string()));
        }
    };
    let location = base.url(&claim.id.to_string());
    let mut response = view(&state, &base, &claim, status, received);
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Withdraws a claim whose client has gone before it learned the id.
struct Unknown<'a> {
    claims: &'a Arc<Claims>,
    claim: Option<&'a Arc<Claim>>,
}

impl Unknown<'_> {
    fn disarm(mut self) {
        self.claim = None;
    }
}

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            let (claims, claim) = (self.claims.clone(), claim.clone());
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move { claims.withdraw(&claim, Status::Withdrawn).await });
            }
        }
    }
}

/// An active claim has the time that the request waited: the lease counts from its receipt.
fn view(
    state: &ServiceState,
    base: &Base,
    claim: &Claim,
    status: StatusCode,
    received: gaggle::Instant,
) -> Response {
    let now = state.claims.clock.now();
    let mut value = claim.to_json(now);
    value["waited"] = now.since(received).as_secs_f64().into();
    problem::json(status, &base.view(value))
}

async fn list_claims(
    State(state): State<Arc<ServiceState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let base = Base::of(&request);
    let filters = Filters::parse(request.uri().query().unwrap_or_default())?;
    let (claims, next) = state.claims.list(&caller, &filters).await?;
    let claims = claims.into_iter().map(|claim| base.view(claim)).collect();
    let mut response = problem::json(StatusCode::OK, &Value::Array(claims));
    if let Some(next) = next {
        let next = form_urlencoded::byte_serialize(next.as_str().as_bytes()).collect::<String>();
        let next = HeaderValue::from_str(&next).expect("it is percent-encoded");
        response.headers_mut().insert(NEXT_CURSOR, next);
    }
    Ok(response)
}

async fn read_claim(
    State(state): State<Arc<ServiceState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let (base, received) = (Base::of(&request), state.claims.clock.now());
    let id = id_of(&request)?;
    let claim = state.claims.read(&id, &caller).await?;
    Ok(view(&state, &base, &claim, StatusCode::OK, received))
}

async fn update_claim(
    State(state): State<Arc<ServiceState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let claims = &state.claims;
    let base = Base::of(&request);
    let id = id_of(&request)?;
    let (head, body) = request.into_parts();
    let update = Update::parse(object(&head.headers, body).await?, claims.options.max_ttl)?;
    let received = claims.clock.now();
    let claim = match (claims.find(&id, &caller).await, &update) {
        (Ok(claim), _) => claim,
        (Err(problem), Update::Status(status @ (Status::Aborted | Status::Withdrawn), _))
            if problem.is_not_found() =>
        {
            claims.withdraw_unknown(id, &caller, *status).await?;
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        (Err(problem), _) => return Err(problem),
    };
    if matches!(update, Update::Ttl(_) | Update::Status(Status::Released, _)) {
        claims.adopt(&claim).await?;
    }
    match update {
        Update::Ttl(ttl) => claims.extend(&claim, ttl).await?,
        Update::Status(Status::Active, _) => {
            let wait = preferred_wait(&head.headers);
            match claims.activate(&claim, wait).await? {
                Standing::Active => {}
                Standing::Waiting(holder) => return Err(conflict(&claim, &holder)),
                Standing::Final => return Err(invalid_status(&claim)),
            }
        }
        Update::Status(status, reason) => {
            let freed = claims.finish(&claim, &caller, status, reason.as_deref()).await?;
            let mut response = StatusCode::NO_CONTENT.into_response();
            if let Some(token) = freed {
                response.headers_mut().insert(FENCING_TOKEN, token.into());
            }
            return Ok(response);
        }
    }
    Ok(view(&state, &base, &claim, StatusCode::OK, received))
}

fn id_of(request: &Request) -> Result<ClaimId, Problem> {
    let path = request.uri().path();
    let id = path.strip_prefix(PREFIX).map(|id| id.strip_suffix('/').unwrap_or(id));
    id.and_then(ClaimId::parse).ok_or_else(Problem::not_found)
}

/// The claim waits for this holder.
fn conflict(claim: &Claim, holder: &gaggle::Inspection) -> Problem {
    let active = ClaimId { nonce: holder.nonce, key: claim.id.key.clone() };
    let process = process_of(&holder.owner);
    Problem::locked(format!("Resource is locked by another claim, of {process}"))
        .with("claim_id", claim.id.to_string())
        .with("active_claim_id", active.to_string())
        .with("waiters", holder.waiters)
}

async fn describe(State(state): State<Arc<ServiceState>>) -> Response {
    let max_ttl = state.claims.options.max_ttl.as_secs_f64();
    let version = env!("CARGO_PKG_VERSION");
    problem::json(StatusCode::OK, &json!({ "api": API, "version": version, "max_ttl": max_ttl }))
}
