//! Goal: a request that waits is answered when the Redis behind the server is away, and the claim
//! goes on when the Redis is back. Method: the routes over a Redis that is stopped.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use gaggle_fixtures::RedisServer;
use gaggle_server::{Access, Options, Service};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use support::{Client, sleep};
use tokio::time::Instant;

#[tokio::test]
async fn outage_of_redis_ends_a_long_wait() {
    let redis = RedisServer::start();
    let locker = gaggle::open(&redis.url()).await.unwrap();
    let service = Service::new(locker, Access::anonymous(), Options::default()).unwrap();
    let client = Client { router: service.router(), token: None };
    let holder = client.create(json!({ "resource": "k", "ttl": 60 })).await.is(201).location();
    let waiting = client.create(json!({ "resource": "k", "ttl": 60 })).await.is(202).location();
    let send = |signal| {
        let pid = i32::try_from(redis.pid().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    };
    let stop = async {
        sleep(1.0).await;
        send(Signal::STOP);
        Instant::now()
    };
    let (reply, stopped_at) = tokio::join!(client.activate(&waiting, 60), stop);
    let took = stopped_at.elapsed().as_secs_f64();
    send(Signal::CONT);
    assert_eq!(reply.refused(503, "unavailable").headers["retry-after"], "1");
    assert!(took < 5.0, "{took} s");
    while client.set(&holder, "released").await.status != 204 {
        sleep(0.1).await;
    }
    client.activate(&waiting, 10).await.is(200);
    service.close().await;
}
