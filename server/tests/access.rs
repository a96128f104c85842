//! Goal: no client without a token is served, and each token has its own claims and limits.
//! Method: the routes over a fresh table, with a file of tokens.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use axum::body::Body;
use gaggle_server::{Access, Options, Service};
use serde_json::json;
use support::{Client, Tokens, local, sleep};

/// A service, and its clients: one, two and ops.
fn served(name: &str, options: Options) -> (Tokens, Service, [Client; 3]) {
    let tokens = Tokens::new(name);
    let (service, client) = local(Access::tokens(tokens.path()).unwrap(), options);
    let clients = tokens.clients(&client);
    (tokens, service, clients)
}

#[tokio::test(start_paused = true)]
async fn request_without_a_known_token_is_refused() {
    let (_file, service, [one, ..]) = served("unknown", Options::default());
    let claim = one.claim("k").await;
    let strangers = [None, Some("token-of-one-0002"), Some("token-of-one-000"), Some("")];
    for token in strangers.map(|token| token.map(str::to_owned)) {
        let stranger = Client { router: service.router(), token };
        for path in ["/v1/claims/", &claim, "/v1/claims/5/", "/metrics"] {
            let reply = stranger.get(path).await.refused(401, "unauthorized");
            assert_eq!(reply.headers["www-authenticate"], "Bearer");
        }
        stranger
            .send("POST", "/v1/claims/", &[], Body::from("{}"))
            .await
            .refused(401, "unauthorized");
        // A body is read within its limits before it is refused.
        let body =
            Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        stranger.send("POST", "/v1/claims/", &[], body).await.refused(408, "request-timeout");
        stranger.get("/health").await.is(200);
        stranger.get("/ready").await.is(200);
    }
}

/// A browser sends this header, which no script can change.
#[tokio::test(start_paused = true)]
async fn page_of_another_site_is_refused() {
    let (_service, client) = local(Access::anonymous(), Options::default());
    let body = json!({ "resource": "k", "ttl": 10 }).to_string();
    for site in ["cross-site", "same-site"] {
        let header = [("sec-fetch-site", site)];
        let reply = client.send("POST", "/v1/claims/", &header, body.clone()).await;
        reply.refused(403, "cross-site");
        client.send("GET", "/v1/status", &header, Body::empty()).await.is(403);
    }
    for site in ["same-origin", "none"] {
        let header = [("sec-fetch-site", site)];
        let reply = client.send("GET", "/v1/claims/", &header, Body::empty()).await;
        assert_eq!(reply.is(200).body, json!([]));
    }
}

#[tokio::test(start_paused = true)]
async fn claim_of_another_token_is_not_found() {
    let (_file, _service, [one, two, ops]) = served("another", Options::default());
    let claim = one.claim("k").await;
    let waiting = one.claim("k").await;
    for path in [&claim, &waiting] {
        two.get(path).await.refused(404, "no-claim");
        two.patch(path, json!({ "ttl": 60 })).await.refused(404, "no-claim");
        for status in ["active", "released", "aborted", "revoked"] {
            two.set(path, status).await.refused(404, "no-claim");
        }
    }
    assert_eq!(two.get("/v1/claims/").await.body, json!([]));
    assert_eq!(one.get("/v1/claims/").await.body.as_array().unwrap().len(), 2);
    let listed = ops.get("/v1/claims/").await.body;
    assert_eq!((&listed[0]["owner"], listed.as_array().unwrap().len()), (&json!("one"), 2));
    let seen = two.create(json!({ "resource": "k", "ttl": 1 })).await.is(202);
    let conflict = two.set(&seen.location(), "active").await.refused(409, "locked");
    assert!(conflict.text("message").contains("(one)"), "{conflict:?}");
}

