//! The error of a request, as JSON: message, code, whether a retry can succeed, and the reasons.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use gaggle::{Error, UnavailableKind};
use serde_json::{Map, Value};

/// Why a request was refused.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Whether the same request can succeed later.
    retry: bool,
    /// Further members of the JSON object.
    details: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let (message, details) = (message.into(), Map::new());
        Self { status, code, message, retry: false, details }
    }

    /// Parameters that are invalid: the reason of each, by its name.
    pub(crate) fn parameters(reasons: Map<String, Value>) -> Self {
        let names = reasons.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("invalid parameters: {names}");
        let problem = Self::new(StatusCode::BAD_REQUEST, "invalid-parameters", message);
        Self { details: reasons, ..problem }
    }

    /// No claim has this id, or the claim is of another token.
    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no-claim", "No claim found")
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// The server does not serve now.
    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message).retry()
    }

    /// The server ends.
    pub(crate) fn closing() -> Self {
        Self::unavailable("closing", "this server is shutting down: use another one, or retry")
    }

    /// A limit is reached.
    pub(crate) fn limit(what: &str, limit: usize) -> Self {
        let message = format!("the limit of {limit} {what} is reached");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "limit", message).retry().with("limit", limit)
    }

    /// Another claim holds the key.
    pub(crate) fn locked(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "locked", message).retry()
    }

    /// The code and the message, as a part of another document.
    pub(crate) fn summary(&self) -> Value {
        serde_json::json!({ "code": self.code, "message": self.message })
    }

    pub(crate) fn retry(self) -> Self {
        Self { retry: true, ..self }
    }

    /// Adds a member to the JSON object.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.into(), value.into());
        self
    }

    /// The exception of Nessy's server that stands for the status.
    fn exception_class(&self) -> &'static str {
        match self.status.as_u16() {
            404 => "ClaimNotFound",
            409 => "ConflictException",
            503 => "DatabaseError",
            500 | 504 => "UnexpectedError",
            _ => "InvalidRequest",
        }
    }
}

/// Contract, *Outcomes*: whether it took effect, and whether to retry.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Limit { limit, .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "limit", message)
                    .retry()
                    .with("limit", limit)
            }
            Error::Held(_) => Self::locked(message),
            Error::Unavailable { kind: UnavailableKind::NoQuorum, .. } => {
                Self::unavailable("no-quorum", message)
            }
            Error::Unknown => Self::new(StatusCode::GATEWAY_TIMEOUT, "unknown-outcome", message)
                .retry()
                .with("outcome", "unknown"),
            Error::InvalidKey { .. } | Error::InvalidOptions { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "invalid-parameters", message)
            }
            Error::Closed => Self::closing(),
            _ => Self::unavailable("unavailable", message),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let exception_class = self.exception_class();
        let Self { status, code, message, retry, mut details } = self;
        details.insert("message".into(), message.into());
        details.insert("code".into(), code.into());
        details.insert("retry".into(), retry.into());
        details.insert("exception_class".into(), exception_class.into());
        let mut response = json(status, &Value::Object(details));
        let headers = response.headers_mut();
        if retry && matches!(status.as_u16(), 429 | 503) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A response with a JSON body.
pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    let media_type = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, media_type)], body.to_string()).into_response()
}
