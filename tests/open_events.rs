//! Goal: the report of a failed or doubtful `open` names the condition, and never a password; a
//! force-unlock is reported.
//! Method: all events of the thread are recorded; servers that are not there, refuse, or quote the
//! request in the refusal.
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]

use std::time::Duration;

use gaggle::{Error, LockOptions, Locker, OpenError, Owner, open};
use gaggle_fixtures::{Events, Proxy, RedisServer, free_port};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::{Mutex, MutexGuard},
};
use tracing::subscriber::DefaultGuard;

/// Which events are of interest is state of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The events of this thread, while no other test records any.
async fn recorded() -> (MutexGuard<'static, ()>, Events, DefaultGuard) {
    let alone = ONE_AT_A_TIME.lock().await;
    let (events, recording) = Events::of_thread();
    (alone, events, recording)
}

/// All that a program may print of it; no error of the chain repeats the text of its cause.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("{error:?} {error}");
    if let Some(source) = error.source() {
        assert!(!error.to_string().contains(&source.to_string()), "{error}: {source}");
        text += &chain(source);
    }
    text
}

async fn shown(opened: Result<Locker, OpenError>) -> String {
    match opened {
        Err(error) => chain(&error),
        Ok(locker) => {
            let held = locker.lock_with("k", LockOptions::default()).try_now().await;
            let text = format!("{locker:?} {}", chain(&held.unwrap_err()));
            locker.close().await;
            text
        }
    }
}

