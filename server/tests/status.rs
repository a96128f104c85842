//! Goal: the status names what is held, waited for and lost, to each caller its own part, and the
//! page has no data and runs nothing but its own script.
//! Method: the routes over a fresh table and a Redis that does not answer, in virtual time.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use gaggle_fixtures::RedisServer;
use gaggle_server::{Access, Options, Service};
use serde_json::{Value, json};
use support::{Client, Tokens, anonymous, local, sleep};
use tower::ServiceExt as _;

fn members<'a>(status: &'a Value, list: &str, member: &str) -> Vec<&'a str> {
    status[list].as_array().unwrap().iter().map(|it| it[member].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn status_has_what_is_held_and_waited_for() {
    let client = anonymous();
    let empty = client.get("/v1/status").await.is(200).body;
    assert_eq!(
        (&empty["held"], &empty["waiting"], &empty["keys"]),
        (&json!(0), &json!(0), &json!([]))
    );
    client.claim("quiet").await;
    sleep(2.0).await;
    let made = client.create(json!({ "resource": "busy", "ttl": 10 })).await.is(201);
    client.claim("busy").await;
    client.claim("busy").await;
    sleep(1.0).await;
    let status = client.get("/v1/status").await.is(200).body;
    assert_eq!((&status["held"], &status["waiting"]), (&json!(2), &json!(2)));
    assert_eq!(members(&status, "keys", "resource"), ["busy", "quiet"], "the most waiters first");
    let busy = &status["keys"][0];
    assert_eq!(
        (&busy["fencing_token"], &busy["id"]),
        (&made.body["fencing_token"], &made.body["id"])
    );
    assert_eq!(busy["waiters"], 2);
    assert!((0.9..1.1).contains(&busy["held_for"].as_f64().unwrap()), "{busy}");
    assert!((8.8..9.1).contains(&busy["ttl"].as_f64().unwrap()), "{busy}");
    assert!(busy["holder"].as_str().unwrap().ends_with("(http)"), "{busy}");
    let head = ["strategy", "caller", "role"].map(|name| status[name].as_str().unwrap());
    assert_eq!(head, ["local", "http", "operator"]);
    assert_eq!((&status["ready"], &status["is_complete"]), (&json!(true), &json!(true)));
    assert!(status["problem"].is_null() && status["group"].is_null());
}

#[tokio::test(start_paused = true)]
async fn hundred_keys_are_shown_and_all_are_counted() {
    let client = anonymous();
    for number in 0..120 {
        client.claim(&format!("k{number}")).await;
    }
    client.claim("k7").await;
    let status = client.get("/v1/status").await.is(200).body;
    assert_eq!((&status["held"], &status["waiting"]), (&json!(120), &json!(1)));
    assert_eq!(
        (status["keys"].as_array().unwrap().len(), &status["keys"][0]["resource"]),
        (100, &json!("k7"))
    );
}

#[tokio::test(start_paused = true)]
async fn losses_are_the_claims_that_ended_against_their_will() {
    let client = anonymous();
    for status in ["released", "aborted", "withdrawn", "revoked"] {
        let claim = client.claim(status).await;
        sleep(1.0).await;
        client.set(&claim, status).await.is(204);
    }
    client.create(json!({ "resource": "expired", "ttl": 5 })).await.is(201);
    sleep(30.0).await;
    let status = client.get("/v1/status").await.is(200).body;
    assert_eq!(members(&status, "losses", "resource"), ["expired", "revoked"], "the latest first");
    let expired = &status["losses"][0];
    assert_eq!((&expired["status"], &expired["owner"]), (&json!("expired"), &json!("http")));
    assert!((4.8..5.1).contains(&expired["active_duration"].as_f64().unwrap()), "{expired}");
    assert_eq!(status["held"], 0);
    for number in 0..105 {
        let claim = client.claim(&format!("k{number}")).await;
        client.set(&claim, "revoked").await.is(204);
    }
    let status = client.get("/v1/status").await.is(200).body;
    let losses = members(&status, "losses", "resource");
    assert_eq!((losses.len(), losses[0], losses[99]), (100, "k104", "k5"));
}

#[tokio::test(start_paused = true)]
async fn caller_sees_its_own_part() {
    let tokens = Tokens::new("status");
    let (_service, client) = local(Access::tokens(tokens.path()).unwrap(), Options::default());
    client.get("/v1/status").await.refused(401, "unauthorized");
    let [one, two, ops] = tokens.clients(&client);
    one.claim("of one").await;
    let lost = one.claim("lost by one").await;
    two.claim("of two").await;
    two.claim("of one").await;
    ops.set(&lost, "revoked").await.is(204);
    let seen = async |client: &Client| {
        let status = client.get("/v1/status").await.is(200).body;
        let mut keys: Vec<String> =
            members(&status, "keys", "resource").into_iter().map(str::to_owned).collect();
        keys.sort();
        let losses = members(&status, "losses", "resource").len();
        (keys.join(", "), status["held"].clone(), status["waiting"].clone(), losses)
    };
    assert_eq!(seen(&one).await, ("of one".into(), json!(1), json!(1), 1));
    assert_eq!(seen(&two).await, ("of two".into(), json!(1), json!(0), 0));
    assert_eq!(seen(&ops).await, ("of one, of two".into(), json!(2), json!(1), 1));
    let status = two.get("/v1/status").await.body;
    assert_eq!((&status["caller"], &status["role"]), (&json!("two"), &json!("client")));
}

#[tokio::test]
async fn status_says_why_nothing_is_granted() {
    let mut redis = RedisServer::start();
    let locker = gaggle::open(&redis.url()).await.unwrap();
    let service = Service::new(locker, Access::anonymous(), Options::default()).unwrap();
    let client = Client { router: service.router(), token: None };
    assert_eq!(client.get("/v1/status").await.is(200).body["strategy"], "redis");
    redis.stop();
    let status = client.get("/v1/status").await.is(200).body;
    assert_eq!((&status["ready"], &status["is_complete"]), (&json!(false), &json!(false)));
    assert_eq!(status["problem"]["code"], "unavailable");
    assert!(
        status["problem"]["message"].as_str().unwrap().contains("cannot reach Redis"),
        "{status}"
    );
    service.close().await;
}

#[tokio::test(start_paused = true)]
async fn page_has_a_strict_policy_and_needs_no_token() {
    let tokens = Tokens::new("page");
    let (service, client) = local(Access::tokens(tokens.path()).unwrap(), Options::default());
    let [one, ..] = tokens.clients(&client);
    one.claim("a key of one").await;
    let request = Request::get("/").body(Body::empty()).unwrap();
    let response = service.router().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let page = String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
    assert_eq!(head.status, 200);
    assert!(!page.contains("a key of one"));
    let policy = head.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for part in
        ["connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!(head.headers["x-content-type-options"], "nosniff");
    // No external file, and no text of a user is parsed.
    for forbidden in
        ["src=", "href=", "http:", "https:", "innerHTML", "insertAdjacentHTML", "document.write"]
    {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}
