//! Goal: each request to a claim has the specified answer in each of its states.
//! Method: the routes over a fresh table, in virtual time.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use axum::body::Body;
use serde_json::{Value, json};
use support::{Client, anonymous, sleep};

const CANCELLED: [&str; 3] = ["aborted", "withdrawn", "revoked"];

/// A claim of this status, and its resource.
async fn claim_of(client: &Client, status: &str) -> String {
    let resource = format!("of {status}");
    match status {
        "waiting" => {
            client.claim(&resource).await;
            client.claim(&resource).await
        }
        "active" => client.claim(&resource).await,
        "expired" => {
            let claim = client.create(json!({ "resource": resource, "ttl": 1 })).await.location();
            sleep(1.1).await;
            claim
        }
        status => {
            let claim = client.claim(&resource).await;
            client.set(&claim, status).await.is(204);
            claim
        }
    }
}

#[tokio::test(start_paused = true)]
async fn free_key_is_granted_with_201() {
    let client = anonymous();
    let data = json!({ "job": [1, null] });
    let body = json!({ "resource": "orders/42", "ttl": 10.5, "user_data": data });
    let reply = client.create(body).await.is(201);
    assert_eq!(reply.text("status"), "active");
    assert_eq!(reply.text("resource"), "orders/42");
    assert_eq!(reply.text("url"), reply.location());
    assert_eq!(reply.body["user_data"], data);
    assert!(reply.text("fencing_token").parse::<u64>().unwrap() > 0);
    assert!((10.0..10.5).contains(&reply.number("ttl")), "{reply:?}");
    assert!(reply.number("waited") < 0.1);
    let statuses: Vec<&Value> =
        reply.body["status_history"].as_array().unwrap().iter().map(|it| &it["status"]).collect();
    assert_eq!(statuses, ["waiting", "active"]);
    let found = client.get(&reply.location()).await.is(200);
    for member in ["id", "resource", "status", "status_history", "created", "user_data", "owner"] {
        assert_eq!(found.body[member], reply.body[member], "{member}");
    }
}

#[tokio::test(start_paused = true)]
async fn held_key_is_waited_for_with_202() {
    let client = anonymous();
    client.claim("k").await;
    let reply = client.create(json!({ "resource": "k", "ttl": 10 })).await.is(202);
    assert_eq!(reply.text("status"), "waiting");
    assert!(reply.body["ttl"].is_null() && reply.body["fencing_token"].is_null());
    assert!(reply.body["active_duration"].is_null());
    assert_eq!(client.get(&reply.location()).await.is(200).text("status"), "waiting");
}

#[tokio::test(start_paused = true)]
async fn request_with_a_wait_is_answered_by_the_grant() {
    let client = anonymous();
    let first = client.claim("k").await;
    let body = json!({ "resource": "k", "ttl": 10 }).to_string();
    let prefer = [("prefer", "wait=30")];
    let second = client.send("POST", "/v1/claims/", &prefer, body.clone());
    let release = async {
        sleep(3.0).await;
        client.set(&first, "released").await.is(204);
    };
    let (second, ()) = tokio::join!(second, release);
    let second = second.is(201);
    assert!((3.0..3.1).contains(&second.number("waited")), "{second:?}");
    assert!((3.0..3.1).contains(&second.number("waiting_duration")));
    assert!((9.8..10.0).contains(&second.number("ttl")));
    let prefer = [("prefer", "wait=2")];
    client.send("POST", "/v1/claims/", &prefer, body).await.is(202);
}

