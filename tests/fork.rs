//! Goal: processes that one parent forks exclude each other and form a group, and their copy of its
//! handle does nothing (contract, *Forks*).
//! Method: real forks. A child makes its own runtime, and its exit code is its result.
#![cfg(unix)]
// A test that meets an error has failed.
#![allow(clippy::unwrap_used)]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    time::Duration,
};

use fork::{Fork, WEXITSTATUS, WIFEXITED, waitpid};
use gaggle::{
    Clock as _, Error, LockOptions, Locker, Nonce, blocking, strategies::clock::BootClock,
};
use gaggle_fixtures::{Events, RedisServer, free_port};
use tokio::{
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};

const LIMIT: Duration = Duration::from_secs(20);
/// What a child ends with.
const OK: i32 = 0;
const HELD: i32 = 1;
const FAILED: i32 = 2;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Ends a child with the result of its work. Nothing that it shares with its parent is dropped.
fn end(work: impl FnOnce() -> i32) -> ! {
    process::exit(catch_unwind(AssertUnwindSafe(work)).unwrap_or(FAILED))
}

/// Runs `work` in a fork.
fn child(work: impl FnOnce() -> i32) -> i32 {
    match fork::fork().unwrap() {
        Fork::Parent(child) => child,
        Fork::Child => end(work),
    }
}

fn result(child: i32) -> i32 {
    let status = waitpid(child).unwrap();
    if WIFEXITED(status) { WEXITSTATUS(status) } else { FAILED }
}

#[test]
fn children_of_one_parent_exclude_each_other() {
    let server = RedisServer::start();
    for round in 0..20 {
        // The parent's generator has a state, which the children copy.
        let _ = Nonce::random();
        let (begin, key) = (BootClock.now().after(ms(100)), format!("k{round}"));
        let work = async || {
            let locker = gaggle::open(&server.url()).await.unwrap();
            BootClock.sleep_until(begin).await;
            let locked = locker.lock_with(&*key, Default::default()).try_now().await;
            let result = match &locked {
                Ok(guard) if guard.is_valid() => OK,
                Err(Error::Held(_)) => HELD,
                _ => FAILED,
            };
            sleep(ms(100)).await;
            result
        };
        let children = [(); 2].map(|()| child(|| runtime().block_on(work())));
        let mut results = children.map(result);
        results.sort_unstable();
        assert_eq!(results, [OK, HELD], "round {round}");
    }
}

#[test]
fn members_of_one_parent_form_a_group() {
    let _ = Nonce::random();
    let ports = [(); 3].map(|()| free_port());
    let [a, b, c] = ports.map(|port| format!("127.0.0.1:{port}"));
    let peers = format!("cluster=c&peers=a@{a},b@{b},c@{c}");
    let names = [("a", a), ("b", b), ("c", c)];
    let children = names.map(|(name, address)| {
        child(|| {
            runtime().block_on(async {
                let url = format!("gaggle+tcp://{address}?name={name}&{peers}");
                let locker = gaggle::open(&url).await.unwrap();
                timeout(LIMIT, locker.ready()).await.unwrap().unwrap();
                let guard = locker.lock("k").await.unwrap();
                // A different process id: the next holder is notified, and does not time out.
                guard.unlock().await.unwrap();
                // The others need a majority.
                sleep(ms(500)).await;
                OK
            })
        })
    });
    assert_eq!(children.map(result), [OK; 3]);
}

/// Every call of a copied handle, and whether each says which process opened it.
async fn calls_say_so(locker: &Locker, parent: u32) -> bool {
    let held = locker.lock("of the parent").await.map(|guard| guard.lock());
    let lock = gaggle::Lock::new("k", Nonce::random(), 1, None);
    let operator = locker.operator().unwrap();
    let errors = [
        held.err(),
        locker.unlock(&lock).await.err(),
        locker.extend(&lock, ms(100)).await.err(),
        locker.inspect("k").await.err(),
        locker.ready().await.err(),
        operator.list(Default::default()).await.err(),
        operator.force_unlock("k", None, "a test").await.err(),
    ];
    let said = format!("opened by process {parent} before a fork");
    let says_so = |error: &Option<Error>| {
        error.as_ref().is_some_and(|error| {
            matches!(error, Error::Failed { .. }) && error.to_string().contains(&said)
        })
    };
    errors.iter().all(says_so)
}

