//! Goal: a strategy on its own thread works in every executor, and outlives and outruns the runtime
//! of its program. Method: an executor that is not tokio, runtimes that end and that are blocked; a
//! control on the runtime itself fails.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::{
    future::IntoFuture,
    io::Read,
    net::TcpListener,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use futures_executor::block_on;
use futures_util::FutureExt;
use gaggle::{
    Clock as _, Error, KeyedMutex, LockOptions, open, open_on_thread, strategies::clock::BootClock,
};
use gaggle_fixtures::RedisServer;
use tokio::runtime::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3_600);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn short() -> LockOptions {
    LockOptions::default().duration(ms(1_000))
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The URLs of a group of one and of a Redis.
fn urls(server: &RedisServer) -> [String; 2] {
    let port = server.port();
    [format!("gaggle+memory://thread-{port}?name=a&members=a"), server.url()]
}

/// The thread of a strategy has the last reference.
fn ends(strategy: &Weak<dyn KeyedMutex>) {
    let begun = BootClock.now();
    while strategy.upgrade().is_some() {
        assert!(BootClock.now().since(begun) < Duration::from_secs(5), "the thread does not end");
        thread::sleep(ms(1));
    }
}

#[test]
fn other_executors_lock_wait_and_extend() {
    let server = RedisServer::start();
    for url in urls(&server).iter().map(String::as_str).chain(["local:"]) {
        block_on(async {
            let locker = open_on_thread(url).await.unwrap();
            let request = locker.scope("a").lock_with("k", short()).auto_extend(HOUR);
            let guard = request.await.unwrap();
            let late = locker.lock_with("a/k", short().max_wait(ms(2_000))).await;
            assert!(matches!(late, Err(Error::TimedOut(_))), "{url}: {late:?}");
            assert!(guard.is_valid(), "{url}: it was extended");
            let unlocking = thread::spawn(|| {
                thread::sleep(ms(30));
                drop(guard);
            });
            locker.lock("a/k").await.unwrap().unlock().await.unwrap();
            unlocking.join().unwrap();
            locker.close().await;
            assert!(matches!(locker.lock("k").await, Err(Error::Closed)));
        });
    }
}

#[test]
fn handle_outlives_the_runtime_that_opened_it() {
    let server = RedisServer::start();
    for url in urls(&server) {
        let opener = runtime();
        let control = opener.block_on(open(&server.url())).unwrap();
        let locker = opener.block_on(open_on_thread(&url)).unwrap();
        let request = locker.lock_with("k", short()).auto_extend(HOUR);
        let guard = opener.block_on(request.into_future()).unwrap();
        drop(opener);
        thread::sleep(ms(2_000));
        assert!(guard.is_valid(), "{url}");
        runtime().block_on(async {
            assert!(matches!(control.lock("other").await, Err(Error::Closed)));
            guard.unlock().await.unwrap();
            locker.lock("k").await.unwrap().unlock().await.unwrap();
        });
    }
}

#[test]
fn blocked_runtime_keeps_extended_leases() {
    let server = RedisServer::start();
    for url in urls(&server) {
        runtime().block_on(async {
            let control = open(&server.url()).await.unwrap();
            let locker = open_on_thread(&url).await.unwrap();
            let lost = control.lock_with("control", short()).auto_extend(HOUR).await.unwrap();
            let kept = locker.lock_with("k", short()).auto_extend(HOUR).await.unwrap();
            thread::sleep(ms(2_000));
            assert!(kept.is_valid() && !lost.is_valid(), "{url}");
            kept.unlock().await.unwrap();
        });
    }
}

#[test]
fn thread_ends_with_its_last_handle() {
    let server = RedisServer::start();
    for url in urls(&server).iter().map(String::as_str).chain(["local:"]) {
        let locker = block_on(open_on_thread(url)).unwrap();
        let strategy = Arc::downgrade(locker.strategy());
        let scope = locker.scope("a");
        drop(locker);
        let request = scope.lock_with("k", LockOptions::default());
        drop(scope);
        let guard = block_on(request.into_future()).unwrap();
        thread::sleep(ms(20));
        assert!(guard.is_valid() && strategy.upgrade().is_some(), "{url}: the guard uses it");
        drop(guard);
        ends(&strategy);
    }
}

/// A server that accepts, and never replies.
#[test]
fn dropped_open_ends_its_thread() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let mut opening = Box::pin(open_on_thread(&url));
    assert!(opening.as_mut().now_or_never().is_none());
    let (mut connection, _) = listener.accept().unwrap();
    drop(opening);
    let mut received = Vec::new();
    connection.set_read_timeout(Some(ms(2_000))).unwrap();
    connection.read_to_end(&mut received).expect("the connection is closed");
}
