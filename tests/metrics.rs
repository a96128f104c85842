//! Goal: the feature `metrics` counts grants, refusals and losses, measures waits and holds, and
//! puts no key in a label; and counts connections, retransmissions and changes of leader.
//! Method: a recorder of the thread, and each event once.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::time::Duration;

use common::{Stub, lease, ms};
use gaggle::{Error, LockOptions, Locker, LossCause, open};
use gaggle_fixtures::{Proxy, RedisServer, free_port};
use gaggle_strategies::{Local, Redis, RedisOptions, clock::TokioClock};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::runtime::Builder;

/// A name, a label and a value; of a histogram, the sum of its seconds.
type Figure = (String, String, f64);

/// What `body` counts on `Local` in virtual time.
fn figures(body: impl AsyncFnOnce(Locker)) -> Vec<Figure> {
    figures_on(Builder::new_current_thread().enable_time().start_paused(true), async {
        let clock = std::sync::Arc::new(TokioClock::new());
        body(Locker::new(Local::with_clock(clock))).await;
    })
}

/// What `body` counts in real time.
fn figures_of(body: impl Future<Output = ()>) -> Vec<Figure> {
    figures_on(Builder::new_current_thread().enable_all(), body)
}

/// What `body` counts.
fn figures_on(runtime: &mut Builder, body: impl Future<Output = ()>) -> Vec<Figure> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || runtime.build().unwrap().block_on(body));
    let figure = |(key, _, _, value): (metrics_util::CompositeKey, _, _, DebugValue)| {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.0,
            DebugValue::Histogram(values) => values.iter().map(|value| value.0).sum(),
        };
        (key.key().name().to_owned(), labels.concat(), value)
    };
    let mut figures: Vec<_> = snapshotter.snapshot().into_vec().into_iter().map(figure).collect();
    figures.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    figures
}

fn value(figures: &[Figure], name: &str, label: &str) -> f64 {
    let found = figures.iter().find(|figure| figure.0 == name && figure.1 == label);
    found.unwrap_or_else(|| panic!("no {name} {label}: {figures:?}")).2
}

#[test]
fn each_event_is_counted_once() {
    let figures = figures(async |locker| {
        let options = LockOptions::default().duration(Duration::from_secs(2));
        // Held for 1 s and unlocked.
        let guard = locker.lock_with("a key", options.clone()).await.unwrap();
        let refused = locker.lock_with("a key", options.clone()).try_now().await;
        assert!(refused.is_err());
        let wait = options.clone().max_wait(Duration::from_millis(500));
        assert!(locker.lock_with("a key", wait).await.is_err());
        tokio::time::sleep(Duration::from_millis(500)).await;
        guard.unlock().await.unwrap();
        let shorter = locker.lock_with("a key", options.clone());
        assert!(shorter.auto_extend(Duration::from_secs(1)).await.is_err());
        // Lost at its deadline, and dropped a second later.
        let guard = locker.lock_with("a key", options.clone()).await.unwrap();
        guard.lost().await;
        assert!(!guard.is_valid());
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(guard);
        // Granted after a wait of 2 s.
        let first = locker.lock_with("a key", options.clone()).await.unwrap();
        let _lock = first.into_lock();
        locker.lock_with("a key", options).await.unwrap().unlock().await.unwrap();
        locker.close().await;
    });
    let find = |name: &str, label: &str| value(&figures, name, label);
    assert_eq!(find("gaggle_locks_granted_total", ""), 4.0);
    assert_eq!(find("gaggle_locks_refused_total", "held"), 1.0);
    assert_eq!(find("gaggle_locks_refused_total", "timed_out"), 1.0);
    assert_eq!(find("gaggle_locks_refused_total", "invalid"), 1.0);
    assert_eq!(find("gaggle_locks_lost_total", "deadline"), 1.0);
    let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.05;
    assert!(near(find("gaggle_lock_wait_seconds", ""), 2.0), "{figures:?}");
    assert!(near(find("gaggle_lock_hold_seconds", ""), 1.0 + 3.0), "{figures:?}");
    assert!(figures.iter().all(|figure| !figure.1.contains("key")), "{figures:?}");
}

#[test]
fn losses_are_counted_once_by_their_first_cause() {
    let figures = figures(async |locker| {
        let options = LockOptions::default().duration(Duration::from_secs(2));
        let forced = locker.lock_with("forced", options.clone()).await.unwrap();
        // The keep-alive counts the loss, which the guard is never asked for.
        let kept = locker.lock_with("kept", options.clone());
        let kept = kept.auto_extend(Duration::from_secs(9)).await.unwrap();
        let operator = locker.operator().unwrap();
        for key in ["forced", "kept"] {
            operator.force_unlock(key, None, "a test").await.unwrap();
        }
        forced.lost().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let expired = locker.lock_with("expired", options.clone()).await.unwrap();
        expired.lost().await;
        let closed = locker.lock_with("closed", options).await.unwrap();
        locker.close().await;
        for guard in [&forced, &expired, &closed, &kept] {
            assert!(!guard.is_valid());
            assert!(guard.extend(Duration::from_secs(1)).await.is_err());
        }
    });
    let lost = |cause| value(&figures, "gaggle_locks_lost_total", cause);
    assert_eq!((lost("forced"), lost("deadline"), lost("reported")), (2.0, 1.0, 1.0));
}

