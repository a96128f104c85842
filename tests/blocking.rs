//! Goal: the blocking API keeps the promises of the asynchronous one in programs without tokio.
//! Method: tests without a runtime, on `Local`, a group of one and a Redis; a process for the end of
//! a program.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use gaggle::{
    Clock as _, Error, LockOptions, LossCause, MaxWait, SectionError, UnavailableKind,
    blocking::{self, Locker},
    strategies::clock::BootClock,
};
use gaggle_fixtures::RedisServer;
use tokio::runtime::Builder;

/// The environment variable with what [`program`] does: ending and URL.
const TASK: &str = "GAGGLE_BLOCKING_ENDING";

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn lease(duration: Duration) -> LockOptions {
    LockOptions::default().duration(duration)
}

/// Runs a test on each strategy.
fn on_each_strategy(test: impl Fn(&Locker)) {
    let server = RedisServer::start();
    // Tests of one process share the hubs of groups: the port of the server names the group.
    let group = format!("gaggle+memory://blocking-{}?name=a&members=a", server.port());
    for url in ["local:", &group, &server.url()] {
        let locker = blocking::open(url).unwrap();
        locker.ready().unwrap();
        test(&locker);
        locker.close().unwrap();
        assert!(matches!(locker.lock("k"), Err(Error::Closed)), "{url}");
    }
}

/// Starts a call that waits for a held key, and returns once it is in the queue.
fn waiting(locker: &Locker, key: &'static str) -> thread::JoinHandle<Result<u64, Error>> {
    let waiter = locker.clone();
    let options = LockOptions::default().max_wait(MaxWait::Forever);
    let call = thread::spawn(move || {
        waiter.lock_with(key, options).wait().map(|guard| guard.fencing_token())
    });
    while locker.inspect(key).unwrap().is_none_or(|held| held.waiters == 0) {
        thread::sleep(ms(1));
    }
    call
}

#[test]
fn guards_lock_extend_and_unlock() {
    on_each_strategy(|locker| {
        let guard = locker.lock("k").unwrap();
        let held = locker.lock_with("k", LockOptions::default()).try_now();
        assert!(matches!(held, Err(Error::Held(_))), "{held:?}");
        let late = locker.wait_for_release("k", ms(20));
        assert!(matches!(late, Err(Error::TimedOut(_))), "{late:?}");
        guard.extend(Duration::from_secs(60)).unwrap();
        assert!(guard.remaining() > Duration::from_secs(30));

        let (token, next) = (guard.fencing_token(), waiting(locker, "k"));
        guard.unlock().unwrap();
        assert!(next.join().unwrap().unwrap() > token);

        locker.wait_for_release("k", Duration::from_secs(1)).unwrap();
        let lock = locker.lock("k").unwrap().into_lock();
        locker.adopt(&lock, Duration::from_secs(1)).unwrap().unlock().unwrap();
    });
}

#[test]
fn section_returns_its_output_and_unlocks() {
    on_each_strategy(|locker| {
        let section = |section: gaggle::Section| {
            assert!(section.is_valid() && locker.inspect("k").unwrap().is_some());
            section.fencing_token()
        };
        let token = locker.with_lock("k", LockOptions::default(), section).unwrap();
        assert!(token > 0 && locker.inspect("k").unwrap().is_none());

        let outlasts = locker.with_lock("k", lease(ms(30)), |_| thread::sleep(ms(60)));
        assert!(matches!(outlasts, Err(SectionError::NotUnlocked { cause: Error::Expired, .. })));
    });
}

#[test]
fn panic_in_a_section_unlocks() {
    on_each_strategy(|locker| {
        let panics = || locker.with_lock("k", LockOptions::default(), |_| panic!("the section"));
        catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        let next = locker.lock_with("k", LockOptions::default().max_wait(ms(500))).wait();
        next.unwrap().unlock().unwrap();
    });
}

#[test]
fn scope_and_unlock_all_end_guards_and_waits() {
    on_each_strategy(|locker| {
        let orders = locker.scope("orders");
        let guards = orders.lock_all(["2", "1"], LockOptions::default()).unwrap();
        assert_eq!((&*guards[0].key(), &*guards[1].key()), ("2", "1"));
        let (waits, kept) = (waiting(locker, "orders/1"), locker.lock("other").unwrap());

        locker.unlock_all("orders/").unwrap();

        assert!(matches!(waits.join().unwrap(), Err(Error::Withdrawn)));
        guards[0].lost().unwrap();
        assert_eq!(guards[1].loss(), Some(LossCause::Ended));
        orders.close().unwrap();
        assert!(matches!(orders.lock("1"), Err(Error::Closed)));
        assert!(kept.is_valid(), "the strategy is open");
    });
}

/// Work that blocks for three leases keeps its lock, and `lost` waits for its end.
#[test]
fn extensions_continue_while_the_thread_blocks() {
    on_each_strategy(|locker| {
        let request = locker.lock_with("k", lease(ms(200)));
        let guard = request.auto_extend(ms(900)).wait().unwrap();
        thread::sleep(ms(600));
        assert!(guard.is_valid());
        thread::scope(|scope| {
            let begun = BootClock.now();
            let waiter = scope.spawn(|| guard.lost().unwrap());
            waiter.join().unwrap();
            assert!(BootClock.now().since(begun) > ms(100));
        });
        assert_eq!(guard.loss(), Some(LossCause::Deadline), "max_hold was over");
    });
}

