//! The parameters of a request: of its headers, its JSON body and its query.

use std::time::Duration;

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use gaggle::{
    Nonce, Owner,
    strategies::limits::{DURATION_MAX, KEY_BYTES_MAX},
};
use serde_json::{Map, Value};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{claims::Status, problem::Problem};

/// The longest body.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest `user_data`, as JSON.
const USER_DATA_BYTES_MAX: usize = 4 << 10;
/// The shortest ttl: less than half of a shorter lease remains after drift and rounding.
const TTL_MIN: Duration = Duration::from_millis(3);
/// The longest `Prefer: wait=N`.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The shortest default of `waiting_ttl`.
const WAITING_TTL: Duration = Duration::from_secs(90);
/// How long a response to a `POST` waits for the grant, before it says that the key is held.
pub(crate) const GRANT_GRACE: Duration = Duration::from_millis(5);
const LIMIT: usize = 10;
const LIMIT_MAX: usize = 1_000;

/// `POST /v1/claims/`.
pub(crate) struct Create {
    pub(crate) resource: String,
    pub(crate) ttl: Duration,
    /// Zero if the claim does not wait.
    pub(crate) waiting_ttl: Duration,
    pub(crate) user_data: Value,
    /// The process that an inspection shows.
    pub(crate) process: Option<Owner>,
}

/// `PATCH /v1/claims/ID/`.
pub(crate) enum Update {
    Ttl(Duration),
    /// A status, and the reason of a revocation.
    Status(Status, Option<String>),
}

/// The reasons why parameters are invalid, by name.
#[derive(Default)]
struct Reasons(Map<String, Value>);

impl Reasons {
    fn add(&mut self, name: &str, reason: impl Into<String>) {
        self.0.insert(name.into(), reason.into().into());
    }

    fn check<T>(&mut self, name: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|reason| self.add(name, reason)).ok()
    }

    fn finish(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(Problem::parameters(self.0)) }
    }
}

/// Reads the body before any other step: a client of HTTP/2 may take a response that comes before the
/// end of its body for a broken stream.
pub(crate) async fn read_body(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match bytes(&head.headers, body).await {
        Ok(bytes) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Err(problem) => problem.into_response(),
    }
}