/// By a section that never looks at its guard.
#[test]
fn loss_is_counted_when_its_guard_ends() {
    let figures = figures(async |locker| {
        let options = LockOptions::default().duration(Duration::from_secs(2));
        let lock = async |key| locker.lock_with(key, options.clone()).await.unwrap();
        let (forced, dropped, unlocked) = (lock("a").await, lock("b").await, lock("c").await);
        let in_time = lock("d").await;
        locker.operator().unwrap().force_unlock("a", None, "a test").await.unwrap();
        drop((forced, in_time));
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(dropped);
        assert!(unlocked.unlock().await.is_err());
    });
    let lost = |cause| value(&figures, "gaggle_locks_lost_total", cause);
    assert_eq!((lost("forced"), lost("deadline"), lost("reported")), (1.0, 2.0, 0.0));
}

/// A strategy may report it only with its reply, or while the UNLOCK is in flight.
#[test]
fn loss_that_the_unlock_finds_is_counted_once() {
    let figures =
        figures_on(Builder::new_current_thread().enable_time().start_paused(true), async {
            let (stub, lost) = (Stub::new(), || Err(Error::NotHolder));
            let locker = Locker::new(stub.clone());
            stub.delay_unlocks(ms(10));
            stub.reply_to_unlocks(&[lost, lost, || Err(Error::Expired), lost, || Ok(())]);
            assert!(locker.lock("unlocked").await.unwrap().unlock().await.is_err());
            assert!(
                locker.with_lock("section", LockOptions::default(), async |_| ()).await.is_err()
            );
            let late = locker.lock_with("late", lease(ms(5))).await.unwrap();
            assert!(late.unlock().await.is_err());
            for key in ["forced", "in time"] {
                let guard = locker.lock(key).await.unwrap();
                let lock = guard.lock();
                let force = async {
                    tokio::time::sleep(ms(5)).await;
                    stub.losses.report(&lock, LossCause::Forced, Some(&"why".into()));
                };
                let (unlocked, ()) = tokio::join!(guard.unlock(), force);
                assert_eq!(unlocked.is_ok(), key == "in time");
            }
            // Known before the UNLOCK.
            stub.reply_to_unlocks(&[lost]);
            let known = locker.lock("known").await.unwrap();
            stub.losses.report(&known.lock(), LossCause::Ended, None);
            assert!(known.unlock().await.is_err());
        });
    let lost = |cause| value(&figures, "gaggle_locks_lost_total", cause);
    assert_eq!((lost("forced"), lost("deadline"), lost("reported")), (1.0, 1.0, 3.0));
}

/// A force-unlock is reported while the EXTEND is in flight.
#[test]
fn forced_loss_that_an_extend_finds_is_counted_as_forced() {
    let figures =
        figures_on(Builder::new_current_thread().enable_time().start_paused(true), async {
            let stub = Stub::new();
            stub.delay_extends(ms(10));
            stub.reply_to_extends(&[|| Err(Error::NotHolder)]);
            let guard = Locker::new(stub.clone()).lock("k").await.unwrap();
            let lock = guard.lock();
            let force = async {
                tokio::time::sleep(ms(5)).await;
                stub.losses.report(&lock, LossCause::Forced, Some(&"why".into()));
            };
            let (extended, ()) = tokio::join!(guard.extend(ms(9000)), force);
            assert!(matches!(extended, Err(Error::NotHolder)), "{extended:?}");
        });
    let lost = |cause| value(&figures, "gaggle_locks_lost_total", cause);
    assert_eq!((lost("forced"), lost("deadline"), lost("reported")), (1.0, 0.0, 0.0));
}

/// The value of the key is of another program.
#[test]
fn refused_call_is_counted_by_the_error_that_it_returns() {
    let figures = figures_of(async {
        let server = RedisServer::start();
        let locker = open(&server.url()).await.unwrap();
        locker.lock("k").await.unwrap().unlock().await.unwrap();
        let mut client = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let [name]: [String; 1] = {
            let held = locker.lock("k").await.unwrap();
            let found: Vec<String> = redis::cmd("KEYS").arg("*:l:k").query(&mut client).unwrap();
            held.unlock().await.unwrap();
            found.try_into().unwrap()
        };
        redis::cmd("SET").arg(&name).arg("foreign").exec(&mut client).unwrap();
        let wait = LockOptions::default().max_wait(ms(100));
        let refused = locker.lock_with("k", wait).await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
        locker.close().await;
    });
    let refused = |reason| value(&figures, "gaggle_locks_refused_total", reason);
    assert_eq!((refused("unavailable"), refused("timed_out")), (1.0, 0.0));
}

