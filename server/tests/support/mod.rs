//! A client of the routes, without a network.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed
#![allow(dead_code, reason = "each test uses a part of it")]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request},
};
use gaggle::{
    Locker,
    strategies::{Local, clock::TokioClock},
};
use gaggle_server::{Access, Options, Service};
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) mod server;

/// A file of tokens, which is removed with it.
pub(crate) struct Tokens(PathBuf);

impl Tokens {
    /// The tokens of the clients `one` and `two`, and of the operator `ops`.
    pub(crate) fn new(name: &str) -> Self {
        let tokens = Self(env::temp_dir().join(format!("gaggle-{}-{name}", std::process::id())));
        tokens.write(
            "one client token-of-one-0001\n\
             two client token-of-two-0002\n\
             ops operator token-of-ops-0003\n",
        );
        fs::set_permissions(&tokens.0, fs::Permissions::from_mode(0o600)).unwrap();
        tokens
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(&self.0, text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The clients one, two and ops.
    pub(crate) fn clients(&self, client: &Client) -> [Client; 3] {
        let tokens = ["token-of-one-0001", "token-of-two-0002", "token-of-ops-0003"];
        tokens.map(|token| Client { token: Some(token.into()), ..client.clone() })
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A client with a token, or without one.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) router: Router,
    pub(crate) token: Option<String>,
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Reply {
    /// The text of a member of the body.
    pub(crate) fn text(&self, member: &str) -> &str {
        self.body[member].as_str().unwrap_or_else(|| panic!("{member}: {self:?}"))
    }

    /// The number in a member of the body.
    pub(crate) fn number(&self, member: &str) -> f64 {
        self.body[member].as_f64().unwrap_or_else(|| panic!("{member}: {self:?}"))
    }

    /// The path of the claim that was made.
    pub(crate) fn location(&self) -> String {
        self.headers["location"].to_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// A refusal with this code, whose message is not empty.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.text("code")), (status, code), "{self:?}");
        assert!(!self.text("message").is_empty() && self.body["retry"].is_boolean(), "{self:?}");
        self
    }
}

impl Client {
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = self.router.clone().oneshot(request.body(body.into()).unwrap()).await;
        let (head, body) = response.unwrap().into_parts();
        let bytes = to_bytes(body, 1 << 20).await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Reply { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], Body::empty()).await
    }

    pub(crate) async fn create(&self, body: Value) -> Reply {
        self.send("POST", "/v1/claims/", &[], body.to_string()).await
    }

    /// The path of a new claim for this resource, for 10 s.
    pub(crate) async fn claim(&self, resource: &str) -> String {
        self.create(json!({ "resource": resource, "ttl": 10 })).await.location()
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Reply {
        self.send("PATCH", path, &[], body.to_string()).await
    }

    pub(crate) async fn set(&self, path: &str, status: &str) -> Reply {
        self.patch(path, json!({ "status": status })).await
    }

    /// Asks for the lock of a waiting claim for a while.
    pub(crate) async fn activate(&self, path: &str, secs: u32) -> Reply {
        let body = json!({ "status": "active" }).to_string();
        self.send("PATCH", path, &[("prefer", &format!("wait={secs}"))], body).await
    }
}

/// A service over a fresh table, on virtual time.
pub(crate) fn local(access: Access, options: Options) -> (Service, Client) {
    let local = Local::with_clock(Arc::new(TokioClock::new()));
    let service = Service::new(Locker::new(local), access, options).unwrap();
    let client = Client { router: service.router(), token: None };
    (service, client)
}

pub(crate) fn anonymous() -> Client {
    local(Access::anonymous(), Options::default()).1
}

pub(crate) async fn sleep(secs: f64) {
    tokio::time::sleep(Duration::from_secs_f64(secs)).await;
}