#[tokio::test(start_paused = true)]
async fn key_of_another_token_is_refused() {
    let (_file, _service, [one, two, _]) = served("key", Options::default());
    let key = [("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")];
    let body = json!({ "resource": "k", "ttl": 10 }).to_string();
    one.send("POST", "/v1/claims/", &key, body.clone()).await.is(201);
    let reply = two.send("POST", "/v1/claims/", &key, body).await;
    reply.refused(409, "idempotency-key-reused");
}

#[tokio::test(start_paused = true)]
async fn operator_revokes_any_claim() {
    let (_file, _service, [one, two, ops]) = served("revoke", Options::default());
    let claim = one.claim("k").await;
    let waiting = two.claim("k").await;
    let last = two.claim("k").await;
    ops.set(&waiting, "revoked").await.is(204);
    let reason = "x".repeat(1_000);
    ops.patch(&claim, json!({ "status": "revoked", "reason": reason })).await.is(204);
    let revoked = one.get(&claim).await;
    assert_eq!(revoked.text("status"), "revoked");
    let by = format!("ops: {}", "x".repeat(251));
    assert_eq!(revoked.text("revoked_by"), by);
    let refused = one.patch(&claim, json!({ "ttl": 10 })).await.refused(400, "invalid-status");
    assert_eq!(refused.text("revoked_by"), by);
    assert_eq!(two.get(&waiting).await.text("status"), "revoked");
    two.activate(&last, 1).await.is(200);
    // A client may revoke a claim that it made.
    let direct = one.claim("of the client itself").await;
    one.set(&direct, "revoked").await.is(204);
}

#[tokio::test(start_paused = true)]
async fn limits_are_of_each_token() {
    let options = Options::default().claims_per_token(2).waiting_max(1);
    let (_file, _service, [one, two, _]) = served("limits", options);
    let first = one.claim("a").await;
    one.claim("b").await;
    let reply = one.create(json!({ "resource": "c", "ttl": 10 })).await.refused(429, "limit");
    assert_eq!(
        (reply.headers["retry-after"].to_str().unwrap(), &reply.body["retry"]),
        ("1", &json!(true))
    );
    two.create(json!({ "resource": "a", "ttl": 10 })).await.is(202);
    two.create(json!({ "resource": "b", "ttl": 10 })).await.refused(429, "limit");
    one.set(&first, "released").await.is(204);
    one.create(json!({ "resource": "c", "ttl": 1 })).await.refused(429, "limit");
    // The waiting claim of the other token keeps the one place until its client asks for it.
    let waiting = two.get("/v1/claims/?status=waiting").await;
    let path = format!("/v1/claims/{}/", waiting.body[0]["id"].as_str().unwrap());
    two.activate(&path, 1).await.is(200);
    one.create(json!({ "resource": "c", "ttl": 1 })).await.is(201);
    sleep(20.0).await;
    one.create(json!({ "resource": "c", "ttl": 1 })).await.is(201);
}

#[tokio::test(start_paused = true)]
async fn longest_ttl_is_stated() {
    let options = Options::default().max_ttl(Duration::from_secs(10));
    let (_file, _service, [one, ..]) = served("ttl", options);
    let reply = one.create(json!({ "resource": "k", "ttl": 11 })).await;
    assert!(reply.refused(400, "invalid-parameters").text("ttl").contains("from 0.003 to 10"));
    let claim = one.claim("k").await;
    one.patch(&claim, json!({ "ttl": 11 })).await.refused(400, "invalid-parameters");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_read_again() {
    let (file, service, [one, two, _]) = served("reload", Options::default());
    file.write("two client token-of-two-0002");
    one.get("/v1/claims/").await.is(200);
    service.reload().unwrap();
    one.get("/v1/claims/").await.is(401);
    two.get("/v1/claims/").await.is(200);
    file.write("two client");
    let error = service.reload().unwrap_err();
    assert!(error.contains("line 1: expected NAME ROLE TOKEN"), "{error}");
    two.get("/v1/claims/").await.is(200);
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o604)).unwrap();
    assert!(service.reload().unwrap_err().contains("chmod 600"));
}