/// Only the UNLOCK of the dropped guard finds it.
#[test]
fn loss_that_a_drop_finds_is_counted() {
    let figures = figures_of(async {
        let server = RedisServer::start();
        let locker = open(&format!("{}?queue=none", server.url())).await.unwrap();
        let expired = locker.lock_with("expired", lease(ms(100))).await.unwrap();
        let lost = locker.lock("lost").await.unwrap();
        let mut client = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        redis::cmd("FLUSHALL").exec(&mut client).unwrap();
        drop((lost, locker.lock("held").await.unwrap()));
        tokio::time::sleep(ms(150)).await;
        drop(expired);
        // Redis replies to it after the UNLOCKs.
        locker.inspect("lost").await.unwrap();
        locker.close().await;
    });
    let lost = |cause| value(&figures, "gaggle_locks_lost_total", cause);
    assert_eq!((lost("forced"), lost("deadline"), lost("reported")), (0.0, 1.0, 1.0));
}

#[test]
fn malformed_publication_is_counted() {
    let figures = figures_of(async {
        let server = RedisServer::start();
        let locker = open(&server.url()).await.unwrap();
        let mut client = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let topics: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut client).unwrap();
        redis::cmd("PUBLISH").arg(&topics[0]).arg("x").exec(&mut client).unwrap();
        // The reply comes after the publication.
        locker.inspect("k").await.unwrap();
        locker.close().await;
    });
    assert_eq!(value(&figures, "gaggle_frames_dropped_total", "incoming"), 1.0);
}

#[test]
fn reconnect_and_retransmission_are_counted() {
    let figures = figures_of(async {
        let server = RedisServer::start();
        let proxy = Proxy::before(server.port());
        let locker = open(&proxy.url()).await.unwrap();
        let guard = locker.lock("k").await.unwrap();
        proxy.cut_replies(1);
        // The reply is lost, and the second unlock finds nothing.
        guard.unlock().await.unwrap_err();
        assert_eq!(proxy.cuts(), 1);
        locker.close().await;
    });
    assert_eq!(value(&figures, "gaggle_connections_total", "redis"), 2.0);
    // Not the LOCK, whose reply came.
    assert_eq!(value(&figures, "gaggle_requests_retransmitted_total", ""), 1.0);
}

/// The first LOCK after an idle time is refused as too old: the server has replied.
#[test]
fn retry_after_a_reply_is_no_retransmission() {
    let figures = figures_of(async {
        let (server, memory) = (RedisServer::start(), ms(1_000));
        let options = RedisOptions::new(server.url()).nonce_memory(memory);
        let locker = Locker::new(Redis::open(options).await.unwrap());
        tokio::time::sleep(memory + ms(200)).await;
        locker.lock("k").await.unwrap().unlock().await.unwrap();
        locker.close().await;
    });
    let retransmitted = |figure: &Figure| figure.0 == "gaggle_requests_retransmitted_total";
    assert!(!figures.iter().any(retransmitted), "{figures:?}");
}

#[test]
fn connections_of_peers_are_counted_at_both_ends() {
    let figures = figures_of(async {
        let (a, b) = (free_port(), free_port());
        let peers = format!("peers=a@127.0.0.1:{a},b@127.0.0.1:{b}");
        let url =
            |name, port| format!("gaggle+tcp://127.0.0.1:{port}?cluster=c&name={name}&{peers}");
        let lockers = [open(&url("a", a)).await.unwrap(), open(&url("b", b)).await.unwrap()];
        for locker in &lockers {
            locker.ready().await.unwrap();
        }
        for locker in lockers {
            locker.close().await;
        }
    });
    assert_eq!(value(&figures, "gaggle_connections_total", "peer"), 2.0);
}

#[test]
fn frame_to_an_absent_peer_is_counted() {
    let figures = figures_of(async {
        let locker = open("gaggle+memory://absent?name=a&members=a,b").await.unwrap();
        let wait = LockOptions::default().max_wait(Duration::from_millis(500));
        assert!(locker.lock_with("k", wait).await.is_err());
        locker.close().await;
    });
    assert!(value(&figures, "gaggle_frames_dropped_total", "outgoing") >= 1.0, "{figures:?}");
}

#[test]
fn leader_change_is_counted() {
    let figures = figures_of(async {
        let locker = open("gaggle+memory://metrics?name=a&members=a").await.unwrap();
        locker.ready().await.unwrap();
        locker.lock("k").await.unwrap().unlock().await.unwrap();
        locker.close().await;
    });
    assert_eq!(value(&figures, "gaggle_leader_changes_total", ""), 1.0);
}

/// From the first value of a series Prometheus computes no increase.
#[test]
fn counters_begin_at_zero_with_the_locker() {
    let figures = figures(async |_| {});
    assert_eq!(value(&figures, "gaggle_locks_granted_total", ""), 0.0);
    for cause in ["deadline", "forced", "reported"] {
        assert_eq!(value(&figures, "gaggle_locks_lost_total", cause), 0.0);
    }
    for reason in ["timed_out", "limit", "invalid"] {
        assert_eq!(value(&figures, "gaggle_locks_refused_total", reason), 0.0);
    }
}
