//! Goal: each server of a group serves each active claim, and a claim outlives its server.
//! Method: three members in one process, each with a service, in virtual time.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use std::{sync::Arc, time::Duration};

use gaggle::{
    Locker,
    channels::{Hub, NodeName},
    strategies::{Gaggle, MemberOptions, clock::TokioClock},
};
use gaggle_fixtures::{Faults, FaultyChannel};
use gaggle_server::{Access, Options, Service};
use serde_json::json;
use support::{Client, Reply, sleep};

const MAX_TTL: Duration = Duration::from_secs(10);

/// A server of the group, and a client of it.
struct Node {
    service: Service,
    client: Client,
}

/// This many of the three members run.
async fn group(running: usize) -> Vec<Node> {
    group_with(running, &Faults::default()).await
}

async fn group_with(running: usize, faults: &Faults) -> Vec<Node> {
    let (hub, names) = (Hub::new(), ["a", "b", "c"].map(|name| NodeName::new(name).unwrap()));
    let mut nodes = Vec::new();
    for name in names.clone().into_iter().take(running) {
        let options = MemberOptions::named("claims", names.clone()).outside_max(MAX_TTL);
        let options = options.clock(Arc::new(TokioClock::new()));
        let channel = FaultyChannel::new(Arc::new(hub.channel(name)), faults.clone());
        let member = Gaggle::open(Arc::new(channel), options).await.unwrap();
        let options = Options::default().max_ttl(MAX_TTL);
        let service = Service::new(Locker::new(member), Access::anonymous(), options).unwrap();
        let client = Client { router: service.router(), token: None };
        nodes.push(Node { service, client });
    }
    nodes
}

/// A group that grants.
async fn ready() -> Vec<Node> {
    ready_with(&Faults::default()).await
}

async fn ready_with(faults: &Faults) -> Vec<Node> {
    let nodes = group_with(3, faults).await;
    for node in &nodes {
        while node.client.get("/ready").await.status != 200 {
            sleep(0.5).await;
        }
    }
    nodes
}