/// Forks a process that has these handles on a runtime: the child uses and drops all of them.
fn fork_with(runtime: Runtime, lockers: Vec<Locker>) -> (Runtime, Vec<Locker>, i32) {
    let guard = runtime.block_on(lockers[0].lock("k")).unwrap();
    let parent = process::id();
    match fork::fork().unwrap() {
        Fork::Parent(child) => {
            assert!(guard.is_valid());
            runtime.block_on(guard.unlock()).unwrap();
            (runtime, lockers, child)
        }
        Fork::Child => end(|| {
            let own = self::runtime();
            let mut all = !guard.is_valid();
            let unlocked = own.block_on(guard.unlock());
            all &= matches!(unlocked, Err(Error::Failed { .. }));
            for locker in &lockers {
                all &= own.block_on(calls_say_so(locker, parent));
                own.block_on(locker.close());
            }
            drop((lockers, runtime));
            if all { OK } else { FAILED }
        }),
    }
}

#[test]
fn handle_of_another_process_does_nothing() {
    let (events, _recording) = Events::of_thread();
    let server = RedisServer::start();
    let runtime = runtime();
    let locker = runtime.block_on(gaggle::open(&server.url())).unwrap();
    let (runtime, lockers, child) = fork_with(runtime, vec![locker]);
    assert_eq!(result(child), OK);
    runtime.block_on(async {
        for _ in 0..20 {
            lockers[0].lock("k").await.unwrap().unlock().await.unwrap();
        }
    });
    assert_eq!(events.with("redis"), [""; 0], "the child used the connection");
}

#[test]
fn member_of_another_process_does_nothing() {
    let (events, _recording) = Events::of_thread();
    let [a, b] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let peers = format!("cluster=c&peers=a@{a},b@{b}");
    let runtime = runtime();
    let lockers = runtime.block_on(async {
        let mut lockers = Vec::new();
        for (name, address) in [("a", &a), ("b", &b)] {
            let url = format!("gaggle+tcp://{address}?name={name}&{peers}");
            lockers.push(gaggle::open(&url).await.unwrap());
        }
        for locker in &lockers {
            timeout(LIMIT, locker.ready()).await.unwrap().unwrap();
        }
        lockers
    });
    let (runtime, lockers, child) = fork_with(runtime, lockers);
    assert_eq!(result(child), OK);
    runtime.block_on(async {
        for locker in lockers.iter().cycle().take(20) {
            locker.lock("k").await.unwrap().unlock().await.unwrap();
        }
    });
    assert_eq!(events.with("connection down"), [""; 0], "the child used a connection");
}

/// Handles with their own threads, which the child does not have. A call that waited for such a
/// thread would not end.
#[test]
fn own_thread_of_another_process_does_nothing() {
    let (events, _recording) = Events::of_thread();
    let server = RedisServer::start();
    let parent = process::id();
    let lockers = ["local:".into(), server.url()].map(|url| blocking::open(&url).unwrap());
    let guards = lockers.each_ref().map(|locker| {
        let request = locker.lock_with("k", LockOptions::default());
        request.auto_extend(Duration::from_secs(3_600)).wait().unwrap()
    });
    let said = format!("opened by process {parent} before a fork");
    let says_so =
        |error: Error| matches!(error, Error::Failed { .. }) && error.to_string().contains(&said);
    let child = match fork::fork().unwrap() {
        Fork::Parent(child) => child,
        Fork::Child => end(|| {
            let mut all = true;
            for (locker, guard) in lockers.iter().zip(guards) {
                all &= !guard.is_valid() && says_so(guard.unlock().unwrap_err());
                all &= says_so(locker.lock("k").unwrap_err());
                all &= says_so(locker.inspect("k").unwrap_err());
                all &= says_so(locker.close().unwrap_err());
                all &= says_so(runtime().block_on(locker.as_async().lock("k")).unwrap_err());
            }
            drop(lockers);
            if all { OK } else { FAILED }
        }),
    };
    assert_eq!(result(child), OK);
    for (locker, guard) in lockers.iter().zip(guards) {
        assert!(guard.is_valid());
        guard.unlock().unwrap();
        locker.lock("k").unwrap().unlock().unwrap();
    }
    assert_eq!(events.with("redis"), [""; 0], "the child used the connection");
}