#[tokio::test(start_paused = true)]
async fn idempotency_key_names_one_claim() {
    let client = anonymous();
    let key = [("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")];
    let post = |body: Value| client.send("POST", "/v1/claims/", &key, body.to_string());
    let body = json!({ "resource": "k", "ttl": 10 });
    let first = post(body.clone()).await.is(201);
    assert!(first.text("id").starts_with("8e03978e40d583ddbc936894a57f9324."));
    let again = post(body.clone()).await.is(201);
    assert_eq!(again.location(), first.location());
    assert_eq!(again.body["fencing_token"], first.body["fencing_token"]);
    for other in [json!({ "resource": "l", "ttl": 10 }), json!({ "resource": "k", "ttl": 11 })] {
        post(other).await.refused(409, "idempotency-key-reused");
    }
    client.set(&first.location(), "released").await.is(204);
    let ended = post(body).await.refused(409, "claim-ended");
    assert_eq!(ended.text("status"), "released");
    let invalid = [("idempotency-key", "5")];
    let reply = client.send("POST", "/v1/claims/", &invalid, "{}").await;
    reply.refused(400, "invalid-idempotency-key");
}

#[tokio::test(start_paused = true)]
async fn each_invalid_parameter_is_named() {
    let client = anonymous();
    let long = "k".repeat(1_025);
    for (body, names) in [
        (json!({}), &["resource", "ttl"][..]),
        (json!({ "resource": "", "ttl": 1 }), &["resource"]),
        (json!({ "resource": long, "ttl": 1 }), &["resource"]),
        (json!({ "resource": 5, "ttl": "1" }), &["resource", "ttl"]),
        (json!({ "resource": "k", "ttl": 0 }), &["ttl"]),
        (json!({ "resource": "k", "ttl": -1 }), &["ttl"]),
        (json!({ "resource": "k", "ttl": 0.002 }), &["ttl"]),
        (json!({ "resource": "k", "ttl": 1_000_000_000 }), &["ttl"]),
        (json!({ "resource": "k", "ttl": 86_400.1 }), &["ttl"]),
        (json!({ "resource": "k", "ttl": 1, "waiting_ttl": 0.001 }), &["waiting_ttl"]),
        (json!({ "resource": "k", "ttl": 1, "process": "p" }), &["process"]),
        (json!({ "resource": "k", "ttl": 1, "user_data": "d".repeat(4_095) }), &["user_data"]),
        (json!({ "resource": "k", "ttl": 1, "timeout": 1, "x": 2 }), &["timeout", "x"]),
    ] {
        let reply = client.create(body.clone()).await.refused(400, "invalid-parameters");
        let named = ["resource", "ttl", "waiting_ttl", "process", "user_data", "timeout", "x"];
        let named: Vec<_> = named.into_iter().filter(|it| reply.body[it].is_string()).collect();
        assert_eq!(named, names, "{body}");
    }
    for body in [
        "",
        "{",
        "[]",
        "5",
        "{\"resource\":\"k\",\"ttl\":NaN}",
        "{\"a\":1}x",
        "{\"a\":\"\\ud800\"}",
    ] {
        let reply = client.send("POST", "/v1/claims/", &[], body).await;
        reply.refused(400, "invalid-json");
    }
    let body = b"{\"resource\":\"\xff\",\"ttl\":1}".to_vec();
    client.send("POST", "/v1/claims/", &[], body).await.refused(400, "invalid-json");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let reply = client.send("POST", "/v1/claims/", &form, "resource=k").await;
    reply.refused(415, "unsupported-media-type");
    let json = [("content-type", "Application/JSON; charset=utf-8")];
    let body = "{\"resource\":\"k\",\"ttl\":1,\"user_data\":null}";
    client.send("POST", "/v1/claims/", &json, body).await.is(201);
    let body = format!("{{\"resource\":\"{}\"}}", "k".repeat(64 << 10));
    client.send("POST", "/v1/claims/", &[], body).await.refused(413, "body-too-large");
}