/// A server that refuses each request, and quotes all of it.
async fn quoting_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut request).await {
                    let quoted = String::from_utf8_lossy(&request[..read]).replace("\r\n", " ");
                    let reply =
                        format!("-ERR unknown command, with args beginning with: {quoted}\r\n");
                    if stream.write_all(reply.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn errors_and_events_hide_passwords() {
    let (_alone, events, _recording) = recorded().await;
    let server = RedisServer::start();
    let quoting = quoting_server().await;
    for port in [free_port(), server.port(), quoting] {
        for url in [
            format!("redis://user:hunter2@127.0.0.1:{port}/"),
            format!("gaggle+redis://user:hunter2@127.0.0.1:{port}/?cluster=c&name=a&members=a"),
            format!("redis+cluster://user:hunter2@127.0.0.1:{port}"),
            format!("redis+sentinel://user:hunter2@127.0.0.1:{port}/m?sentinel_password=hunter2"),
        ] {
            let shown = shown(open(&url).await).await;
            assert!(!shown.contains("hunter2"), "{url}: {shown}");
        }
    }
    let url = "redis+unix:///nowhere/redis.sock?user=u&pass=hunter2";
    let shown = shown(open(url).await).await;
    assert!(!shown.contains("hunter2"), "{shown}");
    let events = events.take().join("\n");
    assert!(!events.contains("hunter2"), "{events}");
}

#[tokio::test]
async fn differing_own_entry_is_a_warning() {
    let (_alone, events, _recording) = recorded().await;
    let (port, other) = (free_port(), free_port());
    let opened_with = |listen: &str, entry: String| {
        let rest = "insecure=true&cluster=c&name=a";
        format!("gaggle+tcp://{listen}:{port}?{rest}&peers=a@{entry},b@127.0.0.1:{other}")
    };
    for (listen, entry, warned) in [
        ("127.0.0.1", format!("127.0.0.1:{port}"), false),
        ("127.0.0.1", format!("localhost:{port}"), false),
        ("127.0.0.1", format!("db.example:{port}"), false),
        ("0.0.0.0", format!("10.0.0.1:{port}"), false),
        ("127.0.0.1", format!("127.0.0.1:{other}"), true),
        ("127.0.0.1", format!("127.0.0.2:{port}"), true),
        ("0.0.0.0", format!("10.0.0.1:{other}"), true),
    ] {
        let url = opened_with(listen, entry);
        // Another process may have taken the port: the warning comes first.
        let opened = open(&url).await;
        let warnings = events.take();
        let found = warnings
            .iter()
            .any(|event| event.starts_with("WARN") && event.contains("own entry in peers differs"));
        assert_eq!(found, warned, "{url}: {warnings:?}");
        if let Ok(locker) = opened {
            locker.close().await;
        }
    }
}

/// Two processes have one name over TCP: the second process listens elsewhere, and `b` hears both.
#[tokio::test]
async fn name_that_runs_twice_is_warned_of_by_addresses() {
    let (_alone, events, _recording) = recorded().await;
    let (a, b, c) = (free_port(), free_port(), free_port());
    let opened = |name: &str, port: u16, of_a: u16| {
        let peers = format!("peers=a@127.0.0.1:{of_a},b@127.0.0.1:{b}");
        format!("gaggle+tcp://127.0.0.1:{port}?cluster=twice&name={name}&{peers}")
    };
    let first = open(&opened("a", a, a)).await.unwrap();
    let other = open(&opened("b", b, a)).await.unwrap();
    first.ready().await.unwrap();
    let second = open(&opened("a", c, c)).await.unwrap();
    let event = events.wait_for("two processes run under one name").await;
    for address in [a, c].map(|port| format!("=127.0.0.1:{port} on ")) {
        assert!(event.starts_with("WARN") && event.contains(&address), "{event}");
    }
    for locker in [first, other, second] {
        locker.close().await;
    }
}

/// Over Redis no process has an address.
#[tokio::test]
async fn name_that_runs_twice_is_warned_of_by_host_and_pid() {
    let (_alone, events, _recording) = recorded().await;
    let server = RedisServer::start();
    let opened = |name| format!("gaggle+{}?cluster=twice&name={name}&members=a,b", server.url());
    let first = open(&opened("a")).await.unwrap();
    let other = open(&opened("b")).await.unwrap();
    first.ready().await.unwrap();
    let second = open(&opened("a")).await.unwrap();
    let event = events.wait_for("two processes run under one name").await;
    let Owner { host, pid, .. } = Owner::this_process(None);
    let process = format!("{host}, pid {pid}");
    for part in ["name=a", &format!("keeps={process}"), &format!("refused={process}")] {
        assert!(event.starts_with("WARN") && event.contains(part), "no {part} in {event}");
    }
    for locker in [first, other, second] {
        locker.close().await;
    }
}

#[tokio::test]
async fn groupless_member_names_the_missing() {
    let (_alone, events, _recording) = recorded().await;
    let (a, b, c) = (free_port(), free_port(), free_port());
    let peers = format!("peers=a@127.0.0.1:{a},b@127.0.0.1:{b},c@127.0.0.1:{c}");
    let url = format!("gaggle+tcp://127.0.0.1:{a}?cluster=orders&name=a&{peers}");
    let alone = open(&url).await.unwrap();
    let refused_by =
        |name, port| format!("{name} (not connected, 127.0.0.1:{port}: connection refused)");
    let expected =
        format!("no group yet: waiting for {}, {}", refused_by("b", b), refused_by("c", c));
    events.wait_for(&format!("INFO message={expected}")).await;
    // The event is not repeated.
    tokio::time::sleep(Duration::from_millis(900)).await;
    let reported = events.take();
    let of = |text: &str| reported.iter().filter(|event| event.contains(text)).count();
    assert_eq!(of(&format!("INFO message={expected}")), 1, "{reported:?}");
    assert_eq!(of("INFO message=cannot connect to a peer peer=b"), 1, "{reported:?}");
    let waits = || LockOptions::default().max_wait(Duration::from_millis(50));
    for request in [LockOptions::default().max_wait(Duration::ZERO), waits()] {
        let refused = alone.lock_with("k", request).await.unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    let url = format!("gaggle+tcp://127.0.0.1:{b}?cluster=order&name=b&{peers}");
    let other = open(&url).await.unwrap();
    events.wait_for("WARN message=a process of another cluster connects here peer=b").await;
    let named = tokio::time::timeout(Duration::from_secs(5), async {
        let foreign = "its option cluster is \"order\", ours is \"orders\": make them equal";
        let expected = format!("no group yet: waiting for b ({foreign}), {}", refused_by("c", c));
        let refused = || async { alone.lock_with("k", waits()).await.unwrap_err().to_string() };
        while refused().await != expected {}
    });
    named.await.unwrap();
    alone.close().await;
    other.close().await;
}

/// The member `b` of a running group dials `c`, which does not list it.
#[tokio::test]
async fn connection_of_an_unlisted_name_is_explained() {
    let (_alone, events, _recording) = recorded().await;
    let ports = ["a", "b", "c"].map(|name| (name, free_port()));
    let opened = |name: &str, listed: &[&str]| {
        let of = |name: &str| ports.iter().find(|(other, _)| *other == name).unwrap().1;
        let peers = listed.iter().map(|name| format!("{name}@127.0.0.1:{}", of(name)));
        let peers = peers.collect::<Vec<_>>().join(",");
        format!("gaggle+tcp://127.0.0.1:{}?cluster=lists&name={name}&peers={peers}", of(name))
    };
    let b = open(&opened("b", &["a", "b", "c"])).await.unwrap();
    let c = open(&opened("c", &["a", "c"])).await.unwrap();
    for part in [
        "reason=\"\\\"b\\\" is not in the option peers of this node\"",
        "reason=\"it refused: \\\"b\\\" is not in its option peers\"",
        ": it refused: \"b\" is not in its option peers)",
    ] {
        events.wait_for(part).await;
    }
    b.close().await;
    c.close().await;
}

#[tokio::test]
async fn leaderless_member_names_the_missing() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let url = |name: &str| format!("gaggle+memory://leaderless?name={name}&members=a,b,c");
    let open = async |name: &str| open(&url(name)).await.unwrap();
    let (a, b, c) = (open("a").await, open("b").await, open("c").await);
    a.ready().await.unwrap();
    b.close().await;
    c.close().await;
    let named = tokio::time::timeout(Duration::from_secs(5), async {
        let expected = "no leader: waiting for b, c (not connected)";
        let waits = || LockOptions::default().max_wait(Duration::from_millis(50));
        let refused = || async { a.lock_with("k", waits()).await.err().map(|e| e.to_string()) };
        while refused().await.as_deref() != Some(expected) {}
    });
    named.await.unwrap();
    a.close().await;
}

#[tokio::test]
async fn loss_that_an_extension_finds_is_logged_once() {
    let (_alone, events, _recording) = recorded().await;
    let server = RedisServer::start();
    let locker = open(&server.url()).await.unwrap();
    let guard = locker.lock("k").await.unwrap();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
    guard.extend(Duration::from_secs(5)).await.unwrap_err();
    assert!(!guard.is_valid());
    let seen = events.take();
    let losses = seen.iter().filter(|event| event.contains("message=lock lost"));
    assert_eq!(losses.count(), 1, "{seen:?}");
}

/// The deadline passes before the reply to the extension, and a Redis without memory follows.
#[tokio::test]
async fn loss_that_an_extension_finds_first_is_logged_once() {
    let (_alone, events, _recording) = recorded().await;
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let locker = open(&proxy.url()).await.unwrap();
    let lease = LockOptions::default().duration(Duration::from_millis(300));
    let guard = locker.lock_with("k", lease).await.unwrap();
    proxy.delay_replies(Duration::from_millis(400));
    let late = guard.extend(Duration::from_secs(5)).await;
    assert!(matches!(late, Err(Error::Expired)), "{late:?}");
    events.wait_for("message=lock lost").await;
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
    proxy.delay_replies(Duration::ZERO);
    assert!(proxy.sever() > 0);
    events.wait_for("message=redis available again").await;
    // The reply comes in a later turn than the loss.
    locker.inspect("k").await.unwrap();
    let losses = events.with("message=lock lost");
    assert_eq!(losses.len(), 1, "{losses:?}");
}

/// No granting side reports this loss.
#[tokio::test]
async fn loss_by_the_deadline_is_logged_once() {
    let (_alone, events, _recording) = recorded().await;
    let server = RedisServer::start();
    let lease = LockOptions::default().duration(Duration::from_millis(100));
    for url in [server.url(), "local:".into()] {
        let locker = open(&url).await.unwrap();
        let guard = locker.lock_with("k", lease.clone()).await.unwrap();
        let token = format!("token={} ", guard.fencing_token());
        guard.lost().await;
        assert!(!guard.is_valid() && locker.inspect("other").await.unwrap().is_none());
        drop(guard);
        locker.close().await;
        let losses = events.take();
        let losses = losses.iter().filter(|event| event.starts_with("WARN message=lock lost"));
        let losses: Vec<_> = losses.collect();
        assert!(matches!(losses[..], [loss] if loss.contains(&token)), "{url}: {losses:?}");
    }
}

#[tokio::test]
async fn force_unlock_is_reported_where_it_is_called() {
    let (_alone, events, _recording) = recorded().await;
    let locker = open("local:").await.unwrap();
    let options = LockOptions::default().label("nightly");
    let guard = locker.lock_with("jobs/1", options).await.unwrap();
    let operator = locker.operator().unwrap();
    operator.force_unlock("jobs/1", Some(0), "wrong token").await.unwrap();
    assert!(!events.take().join("\n").contains("force"), "nothing was unlocked");
    operator.force_unlock("jobs/1", None, "ticket 7").await.unwrap();
    let seen = events.take().join("\n");
    let (token, pid) = (guard.fencing_token(), std::process::id());
    let (holder, by) = (format!("pid {pid} (nightly) by="), format!("pid {pid} reason="));
    let token = format!("key=\"jobs/1\" token={token} holder=");
    for part in ["WARN message=lock force-unlocked", &token, &holder, &by, "reason=\"ticket 7\""] {
        assert!(seen.contains(part), "no {part} in {seen}");
    }
}
