//! Goal: an operator ends the lock of a program without HTTP, which learns of it and of the reason.
//! Method: the routes over a Redis and over a group, and a guard of another handle.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use std::time::Duration;

use gaggle::{LockOptions, Locker, LossCause};
use gaggle_fixtures::RedisServer;
use gaggle_server::{Access, Options, Service};
use serde_json::json;
use support::{Client, Tokens};
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(3);

/// Revokes the lock of a program at a service, by its place in the list of claims. The program
/// learns of it, with this note.
async fn is_revoked(program: &Locker, service: &Service, tokens: &Tokens, told: &str) {
    let [one, _, ops] = tokens.clients(&Client { router: service.router(), token: None });
    let options = LockOptions::default().duration(TTL).label("a job");
    let guard =
        program.lock_with("nightly", options).auto_extend(Duration::from_secs(60)).await.unwrap();
    // A member lists its own table, which may be behind the leader's.
    let mut listed = ops.get("/v1/claims/?resource=nightly").await.is(200).body;
    while listed[0].is_null() {
        support::sleep(0.05).await;
        listed = ops.get("/v1/claims/?resource=nightly").await.is(200).body;
    }
    let claim = &listed[0];
    let token = guard.fencing_token().to_string();
    assert_eq!((&claim["fencing_token"], &claim["owner"]), (&json!(token), &json!("a job")));
    let path = format!("/v1/claims/{}/", claim["id"].as_str().unwrap());
    one.set(&path, "revoked").await.refused(404, "no-claim");
    assert!(guard.loss().is_none());
    ops.patch(&path, json!({ "status": "revoked", "reason": "ticket 7" })).await.is(204);
    timeout(Duration::from_secs(2), guard.lost()).await.expect("the program learns of it");
    assert_eq!(guard.loss(), Some(LossCause::Forced));
    let note = guard.loss_note().unwrap();
    assert!(note.contains(told), "{note}");
    one.create(json!({ "resource": "nightly", "ttl": 3 })).await.is(201);
    let losses = ops.get("/v1/status").await.is(200).body["losses"].clone();
    assert_eq!(
        (&losses[0]["resource"], &losses[0]["status"]),
        (&json!("nightly"), &json!("revoked"))
    );
}

#[tokio::test]
async fn lock_of_a_program_with_a_redis_is_revoked() {
    let (redis, tokens) = (RedisServer::start(), Tokens::new("redis"));
    let program = gaggle::open(&redis.url()).await.unwrap();
    let access = Access::tokens(tokens.path()).unwrap();
    let locker = gaggle::open(&redis.url()).await.unwrap();
    let service = Service::new(locker, access, Options::default()).unwrap();
    is_revoked(&program, &service, &tokens, "revoked over HTTP by ops: ticket 7").await;
    service.close().await;
    program.close().await;
}

#[tokio::test]
async fn lock_of_a_program_in_a_group_is_revoked() {
    let tokens = Tokens::new("group");
    let url = |name: &str| {
        format!("gaggle+memory://revoked?name={name}&members=program,server&outside_max=3s")
    };
    let (program, server) = (url("program"), url("server"));
    let (program, locker) = tokio::join!(gaggle::open(&program), gaggle::open(&server));
    let (program, locker) = (program.unwrap(), locker.unwrap());
    let access = Access::tokens(tokens.path()).unwrap();
    let options = Options::default().max_ttl(TTL);
    let service = Service::new(locker, access, options).unwrap();
    service.ready().await;
    // The log of a group has no reason. The server has logged it.
    is_revoked(&program, &service, &tokens, "another process").await;
    service.close().await;
    program.close().await;
}
