//! Goal: the local deadline of a lock over HTTP is never later than the deadline of the server.
//! Method: generated delays, waits and leases, and two clocks that drift apart, in virtual time.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod http_support;

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use gaggle_strategies::{
    KeyedMutex, LockOptions,
    clock::{Clock, Instant},
};
use http_support::open;
use proptest::prelude::*;
use tokio::{
    runtime::Builder,
    time::{sleep, sleep_until},
};

/// A clock that runs faster than the time of the test by this many parts per million.
#[derive(Clone, Copy, Debug)]
struct Drifting {
    origin: tokio::time::Instant,
    ppm: i32,
}

impl Drifting {
    fn rate(self) -> f64 {
        1.0 + f64::from(self.ppm) / 1e6
    }

    /// The time of the test, since the origin, at which the clock shows this.
    fn real(self, shown: Instant) -> Duration {
        shown.since_origin().div_f64(self.rate())
    }
}

impl Clock for Drifting {
    fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed().mul_f64(self.rate()))
    }

    fn sleep_until<'a>(&'a self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let at = self.origin + self.real(at) + Duration::from_nanos(1);
        Box::pin(async move { sleep_until(at).await })
    }
}

/// The delays and waits of a lock.
#[derive(Clone, Copy, Debug)]
struct Plan {
    client_ppm: i32,
    server_ppm: i32,
    /// Before the server receives a request, and before the client receives the response.
    delays: [Duration; 2],
    /// How long each request waits at the server; the last one is granted.
    waits: [Duration; 3],
    lease: Duration,
}

#[derive(Clone)]
struct Server {
    clock: Drifting,
    plan: Plan,
    posts: Arc<Mutex<usize>>,
    /// The deadline of the grant, in the time of the test.
    deadline: Arc<Mutex<Duration>>,
}

impl http_support::Server for Server {
    async fn answer(&self, _: &str, _: &str) -> (u16, String) {
        sleep(self.plan.delays[0]).await;
        let received = self.clock.now();
        let post = {
            let mut posts = self.posts.lock().unwrap();
            *posts += 1;
            *posts
        };
        sleep(self.plan.waits[post - 1]).await;
        let now = self.clock.now();
        let deadline = now.after(self.plan.lease);
        *self.deadline.lock().unwrap() = self.clock.real(deadline);
        let (waited, ttl) = (now.since(received).as_secs_f64(), self.plan.lease.as_secs_f64());
        let claim = format!(
            r#"{{"id":"0.aw","resource":"k","status":"active","ttl":{ttl},"waited":{waited},"fencing_token":"5"}}"#
        );
        sleep(self.plan.delays[1]).await;
        (if post == self.plan.waits.len() { 201 } else { 202 }, claim)
    }
}

/// The deadlines of the client and of the server, in the time of the test.
async fn deadlines(plan: Plan) -> (Duration, Duration) {
    let origin = tokio::time::Instant::now();
    // As long as no clock shows a time before its origin.
    sleep(Duration::from_secs(1)).await;
    let clock = |ppm| Drifting { origin, ppm };
    let server = Server {
        clock: clock(plan.server_ppm),
        plan,
        posts: Arc::default(),
        deadline: Arc::default(),
    };
    let clock = clock(plan.client_ppm);
    let client = open(vec![server.clone()], Arc::new(clock));
    let options = LockOptions::default().duration(plan.lease).max_wait(Duration::from_secs(3600));
    let lock = client.lock("k", options).await.unwrap();
    let deadline = *server.deadline.lock().unwrap();
    (clock.real(lock.deadline().unwrap()), deadline)
}

fn plan() -> impl Strategy<Value = Plan> {
    let ms = |most: u64| (0..=most).prop_map(Duration::from_millis);
    let drifts = (-5_000..=5_000_i32, -5_000..=5_000_i32);
    let waits = [ms(900), ms(19_000), ms(19_000)];
    let lease = (30_u64..600).prop_map(Duration::from_secs);
    (drifts, [ms(200), ms(200)], waits, lease).prop_map(
        |((client_ppm, server_ppm), delays, waits, lease)| Plan {
            client_ppm,
            server_ppm,
            delays,
            waits,
            lease,
        },
    )
}

proptest! {
    #[test]
    fn local_deadline_is_never_later_than_that_of_the_server(plan in plan()) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (local, of_server) = runtime.block_on(deadlines(plan));
        prop_assert!(local <= of_server, "{local:?} is later than {of_server:?}");
        // Not by a mistake that makes all deadlines early.
        let spans = plan.waits.iter().chain(&plan.delays).sum::<Duration>() + plan.lease;
        let least = spans / 40 + plan.delays.iter().sum::<Duration>() * 3;
        prop_assert!(local + least >= of_server, "{local:?} is earlier than {of_server:?}");
    }
}
