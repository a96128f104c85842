//! Goal: handles of one process share nothing that belongs to a runtime.
//! Method: eight threads with a runtime for each handle, one `open` in four given up at its first
//! await, beside an idle runtime with half an `open`, and a handle whose connections are cut.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use gaggle_fixtures::Proxy;
use gaggle_strategies::{KeyedMutex as _, Redis, RedisOptions};
use redis_support::{Server, secs};
use tokio::runtime::{Builder, Runtime};

const THREADS: usize = 8;
const ROUNDS: usize = 100;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Opens a handle in a runtime for each round. Returns the errors.
fn open_often(urls: &[String; 2], thread: usize) -> Vec<String> {
    let round = |round: usize| {
        let runtime = runtime();
        let options = RedisOptions::new(&urls[round % 2]);
        let opened = runtime.block_on(async {
            let mut opening = pin!(Redis::open(options));
            match (thread + round).is_multiple_of(4) {
                true => opening.as_mut().now_or_never(),
                false => Some(opening.await),
            }
        });
        opened.and_then(Result::err).map(|error| error.to_string())
    };
    (0..ROUNDS).filter_map(round).collect()
}

/// How long each of some reconnects takes, in order of length.
async fn reconnects(proxy: &Proxy, redis: &Redis, end: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    while !end(took.len()) {
        assert!(proxy.sever() > 0);
        let severed = Instant::now();
        while redis.inspect("k").await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        took.push(severed.elapsed());
    }
    took.sort();
    took
}

#[test]
fn runtimes_that_stop_disturb_no_other() {
    let own = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = own.block_on(Server::start());
    let port = server.port();
    let urls = [format!("redis://127.0.0.1:{port}"), format!("redis://localhost:{port}")];
    let proxy = Proxy::before(port);
    let healthy = own.block_on(Redis::open(RedisOptions::new(proxy.url()))).unwrap();
    let alone = own.block_on(reconnects(&proxy, &healthy, |count| count == 20));
    // The idle runtime begins to open a handle for each host, and is driven no further.
    let idle = runtime();
    let half_open = urls.each_ref().map(|url| {
        let mut opening = Box::pin(Redis::open(RedisOptions::new(url)));
        assert!(idle.block_on(async { opening.as_mut().now_or_never() }).is_none());
        opening
    });
    let over = AtomicBool::new(false);
    let (errors, beside) = std::thread::scope(|scope| {
        let urls = &urls;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || open_often(urls, thread))).collect();
        let reconnecting = scope
            .spawn(|| own.block_on(reconnects(&proxy, &healthy, |_| over.load(Ordering::Relaxed))));
        let errors: Vec<String> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        (errors, reconnecting.join().unwrap())
    });
    drop(half_open);
    assert_eq!(errors, [""; 0], "{} of {} opens failed", errors.len(), THREADS * ROUNDS * 3 / 4);
    let [alone, beside] = [alone, beside].map(|took| took[took.len() / 2]);
    assert!(beside < alone + secs(1), "reconnects took {beside:?}, {alone:?} without the others");
}