async fn bytes(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    let too_large = || {
        let expected = format!("expected a body of at most {BODY_BYTES_MAX} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", expected)
    };
    if length.is_some_and(|length: u64| length > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let bytes = timeout(BODY_TIMEOUT, to_bytes(body, BODY_BYTES_MAX)).await;
    let bytes = bytes.map_err(|_| {
        let expected = format!("expected the whole body within {} s", BODY_TIMEOUT.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, "request-timeout", expected)
    })?;
    bytes.map_err(|_| too_large())
}

/// Reads a body that is a JSON object.
pub(crate) async fn object(headers: &HeaderMap, body: Body) -> Result<Map<String, Value>, Problem> {
    let media_type = headers.get(header::CONTENT_TYPE).map(|it| it.as_bytes());
    let is_json = |it: &[u8]| {
        let end = it.iter().position(|byte| *byte == b';').unwrap_or(it.len());
        it[..end].trim_ascii().eq_ignore_ascii_case(b"application/json")
    };
    if !media_type.is_none_or(is_json) {
        let expected = "expected the header `Content-Type: application/json`";
        let (status, code) = (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type");
        return Err(Problem::new(status, code, expected));
    }
    // `read_body` has read it.
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
    let invalid = |problem: String| Problem::new(StatusCode::BAD_REQUEST, "invalid-json", problem);
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(invalid("expected a JSON object".into())),
        Err(error) => Err(invalid(format!("expected a JSON object: {error}"))),
    }
}

impl Create {
    pub(crate) fn parse(
        mut object: Map<String, Value>,
        max_ttl: Duration,
    ) -> Result<Self, Problem> {
        let mut reasons = Reasons::default();
        let resource = match object.remove("resource") {
            None => Err("No resource specified".into()),
            Some(Value::String(text)) if (1..=KEY_BYTES_MAX).contains(&text.len()) => Ok(text),
            Some(_) => Err(format!("expected a text of 1 to {KEY_BYTES_MAX} bytes")),
        };
        let resource = reasons.check("resource", resource);
        let ttl = match object.remove("ttl") {
            None => Err("No ttl specified".into()),
            Some(value) => seconds(&value, max_ttl),
        };
        let ttl = reasons.check("ttl", ttl);
        let waiting_ttl = object.remove("waiting_ttl").filter(|value| !value.is_null());
        let waiting_ttl = waiting_ttl.map(|value| match value.as_f64() {
            Some(0.0) => Ok(Duration::ZERO),
            _ => seconds(&value, DURATION_MAX).map_err(|expected| format!("{expected}, or 0")),
        });
        let waiting_ttl = waiting_ttl.transpose();
        let waiting_ttl = reasons.check("waiting_ttl", waiting_ttl).flatten();
        let user_data = object.remove("user_data").unwrap_or_default();
        if user_data.to_string().len() > USER_DATA_BYTES_MAX {
            let expected = format!("expected at most {USER_DATA_BYTES_MAX} bytes of JSON");
            reasons.add("user_data", expected);
        }
        let process = object.remove("process").filter(|value| !value.is_null());
        let process = process.map(serde_json::from_value).transpose();
        let expected = |_| "expected an object of host, pid and label".to_owned();
        let process = reasons.check("process", process.map_err(expected)).flatten();
        object.keys().for_each(|name| reasons.add(name, "unknown parameter"));
        reasons.finish()?;
        let (resource, ttl) = resource.zip(ttl).expect("no reason was added");
        let waiting_ttl = waiting_ttl.unwrap_or_else(|| ttl.max(WAITING_TTL));
        Ok(Self { resource, ttl, waiting_ttl, user_data, process })
    }
}

impl Update {
    pub(crate) fn parse(
        mut object: Map<String, Value>,
        max_ttl: Duration,
    ) -> Result<Self, Problem> {
        let mut reasons = Reasons::default();
        let mut take = |name| object.remove(name).filter(|value| !value.is_null());
        let (ttl, status, reason) = (take("ttl"), take("status"), take("reason"));
        match (&ttl, &status) {
            (Some(_), Some(_)) => {
                reasons.add("extra-parameters", "Only one parameter may be updated per request");
            }
            (None, None) => reasons.add("missing-parameters", "No parameters specified"),
            _ => {}
        }
        let ttl = ttl.map(|ttl| seconds(&ttl, max_ttl)).transpose();
        let ttl = reasons.check("ttl", ttl).flatten();
        let status = status.map(|status| {
            let word = status.as_str().and_then(Status::parse);
            let settable = word.filter(|it| !matches!(it, Status::Waiting | Status::Expired));
            settable.ok_or_else(|| {
                "expected active, released, aborted, withdrawn or revoked".to_owned()
            })
        });
        let status = reasons.check("status", status.transpose()).flatten();
        let reason = reason.map(|reason| match reason {
            Value::String(text) if status == Some(Status::Revoked) => Ok(text),
            _ => Err("expected a text, with the status revoked".to_owned()),
        });
        let reason = reasons.check("reason", reason.transpose()).flatten();
        object.keys().for_each(|name| reasons.add(name, "unknown parameter"));
        reasons.finish()?;
        let status = status.map(|status| Self::Status(status, reason));
        Ok(ttl.map(Self::Ttl).or(status).expect("one of them is given"))
    }
}

/// A number of seconds, at most `most`.
fn seconds(value: &Value, most: Duration) -> Result<Duration, String> {
    let given = value.as_f64().and_then(|it| Duration::try_from_secs_f64(it).ok());
    given.filter(|given| (TTL_MIN..=most).contains(given)).ok_or_else(|| {
        let (least, most) = (TTL_MIN.as_secs_f64(), most.as_secs_f64());
        format!("expected a number of seconds from {least} to {most}, the limits of this server")
    })
}

/// The host and port that the client has connected to, as far as it says so.
pub(crate) fn host(request: &Request) -> Option<&str> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has them in the URI.
    host.or_else(|| request.uri().authority().map(|host| host.as_str()))
}

/// The nonce that the header `Idempotency-Key` gives.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<Nonce>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let text = key.to_str().unwrap_or_default().trim().trim_matches('"');
    let uuid = Uuid::parse_str(text).map_err(|_| {
        let expected = "expected a UUID in the header `Idempotency-Key`";
        Problem::new(StatusCode::BAD_REQUEST, "invalid-idempotency-key", expected)
    })?;
    Ok(Some(Nonce::given(uuid.as_u128())))
}

/// How long the client prefers to wait: `Prefer: wait=N` (RFC 7240 §4.3).
pub(crate) fn preferred_wait(headers: &HeaderMap) -> Duration {
    let texts = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = texts.flat_map(|text| text.split([',', ';']));
    let wait = preferences.find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        is_wait.then(|| value.trim().trim_matches('"').parse().ok())?
    });
    Duration::from_secs(wait.unwrap_or(0)).min(WAIT_MAX)
}

