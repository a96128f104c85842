//! The log event and the metrics of a request.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method},
    middleware::Next,
    response::Response,
};
use gaggle::Nonce;

use crate::{access::Caller, service::ServiceState};

const REQUEST_ID: &str = "x-request-id";
const REQUEST_ID_BYTES_MAX: usize = 64;

/// Logs and counts a request, and names it in its response.
pub(crate) async fn record(
    State(state): State<Arc<ServiceState>>,
    request: Request,
    next: Next,
) -> Response {
    let clock = &state.claims.clock;
    let received = clock.now();
    let id = request.headers().get(REQUEST_ID).filter(|id| is_plain(id.as_bytes())).cloned();
    let id = id.unwrap_or_else(|| {
        HeaderValue::from_str(&Nonce::random().to_string()).expect("hexadecimal digits")
    });
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    let (took, status) = (clock.now().since(received), response.status().as_u16());
    let caller = response.extensions().get::<Caller>();
    let caller = caller.map_or("", |caller| &*caller.name);
    tracing::info!(
        target: "gaggle_server::access",
        id = id.to_str().unwrap_or_default(),
        %method, path, status, ?took, caller,
        "request"
    );
    let method = known(&method);
    let status_text = response.status().as_str().to_owned();
    metrics::counter!("gaggle_http_requests_total", "method" => method, "status" => status_text)
        .increment(1);
    metrics::histogram!("gaggle_http_request_seconds", "method" => method).record(took);
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn is_plain(id: &[u8]) -> bool {
    (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// Clients choose methods without end.
fn known(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PATCH", "PUT"];
    known.into_iter().find(|known| method == known).unwrap_or("other")
}
