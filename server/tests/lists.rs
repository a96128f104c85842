//! Goal: the list of claims has what its filters admit, in order and by pages.
//! Method: the routes over `local:` in virtual time.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use serde_json::json;
use support::{anonymous, sleep};

#[tokio::test(start_paused = true)]
async fn list_is_filtered_and_paged() {
    let client = anonymous();
    for resource in ["a", "a", "b", "c"] {
        client.claim(resource).await;
        sleep(1.0).await;
    }
    let list = async |query: &str| -> Vec<String> {
        let reply = client.get(&format!("/v1/claims/?{query}")).await.is(200);
        let claims = reply.body.as_array().unwrap().clone();
        claims.iter().map(|it| format!("{} {}", it["resource"], it["status"])).collect()
    };
    let [active_a, waiting_a] = ["\"a\" \"active\"", "\"a\" \"waiting\""];
    let [b, c] = ["\"b\" \"active\"", "\"c\" \"active\""];
    assert_eq!(list("").await, [active_a, waiting_a, b, c]);
    assert_eq!(list("limit=2&offset=1").await, [waiting_a, b]);
    assert_eq!(list("resource=a").await, [active_a, waiting_a]);
    assert_eq!(list("status=waiting").await, [waiting_a]);
    assert_eq!(list("minimum_active_duration=1.5").await, [active_a, b]);
    assert_eq!(list("minimum_waiting_duration=1").await, [waiting_a]);
    assert_eq!(list("maximum_ttl=8").await, [active_a, b], "a ttl implies an active claim");
    assert!(list("minimum_ttl=10.1").await.is_empty());
    let created = client.get("/v1/claims/?resource=b").await.body[0]["created"].as_f64().unwrap();
    // A parsed number may differ in its last digit.
    let created = created - 0.001;
    assert_eq!(list(&format!("minimum_created={created}")).await, [b, c]);
    for query in ["minimum_ttl=x", "limit=-1", "limit=1001", "status=gone", "color=red", "x"] {
        let path = format!("/v1/claims/?{query}");
        let reply = client.get(&path).await.refused(400, "invalid-parameters");
        assert!(reply.body[query.split('=').next().unwrap()].is_string(), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn expired_claims_are_listed_at_once() {
    let client = anonymous();
    for resource in ["one", "two"] {
        client.create(json!({ "resource": resource, "ttl": 0.05 })).await.is(201);
        sleep(0.1).await;
    }
    let found = client.get("/v1/claims/?limit=1&offset=1").await.is(200).body;
    assert_eq!((&found[0]["resource"], &found[0]["status"]), (&json!("two"), &json!("expired")));
    assert_eq!(found.as_array().map(Vec::len), Some(1));
}

#[tokio::test(start_paused = true)]
async fn held_keys_are_listed_by_pages() {
    let client = anonymous();
    let process = json!({ "host": "web-3", "pid": 711, "label": "nightly job" });
    for resource in ["a/1", "a/2", "a/3", "b"] {
        let body = json!({ "resource": resource, "ttl": 10, "process": process });
        client.create(body).await.is(201);
    }
    client.create(json!({ "resource": "a/2", "ttl": 10 })).await.is(202);
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/claims/?status=active&prefix=a/&limit=2&cursor={cursor}");
        let page = client.get(&path).await.is(200);
        for claim in page.body.as_array().unwrap() {
            assert_eq!(claim["process"], process);
            found.push((claim["resource"].as_str().unwrap().to_owned(), claim["waiters"].clone()));
        }
        let Some(next) = page.headers.get("next-cursor") else { break };
        cursor = next.to_str().unwrap().to_owned();
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [("a/1", 0), ("a/2", 1), ("a/3", 0)];
    assert_eq!(found, expected.map(|(key, waiters)| (key.to_owned(), json!(waiters))));
    let reply = client.get("/v1/claims/?cursor=").await.refused(400, "invalid-parameters");
    assert!(reply.body["cursor"].is_string(), "{reply:?}");
}