#[tokio::test(start_paused = true)]
async fn activation_answers_by_the_status() {
    let client = anonymous();
    for (status, answer) in [("active", 200), ("waiting", 409), ("expired", 400)] {
        let claim = claim_of(&client, status).await;
        client.set(&claim, "active").await.is(answer);
    }
    for status in CANCELLED.into_iter().chain(["released"]) {
        let claim = claim_of(&client, status).await;
        client.set(&claim, "active").await.refused(400, "invalid-status");
    }
    let active = client.claim("k").await;
    let waiting = client.claim("k").await;
    let conflict = client.set(&waiting, "active").await.refused(409, "locked");
    assert!(active.contains(conflict.text("active_claim_id")));
    assert_eq!(conflict.body["waiters"], 1);
    assert_eq!(
        (conflict.text("exception_class"), &conflict.body["retry"]),
        ("ConflictException", &json!(true))
    );
    client.set(&active, "released").await.is(204);
    let now = client.activate(&waiting, 0).await.is(200);
    assert_eq!(now.text("status"), "active");
    let before = now.number("ttl");
    sleep(1.0).await;
    let again = client.set(&waiting, "active").await.is(200);
    assert!(again.number("ttl") < before - 0.9, "the lease is as it was");
    client.send("PUT", &waiting, &[], "{\"status\":\"released\"}").await.is(204);
}

#[tokio::test(start_paused = true)]
async fn ttl_extends_an_active_claim_alone() {
    let client = anonymous();
    let claim = claim_of(&client, "active").await;
    let reply = client.patch(&claim, json!({ "ttl": 60 })).await.is(200);
    assert!((59.0..60.0).contains(&reply.number("ttl")), "{reply:?}");
    let reply = client.patch(&claim, json!({ "ttl": 1 })).await.is(200);
    assert!(reply.number("ttl") > 59.0, "a lease is never shortened");
    for status in ["waiting", "expired", "released", "aborted", "withdrawn", "revoked"] {
        let claim = claim_of(&client, status).await;
        let reply = client.patch(&claim, json!({ "ttl": 5 })).await.refused(400, "invalid-status");
        assert_eq!(reply.text("status"), status);
    }
    for ttl in [json!(0), json!(-1), json!(1e9), json!("5"), json!([5])] {
        let reply = client.patch(&claim, json!({ "ttl": ttl })).await;
        assert!(reply.refused(400, "invalid-parameters").body["ttl"].is_string(), "{ttl}");
    }
}

/// Behind the deadline that the server knows, another server may have extended the lease.
#[tokio::test(start_paused = true)]
async fn reading_a_claim_extends_nothing() {
    let client = anonymous();
    let claim = client.claim("k").await;
    sleep(9.95).await;
    let read = client.get(&claim).await.is(200);
    assert_eq!((read.text("status"), &read.body["ttl"]), ("active", &Value::Null));
    let extended = client.set(&claim, "active").await.is(200);
    assert!(extended.number("ttl") > 0.0);
}

/// Nessy's tests: three cancelled statuses, and the errors of final ones.
#[tokio::test(start_paused = true)]
async fn final_status_is_set_once() {
    let client = anonymous();
    for status in CANCELLED {
        for before in ["active", "waiting"] {
            let claim = claim_of(&client, before).await;
            client.set(&claim, status).await.is(204);
            assert_eq!(client.get(&claim).await.is(200).text("status"), status);
            client.set(&claim, status).await.is(204);
            for other in CANCELLED.into_iter().filter(|other| *other != status).chain(["released"])
            {
                client.set(&claim, other).await.refused(400, "invalid-status");
            }
        }
    }
    let claim = claim_of(&client, "waiting").await;
    client.set(&claim, "released").await.refused(400, "invalid-status");
    let claim = claim_of(&client, "expired").await;
    client.set(&claim, "released").await.refused(400, "invalid-status");
    let ended = client.get(&claim).await.is(200);
    assert_eq!(ended.text("status"), "expired");
    let active = ended.number("active_duration");
    assert!((0.98..=1.0).contains(&active), "it ended with its lease: {active}");
    sleep(5.0).await;
    assert_eq!(client.get(&claim).await.number("active_duration"), active);
    sleep(600.0).await;
    client.claim("another").await;
    client.get(&claim).await.refused(404, "no-claim");
}