/// The filters of `GET /v1/claims/`, and the part of the list.
#[derive(Debug)]
pub(crate) struct Filters {
    pub(crate) resource: Option<String>,
    pub(crate) prefix: String,
    /// The page of held keys that begins here, in the order of the granting side.
    pub(crate) cursor: Option<String>,
    pub(crate) status: Option<Status>,
    /// The member of a claim, its least value and its greatest.
    pub(crate) ranges: Vec<(&'static str, f64, f64)>,
    pub(crate) limit: usize,
    pub(crate) offset: usize,
}

const RANGES: [&str; 4] = ["ttl", "active_duration", "waiting_duration", "created"];

impl Filters {
    pub(crate) fn parse(query: &str) -> Result<Self, Problem> {
        let mut filters = Self {
            resource: None,
            prefix: String::new(),
            cursor: None,
            status: None,
            ranges: Vec::new(),
            limit: LIMIT,
            offset: 0,
        };
        let mut reasons = Reasons::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let set = filters.set(&name, &value);
            reasons.check(&name, set);
        }
        if filters.cursor.is_some() && filters.status != Some(Status::Active) {
            reasons.add("cursor", "expected the filter status=active");
        }
        reasons.finish()?;
        Ok(filters)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || {
            let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| "expected a number".to_owned())
        };
        let count = |most: usize| {
            let count = value.parse().ok().filter(|count| *count <= most);
            count.ok_or_else(|| format!("expected an integer from 0 to {most}"))
        };
        match name {
            "resource" => self.resource = Some(value.into()),
            "prefix" => self.prefix = value.into(),
            "cursor" => self.cursor = Some(value.into()),
            "status" => {
                let status = Status::parse(value).ok_or("expected the status of a claim")?;
                self.status = Some(status);
            }
            "limit" => self.limit = count(LIMIT_MAX)?,
            "offset" => self.offset = count(usize::MAX)?,
            _ => {
                let (bound, member) = name.split_once('_').ok_or("unknown filter")?;
                let member = RANGES.into_iter().find(|known| *known == member);
                let member = member.ok_or("unknown filter")?;
                self.ranges.push(match bound {
                    "minimum" => (member, number()?, f64::INFINITY),
                    "maximum" => (member, f64::NEG_INFINITY, number()?),
                    _ => return Err("unknown filter".into()),
                });
            }
        }
        Ok(())
    }

    /// Whether a claim with these members is in the list. A range excludes a claim without its
    /// member.
    pub(crate) fn admits(&self, claim: &Value) -> bool {
        let is_of = |name: &str, wanted: Option<&str>| {
            wanted.is_none_or(|wanted| claim[name].as_str() == Some(wanted))
        };
        is_of("resource", self.resource.as_deref())
            && claim["resource"].as_str().is_some_and(|key| key.starts_with(&self.prefix))
            && is_of("status", self.status.map(Status::word))
            && self.ranges.iter().all(|(member, least, most)| {
                claim[*member].as_f64().is_some_and(|value| *least <= value && value <= *most)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_wait_is_found_and_bounded() {
        for (value, secs) in [
            ("wait=5", 5),
            ("respond-async, wait=7", 7),
            ("WAIT = \"3\"", 3),
            ("wait=61", 60),
            ("wait=18446744073709551615", 60),
            ("wait=18446744073709551616", 0),
            ("wait=-1", 0),
            ("wait", 0),
            ("return=minimal", 0),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", value.parse().unwrap());
            assert_eq!(preferred_wait(&headers), Duration::from_secs(secs), "{value}");
        }
        assert_eq!(preferred_wait(&HeaderMap::new()), Duration::ZERO);
    }

    #[test]
    fn range_excludes_a_claim_without_its_member() {
        let filters = Filters::parse("minimum_ttl=1&maximum_ttl=2&status=active").unwrap();
        let claim =
            |ttl: Value| serde_json::json!({ "ttl": ttl, "status": "active", "resource": "k" });
        assert!([1.0, 2.0].iter().all(|ttl| filters.admits(&claim((*ttl).into()))));
        assert!(![0.9, 2.1].iter().any(|ttl| filters.admits(&claim((*ttl).into()))));
        assert!(!filters.admits(&claim(Value::Null)));
    }
}