#[test]
fn guards_work_after_the_last_locker_is_dropped() {
    let server = RedisServer::start();
    let other = blocking::open(&server.url()).unwrap();
    let locker = blocking::open(&server.url()).unwrap();
    let strategy = Arc::downgrade(locker.as_async().strategy());
    let kept = locker.lock_with("kept", lease(ms(200))).auto_extend(Duration::from_secs(60));
    let (kept, dropped) = (kept.wait().unwrap(), locker.lock("dropped").unwrap());
    drop(locker);

    thread::sleep(ms(500));
    assert!(kept.is_valid());
    drop(dropped);
    let next = other.lock_with("dropped", LockOptions::default().max_wait(ms(100))).wait();
    next.unwrap().unlock().unwrap();
    assert!(strategy.upgrade().is_some());
    kept.unlock().unwrap();
    // The thread has the last reference.
    let begun = BootClock.now();
    while strategy.upgrade().is_some() {
        assert!(BootClock.now().since(begun) < Duration::from_secs(5), "the thread does not end");
        thread::sleep(ms(1));
    }
}

#[test]
fn threads_share_a_locker() {
    const THREADS: u64 = 16;
    const EACH: u64 = 20;
    on_each_strategy(|locker| {
        let value = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let options = LockOptions::default().max_wait(MaxWait::Forever);
                        let guard = locker.lock_with("counter", options).wait().unwrap();
                        let read = value.load(Ordering::Relaxed);
                        thread::yield_now();
                        value.store(read + 1, Ordering::Relaxed);
                        guard.unlock().unwrap();
                    }
                });
            }
        });
        assert_eq!(value.into_inner(), THREADS * EACH);
    });
}

/// Whether a call says that it blocks within a runtime.
fn is_refused(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::Unavailable { kind: UnavailableKind::Misconfigured, .. })
        && text.starts_with("a blocking call within a tokio runtime")
}

/// Every kind of call ends at once, and a dropped guard unlocks.
fn calls_are_refused(locker: &Locker, [first, second]: [blocking::Guard; 2]) {
    let lock = first.as_async().lock();
    let section = locker.with_lock("free", LockOptions::default(), |_| {});
    let refused = [
        Error::from(section.unwrap_err()),
        locker.lock("free").unwrap_err(),
        locker.lock_with("free", LockOptions::default()).try_now().unwrap_err(),
        locker.lock_all(["free"], LockOptions::default()).unwrap_err(),
        locker.adopt(&lock, ms(100)).unwrap_err(),
        locker.inspect("free").unwrap_err(),
        locker.wait_for_release("free", ms(1)).unwrap_err(),
        locker.unlock_all("").unwrap_err(),
        locker.ready().unwrap_err(),
        locker.close().unwrap_err(),
        first.extend(ms(100)).unwrap_err(),
        first.lost().unwrap_err(),
        first.unlock().unwrap_err(),
    ];
    assert!(refused.iter().all(is_refused), "{refused:?}");
    drop(second);
    assert!(blocking::open("local:").unwrap_err().to_string().starts_with("a blocking call"));
}

#[test]
fn calls_within_a_runtime_are_refused() {
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = builder.enable_all().build().unwrap();
        on_each_strategy(|locker| {
            for blocks in [false, true] {
                let guards = ["a", "b"].map(|key| locker.lock(key).unwrap());
                runtime.block_on(async {
                    let locker = locker.clone();
                    let calls = move || calls_are_refused(&locker, guards);
                    let ended = match blocks {
                        true => tokio::task::spawn_blocking(calls).await,
                        false => tokio::spawn(async { calls() }).await,
                    };
                    ended.unwrap();
                });
                for key in ["a", "b"] {
                    let free = LockOptions::default().max_wait(ms(100));
                    locker.lock_with(key, free).wait().unwrap().unlock().unwrap();
                }
            }
        });
    }
}

#[test]
fn strategy_that_does_not_open_is_an_error() {
    let unreachable = blocking::open("redis://127.0.0.1:1/").unwrap_err().to_string();
    assert!(unreachable.contains("127.0.0.1:1"), "{unreachable}");
    assert!(blocking::open("no such scheme").is_err());
}

/// A program that locks a key and ends without `close`.
#[test]
#[ignore = "a program that the other tests start"]
fn program() {
    let task = std::env::var(TASK).unwrap();
    let (ending, url) = task.split_once(' ').unwrap();
    let locker = blocking::open(url).unwrap();
    let guard = locker.lock_with("k", lease(Duration::from_secs(60))).wait().unwrap();
    println!("locked");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    match ending {
        "panic" => panic!("the program fails"),
        "both" => drop((locker, guard)),
        "exit" => {
            drop(guard);
            std::process::exit(0);
        }
        _ => {}
    }
}

#[test]
fn every_ending_frees_a_key() {
    let server = RedisServer::start();
    let locker = blocking::open(&server.url()).unwrap();
    for ending in ["scope", "panic", "both", "exit"] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "program", "--ignored", "--nocapture"])
            .env(TASK, format!("{ending} {}", server.url()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("locked") {
            line.clear();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "{ending} does not lock");
        }
        assert!(locker.inspect("k").unwrap().is_some());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        out.read_to_end(&mut Vec::new()).unwrap();
        child.wait().unwrap();
        let free = locker.lock_with("k", LockOptions::default().max_wait(ms(100))).wait();
        assert!(free.is_ok(), "{ending}: {free:?}");
        free.unwrap().unlock().unwrap();
    }
}