#[tokio::test(start_paused = true)]
async fn invalid_update_is_refused() {
    let client = anonymous();
    let claim = client.claim("k").await;
    for (body, name) in [
        (json!({ "status": "active", "ttl": 5 }), "extra-parameters"),
        (json!({}), "missing-parameters"),
        (json!({ "ttl": null }), "missing-parameters"),
        (json!({ "status": "expired" }), "status"),
        (json!({ "status": "waiting" }), "status"),
        (json!({ "status": "gone" }), "status"),
        (json!({ "status": 5 }), "status"),
        (json!({ "status": "released", "x": 1 }), "x"),
        (json!({ "status": "released", "reason": "text" }), "reason"),
        (json!({ "status": "revoked", "reason": 7 }), "reason"),
        (json!({ "ttl": 5, "reason": "text" }), "reason"),
    ] {
        let reply = client.patch(&claim, body.clone()).await.refused(400, "invalid-parameters");
        assert!(reply.body[name].is_string(), "{body}: {reply:?}");
    }
    assert_eq!(client.get(&claim).await.text("status"), "active", "nothing changed");
}

#[tokio::test(start_paused = true)]
async fn unknown_id_is_not_found() {
    let client = anonymous();
    let claim = client.claim("k").await;
    let other_key = claim.replace(".aw", ".bA");
    let other_nonce = format!("/v1/claims/{}.aw/", "0".repeat(32));
    for path in [&*other_key, &other_nonce, "/v1/claims/5/", "/v1/claims/%ff/", "/v1/claims/.aw"] {
        let reply = client.get(path).await.refused(404, "no-claim");
        assert_eq!(reply.text("message"), "No claim found");
        client.set(path, "released").await.refused(404, "no-claim");
    }
    client.get(claim.trim_end_matches('/')).await.is(200);
    client.get("/v2/").await.refused(404, "no-route");
    assert_eq!(client.get("/v1/").await.is(200).text("api"), "gaggle-claims");
    client.send("DELETE", &claim, &[], Body::empty()).await.refused(405, "method-not-allowed");
}

/// The seed's ghost waiters block their resource for a whole ttl.
#[tokio::test(start_paused = true)]
async fn waiting_claim_ends_without_its_client() {
    let client = anonymous();
    let first = client.create(json!({ "resource": "k", "ttl": 60 })).await.location();
    let body = |waiting_ttl: u32| json!({ "resource": "k", "ttl": 60, "waiting_ttl": waiting_ttl });
    let ghost = client.create(body(5)).await.is(202).location();
    let polled = client.create(body(5)).await.is(202).location();
    for _ in 0..4 {
        sleep(4.0).await;
        client.activate(&polled, 0).await.is(409);
    }
    assert_eq!(client.get(&ghost).await.text("status"), "withdrawn");
    client.set(&ghost, "active").await.refused(400, "invalid-status");
    client.set(&first, "released").await.is(204);
    client.activate(&polled, 1).await.is(200);
}

/// The claim is granted while its client is away.
#[tokio::test(start_paused = true)]
async fn granted_claim_is_kept_for_its_client_alone() {
    let client = anonymous();
    let first = client.claim("k").await;
    let body = json!({ "resource": "k", "ttl": 2, "waiting_ttl": 8 });
    let second = client.create(body.clone()).await.is(202).location();
    let third = client.create(body).await.is(202).location();
    client.set(&first, "released").await.is(204);
    sleep(5.0).await;
    assert_eq!(client.get(&second).await.text("status"), "waiting");
    let active = client.activate(&second, 0).await.is(200);
    assert!(active.number("ttl") > 1.75, "it has its ttl: {active:?}");
    client.set(&second, "released").await.is(204);
    // The third client never asks again.
    sleep(4.0).await;
    assert_eq!(client.get(&third).await.text("status"), "withdrawn");
    client.create(json!({ "resource": "k", "ttl": 2 })).await.is(201);
}