#[tokio::test(start_paused = true)]
async fn missing_majority_is_said() {
    let nodes = group(1).await;
    for _ in 0..2 {
        let body = json!({ "resource": "k", "ttl": 5 });
        let reply = nodes[0].client.create(body).await.refused(503, "no-quorum");
        assert_eq!(reply.headers["retry-after"], "1");
        nodes[0].client.get("/ready").await.refused(503, "no-quorum");
        sleep(5.0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn new_group_says_why_it_grants_nothing() {
    let nodes = group(3).await;
    let began = tokio::time::Instant::now();
    let body = json!({ "resource": "k", "ttl": 5 });
    sleep(3.0).await;
    for reply in [nodes[0].client.create(body.clone()).await, nodes[0].client.get("/ready").await] {
        let reply = reply.refused(503, "no-grants-yet");
        assert!(reply.text("message").contains("10s"), "{reply:?}");
    }
    while nodes[0].client.create(body.clone()).await.status != 201 {
        sleep(0.1).await;
    }
    assert!(began.elapsed() > MAX_TTL);
    sleep(2.0).await;
    nodes[0].client.get("/ready").await.is(200);
}

#[tokio::test(start_paused = true)]
async fn each_server_serves_an_active_claim() {
    let nodes = ready().await;
    let [a, b, c] = [0, 1, 2].map(|place| &nodes[place].client);
    let made = a.create(json!({ "resource": "k", "ttl": 10 })).await.is(201);
    let claim = made.location();
    let found = b.get(&claim).await.is(200);
    assert_eq!(found.body["fencing_token"], made.body["fencing_token"]);
    assert!(found.body["ttl"].is_null(), "reading extends nothing: {found:?}");
    sleep(6.0).await;
    b.patch(&claim, json!({ "ttl": 10 })).await.is(200);
    sleep(6.0).await;
    // The deadline that `a` knows has passed, and the other server has extended the lease.
    let active = a.set(&claim, "active").await.is(200);
    assert!((3.0..4.6).contains(&active.number("ttl")), "{active:?}");
    c.set(&claim, "released").await.is(204);
    sleep(0.1).await;
    assert_eq!(a.get(&claim).await.is(200).text("status"), "expired");
    c.create(json!({ "resource": "k", "ttl": 10 })).await.is(201);
}

/// A claim that is not found is lost, as far as its client knows.
#[tokio::test(start_paused = true)]
async fn server_that_is_behind_denies_no_claim() {
    let faults = Faults::default();
    let nodes = ready_with(&faults).await;
    let mut behind = None;
    for (name, node) in ["a", "b", "c"].into_iter().zip(&nodes) {
        if node.client.get("/v1/status").await.body["group"]["leads"] == false {
            behind = Some((NodeName::new(name).unwrap(), node));
        }
    }
    let (name, behind) = behind.unwrap();
    let leader = nodes.iter().find(|node| !std::ptr::eq(*node, behind)).unwrap();
    faults.isolate(&name);
    let claim = leader.client.claim("k").await;
    for _ in 0..3 {
        let reply = behind.client.get(&claim).await;
        assert!(matches!(reply.status, 503 | 504), "{reply:?}");
    }
    faults.heal();
    let mut found = behind.client.get(&claim).await;
    while matches!(found.status, 503 | 504) {
        found = behind.client.get(&claim).await;
    }
    assert_eq!(found.is(200).text("status"), "active");
}

/// The client keeps its place if it comes to another server within 3 s.
#[tokio::test(start_paused = true)]
async fn lost_majority_ends_a_long_wait() {
    let faults = Faults::default();
    let nodes = ready_with(&faults).await;
    nodes[0].client.claim("k").await;
    let waiting = nodes[1].client.claim("k").await;
    let cut_off = async {
        sleep(2.0).await;
        faults.isolate(&NodeName::new("b").unwrap());
        tokio::time::Instant::now()
    };
    let (reply, cut_off_at) = tokio::join!(nodes[1].client.activate(&waiting, 60), cut_off);
    let reply = reply.refused(503, "no-quorum");
    assert_eq!(reply.headers["retry-after"], "1");
    assert!(cut_off_at.elapsed() < Duration::from_secs(3), "{:?}", cut_off_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn active_claim_outlives_its_server() {
    let mut nodes = ready().await;
    let made = nodes[0].client.create(json!({ "resource": "k", "ttl": 10 })).await.is(201);
    nodes.remove(0).service.close().await;
    let b = &nodes[0].client;
    b.patch(&made.location(), json!({ "ttl": 10 })).await.is(200);
    b.create(json!({ "resource": "k", "ttl": 10 })).await.is(202);
    b.set(&made.location(), "released").await.is(204);
}

/// The client comes to another server with the same key, and then its former server ends the wait.
#[tokio::test(start_paused = true)]
async fn waiting_claim_keeps_its_place_at_another_server() {
    for closes in [false, true] {
        let mut nodes = ready().await;
        let [a, b, c] = [0, 1, 2].map(|place| nodes[place].client.clone());
        let holder = c.claim("k").await;
        let key = [("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")];
        let body = json!({ "resource": "k", "ttl": 10, "waiting_ttl": 4 }).to_string();
        a.send("POST", "/v1/claims/", &key, body.clone()).await.is(202);
        let later = c.create(json!({ "resource": "k", "ttl": 10 })).await.is(202).location();
        if closes {
            let server = nodes.remove(0);
            tokio::spawn(async move { server.service.close().await });
        }
        let moved = b.send("POST", "/v1/claims/", &key, body).await.is(202).location();
        sleep(1.0).await;
        c.set(&holder, "released").await.is(204);
        let active = b.activate(&moved, 5).await.is(200);
        c.activate(&later, 0).await.refused(409, "locked");
        // The former server misses its client.
        for _ in 0..4 {
            sleep(2.0).await;
            b.patch(&moved, json!({ "ttl": 10 })).await.is(200);
        }
        let found = b.get(&moved).await.is(200);
        assert_eq!(found.body["fencing_token"], active.body["fencing_token"]);
        b.set(&moved, "released").await.is(204);
        c.activate(&later, 5).await.is(200);
    }
}

/// A claim that waits at `a` and `b` for the key of another claim, which is at `c`.
struct Moved {
    nodes: Vec<Node>,
    key: [(&'static str, &'static str); 1],
    body: String,
    /// The claim, and the one that it waits for.
    claim: String,
    holder: String,
}

impl Moved {
    async fn new() -> Self {
        let nodes = ready().await;
        let holder = nodes[2].client.claim("k").await;
        let key = [("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")];
        let body = json!({ "resource": "k", "ttl": 10, "waiting_ttl": 4 }).to_string();
        let mut moved = Self { nodes, key, body, claim: String::new(), holder };
        for place in [0, 1] {
            moved.claim = moved.post(place).await.is(202).location();
        }
        moved
    }

    async fn post(&self, place: usize) -> Reply {
        self.nodes[place].client.send("POST", "/v1/claims/", &self.key, self.body.clone()).await
    }

    /// The client polls `b` alone, until `a` has missed it.
    async fn miss(&self) {
        let [a, b, c] = [0, 1, 2].map(|place| &self.nodes[place].client);
        for _ in 0..5 {
            sleep(2.0).await;
            c.patch(&self.holder, json!({ "ttl": 10 })).await.is(200);
            b.activate(&self.claim, 0).await.refused(409, "locked");
        }
        a.get(&self.claim).await.refused(404, "no-claim");
    }
}

#[tokio::test(start_paused = true)]
async fn client_returns_to_the_server_that_has_missed_it() {
    let moved = Moved::new().await;
    moved.miss().await;
    moved.post(0).await.is(202);
    moved.nodes[2].client.set(&moved.holder, "released").await.is(204);
    moved.nodes[0].client.activate(&moved.claim, 5).await.is(200);
}

#[tokio::test(start_paused = true)]
async fn withdrawal_at_the_server_that_has_missed_the_client_frees_the_place() {
    let moved = Moved::new().await;
    moved.miss().await;
    let [a, c] = [0, 2].map(|place| &moved.nodes[place].client);
    let waiters =
        async || c.get("/v1/claims/?status=active").await.is(200).body[0]["waiters"].clone();
    assert_eq!(waiters().await, 1);
    a.set(&moved.claim, "withdrawn").await.refused(404, "no-claim");
    sleep(0.1).await;
    assert_eq!(waiters().await, 0);
}

#[tokio::test(start_paused = true)]
async fn claim_that_another_server_withdrew_ends() {
    let moved = Moved::new().await;
    let [a, c] = [0, 2].map(|place| &moved.nodes[place].client);
    c.set(&moved.claim, "withdrawn").await.refused(404, "no-claim");
    c.set(&moved.holder, "released").await.is(204);
    a.activate(&moved.claim, 2).await.refused(400, "invalid-status");
    c.claim("k").await;
}

#[tokio::test(start_paused = true)]
async fn former_server_serves_what_another_has_granted() {
    let moved = Moved::new().await;
    let [a, b, c] = [0, 1, 2].map(|place| &moved.nodes[place].client);
    c.set(&moved.holder, "released").await.is(204);
    let active = b.activate(&moved.claim, 5).await.is(200);
    let found = a.get(&moved.claim).await.is(200);
    assert_eq!(found.body["fencing_token"], active.body["fencing_token"]);
    a.patch(&moved.claim, json!({ "ttl": 10 })).await.is(200);
    a.set(&moved.claim, "released").await.is(204);
    c.claim("k").await;
}

#[tokio::test(start_paused = true)]
async fn claim_is_listed_and_revoked_at_any_server() {
    let nodes = ready().await;
    nodes[0].client.claim("of http").await;
    let listed = nodes[1].client.get("/v1/claims/").await.is(200);
    let claim = &listed.body[0];
    assert_eq!(
        (claim["resource"].as_str(), claim["owner"].as_str()),
        (Some("of http"), Some("http"))
    );
    assert!(claim["ttl"].as_f64().unwrap() > 0.0);
    let status = nodes[1].client.get("/v1/status").await.is(200).body;
    assert_eq!(
        (&status["held"], &status["group"]["members"]),
        (&json!(1), &json!(["a", "b", "c"]))
    );
    let leads: Vec<_> = nodes.iter().map(|node| node.client.get("/v1/status")).collect();
    let leads = futures_util::future::join_all(leads).await;
    assert_eq!(leads.iter().filter(|it| it.body["group"]["leads"] == true).count(), 1);
    let path = format!("/v1/claims/{}/", claim["id"].as_str().unwrap());
    nodes[2].client.set(&path, "revoked").await.is(204);
    nodes[1].client.create(json!({ "resource": "of http", "ttl": 10 })).await.is(201);
}