/// Nobody knows the id of its claim.
#[tokio::test(start_paused = true)]
async fn cut_off_request_leaves_no_claim() {
    let client = anonymous();
    let first = client.claim("k").await;
    let body = json!({ "resource": "k", "ttl": 60 }).to_string();
    let prefer = [("prefer", "wait=60")];
    let cut_off = client.send("POST", "/v1/claims/", &prefer, body);
    assert!(tokio::time::timeout(std::time::Duration::from_secs(1), cut_off).await.is_err());
    client.set(&first, "released").await.is(204);
    client.create(json!({ "resource": "k", "ttl": 1 })).await.is(201);
}

#[tokio::test(start_paused = true)]
async fn operations_are_open() {
    let client = anonymous();
    client.get("/health").await.is(200);
    assert_eq!(client.get("/ready").await.is(200).body["ready"], true);
    client.get("/metrics").await.refused(404, "no-metrics");
    let id = [("x-request-id", "abc-1")];
    let reply = client.send("GET", "/health", &id, Body::empty()).await;
    assert_eq!(reply.headers["x-request-id"], "abc-1");
    let long = "x".repeat(65);
    let reply = client.send("GET", "/health", &[("x-request-id", &long)], Body::empty()).await;
    assert_eq!(reply.headers["x-request-id"].len(), 32);
}

#[tokio::test(start_paused = true)]
async fn claim_that_does_not_wait_is_refused() {
    let client = anonymous();
    let body = json!({ "resource": "k", "ttl": 10, "waiting_ttl": 0 });
    let claim = client.create(body.clone()).await.is(201).location();
    let key = [("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")];
    for _ in 0..2 {
        let reply = client.send("POST", "/v1/claims/", &key, body.to_string()).await;
        reply.refused(409, "locked");
    }
    assert_eq!(client.get("/v1/claims/?status=waiting").await.body, json!([]));
    client.set(&claim, "released").await.is(204);
    client.create(body).await.is(201);
}

/// A withdrawal may overtake the request that makes the claim.
#[tokio::test(start_paused = true)]
async fn claim_that_was_withdrawn_before_is_not_made() {
    let client = anonymous();
    let key = [("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")];
    let claim = "/v1/claims/8e03978e40d583ddbc936894a57f9324.aw/";
    client.set(claim, "released").await.refused(404, "no-claim");
    client.set(claim, "withdrawn").await.refused(404, "no-claim");
    let body = json!({ "resource": "k", "ttl": 10 }).to_string();
    let reply = client.send("POST", "/v1/claims/", &key, body).await;
    assert_eq!(reply.refused(409, "claim-ended").text("status"), "withdrawn");
    let claim = client.create(json!({ "resource": "k", "ttl": 1 })).await.is(201).location();
    assert!(client.set(&claim, "released").await.is(204).headers.contains_key("fencing-token"));
    assert!(!client.set(&claim, "released").await.is(204).headers.contains_key("fencing-token"));
}

/// The LOCK of the claim leaves after the withdrawal, which has found none.
#[tokio::test(start_paused = true)]
async fn claim_that_is_withdrawn_as_it_is_made_holds_nothing() {
    let client = anonymous();
    let key = [("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")];
    let claim = "/v1/claims/8e03978e40d583ddbc936894a57f9324.aw/";
    let body = json!({ "resource": "k", "ttl": 10, "waiting_ttl": 0 }).to_string();
    let made = client.send("POST", "/v1/claims/", &key, body);
    let (made, withdrawn) = tokio::join!(made, client.set(claim, "withdrawn"));
    made.refused(409, "claim-ended");
    withdrawn.is(204);
    sleep(0.001).await;
    client.create(json!({ "resource": "k", "ttl": 10, "waiting_ttl": 0 })).await.is(201);
}
