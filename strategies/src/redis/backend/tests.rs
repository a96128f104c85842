//! Goal: the backend connects, tests its connection, reports what is lost with it, and reconnects.
//! Method: a stream in memory and a clock of the test's own: no runtime, no server.

mod refusals;
mod replies;
mod silence;

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

use super::{
    super::{
        connect::{DialFuture, Stream},
        script::Verb,
    },
    *,
};
use crate::client::calls::RequestId;
use crate::client::commands::ServerState;

const REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// What becomes of attempts to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    Refused,
    Silent,
}

type Ends = Arc<Mutex<(Way, VecDeque<DuplexStream>)>>;

struct FakeDial(Ends);

impl Dial for FakeDial {
    fn dial(&mut self) -> Vec<DialFuture> {
        let mut ends = self.0.lock().unwrap();
        let way: DialFuture = match ends.0 {
            Way::Silent => Box::pin(std::future::pending()),
            Way::Refused => Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) }),
            Way::Open => {
                let (ours, theirs) = duplex(1 << 20);
                ends.1.push_back(theirs);
                Box::pin(async { Ok((Box::new(ours) as Box<dyn Stream>, None)) })
            }
        };
        vec![way]
    }

    fn address(&self) -> String {
        "here:1".into()
    }
}

/// A backend, its time, and a server that completes the handshake.
struct Lab {
    backend: Backend,
    ends: Ends,
    /// The server's end of the present connection, and what it has read of it.
    server: Option<DuplexStream>,
    bytes: Vec<u8>,
    policy: &'static str,
    version: &'static str,
    now: Instant,
}

impl Lab {
    fn new(way: Way) -> Self {
        Self::with_replicas(way, 0)
    }

    fn with_replicas(way: Way, replicas: u32) -> Self {
        Self::with(way, Self::options().replicas(replicas))
    }

    fn options() -> RedisOptions {
        RedisOptions::new("redis://elsewhere")
            .request_timeout(REQUEST_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
    }

    fn with(way: Way, options: RedisOptions) -> Self {
        let ends: Ends = Arc::new(Mutex::new((way, VecDeque::new())));
        let (dial, now) = (Box::new(FakeDial(ends.clone())), at(0));
        let backend = Backend::new(options, Some(dial), 7, now).unwrap();
        let (policy, version) = ("noeviction", "7.2.0");
        Self { backend, ends, server: None, bytes: Vec::new(), policy, version, now }
    }

    /// A lab whose backend is up.
    fn up() -> Self {
        let mut lab = Self::new(Way::Open);
        let events = lab.connect();
        assert!(matches!(events[..], [Event::Up { state: ServerState::Same }]), "{events:?}");
        lab
    }

    fn way(&self, way: Way) {
        self.ends.lock().unwrap().0 = way;
    }

    /// A turn, without a wait before it.
    fn turn(&mut self) -> Vec<Event> {
        let unwoken = &mut Context::from_waker(Waker::noop());
        let _ = self.backend.connection.poll(unwoken);
        let mut events = Vec::new();
        self.backend.take(self.now, &mut events).unwrap();
        self.backend.flush(self.now, &mut events).unwrap();
        self.backend.end_turn(self.now);
        events
    }

    fn after(&mut self, by: Duration) -> Vec<Event> {
        self.now = self.now.after(by);
        self.turn()
    }

    fn submit(&mut self, command: Command) {
        self.backend.submit(self.now, command);
    }

    /// Accepts a connection, and completes its handshake.
    fn connect(&mut self) -> Vec<Event> {
        let mut events = self.turn();
        self.server = self.ends.lock().unwrap().1.pop_front();
        self.bytes.clear();
        // The login, what follows it, and the turn that takes the outcome.
        for _ in 0..3 {
            for command in self.commands() {
                let reply = self.reply(&command);
                self.say(&reply);
            }
            events.extend(self.turn());
        }
        events
    }

    fn reply(&self, command: &[String]) -> String {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words[..] {
            ["HELLO", "3"] => "%1\r\n$5\r\nproto\r\n:3\r\n".into(),
            ["INFO"] => {
                let Self { version, policy, .. } = self;
                let server = format!("redis_version:{version}\r\n");
                bulk(&format!("{server}role:master\r\nmaxmemory_policy:{policy}\r\n"))
            }
            ["WAIT", "0", "1"] => ":0\r\n".into(),
            ["TIME"] => "*2\r\n$1\r\n5\r\n$1\r\n0\r\n".into(),
            ["SUBSCRIBE", topic] => format!(">3\r\n$9\r\nsubscribe\r\n{}:1\r\n", bulk(topic)),
            ["PUBLISH", topic, payload] => {
                format!(">3\r\n$7\r\nmessage\r\n{}{}:1\r\n", bulk(topic), bulk(payload))
            }
            ["SCRIPT", "LOAD", _] => bulk("hash"),
            _ => panic!("unexpected command {words:?}"),
        }
    }

    /// What the server has received since it was last asked.
    fn commands(&mut self) -> Vec<Vec<String>> {
        let unwoken = &mut Context::from_waker(Waker::noop());
        let Some(server) = &mut self.server else { return Vec::new() };
        let mut piece = vec![0; 1 << 20];
        let mut buffer = ReadBuf::new(&mut piece);
        while Pin::new(&mut *server).poll_read(unwoken, &mut buffer).is_ready() {
            if buffer.filled().is_empty() {
                break;
            }
            self.bytes.extend_from_slice(buffer.filled());
            buffer.clear();
        }
        let text = String::from_utf8(std::mem::take(&mut self.bytes)).unwrap();
        let mut lines = text.split("\r\n");
        let mut commands = Vec::new();
        while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')) {
            let words = (0..count.parse().unwrap()).map(|_| {
                let length: usize = lines.next().unwrap()[1..].parse().unwrap();
                let mut word = lines.next().unwrap().to_owned();
                while word.len() < length {
                    word = format!("{word}\r\n{}", lines.next().unwrap());
                }
                word
            });
            commands.push(words.collect());
        }
        commands
    }

    fn say(&mut self, bytes: &str) {
        let unwoken = &mut Context::from_waker(Waker::noop());
        let server = self.server.as_mut().unwrap();
        let written = Pin::new(server).poll_write(unwoken, bytes.as_bytes());
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == bytes.len()));
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_origin(Duration::from_millis(ms))
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The reply of a script to a list of requests.
fn listed(time: &str, results: &[&str]) -> String {
    bulk(&[results, &[time]].concat().join("\n"))
}

fn nonce(number: u128) -> Nonce {
    Nonce::from_u128(number)
}

fn lock(number: u128, until: Until) -> Command {
    Command::Lock {
        nonce: nonce(number),
        key: "k".into(),
        lease: Duration::from_secs(5),
        until,
        owner: Arc::new(crate::lock::Owner::this_process(None)),
        copies: false,
    }
}

fn lock_of(key: &str, number: u128) -> Command {
    match lock(number, Until::Forever) {
        Command::Lock { nonce, lease, until, owner, copies, .. } => {
            Command::Lock { nonce, key: key.into(), lease, until, owner, copies }
        }
        other => other,
    }
}

/// The subject and fate of each failure, and whether the cause is permanent.
fn failures(events: &[Event]) -> Vec<(RequestId, Fate, bool)> {
    let failure = |event: &Event| match event {
        Event::Failed { request, fate, cause } => Some((*request, *fate, cause.is_permanent())),
        _ => None,
    };
    events.iter().filter_map(failure).collect()
}

#[test]
fn lost_connection_reports_all_fates() {
    let mut lab = Lab::up();
    // In 257 lists.
    for number in 1..=4_102 {
        lab.submit(lock(number, Until::Now));
    }
    lab.turn();
    lab.server = None;
    let events = lab.turn();
    let failures = failures(&events);
    let with = |fate| failures.iter().filter(|(_, of, _)| *of == fate).count();
    assert_eq!((with(Fate::NoReply), with(Fate::Unsent)), (4_096, 6));
    assert!(matches!(events.last(), Some(Event::Reconnecting { .. })), "{events:?}");
    assert!(lab.backend.waiters.is_empty(), "a LOCK that is repeated enters it again");
    // A pause, then another connection: grants may be lost.
    assert!(lab.turn().is_empty());
    let mut events = lab.after(Duration::from_millis(5));
    events.extend(lab.connect());
    assert!(matches!(events[..], [Event::Up { state: ServerState::MissedEvents }]), "{events:?}");
}

#[test]
fn clock_alone_drops_a_silent_connection() {
    let mut lab = Lab::up();
    lab.submit(lock(1, Until::Now));
    lab.turn();
    let sent = lab.now;
    let almost = REQUEST_TIMEOUT - Duration::from_millis(1);
    assert!(lab.after(almost).is_empty());
    // A reply shows that it lives, and the next one has its own time.
    lab.submit(lock(2, Until::Now));
    lab.say(&listed("7", &["granted 7"]));
    assert_eq!(lab.turn().len(), 1);
    assert_eq!(lab.backend.next_wake(), Some(sent.after(almost + REQUEST_TIMEOUT)));
    assert!(lab.after(almost).is_empty());
    let events = lab.after(Duration::from_millis(1));
    assert_eq!(failures(&events), [(RequestId::Lock(nonce(2)), Fate::NoReply, false)]);
    assert!(matches!(events.last(), Some(Event::Reconnecting { .. })));
}

#[test]
fn idle_connection_is_tested() {
    let mut lab = Lab::up();
    let ttl = Duration::from_secs(3);
    assert_eq!(lab.backend.next_wake(), Some(lab.now.after(ttl)));
    for time in [7, 8] {
        lab.after(ttl);
        let commands = lab.commands();
        let [test] = &commands[..] else { panic!("{commands:?}") };
        assert_eq!(test[..2], ["EVALSHA", Verb::Inspect.hash()]);
        lab.say(&listed(&format!("{time}000000"), &["free"]));
        lab.turn();
        // The reply has the server's time: the next LOCK is not refused as too old.
        assert_eq!(lab.backend.seen, time * 1_000_000);
    }
    lab.after(ttl);
    let events = lab.after(REQUEST_TIMEOUT);
    let events = &events[events.len() - 1..];
    assert!(matches!(events[..], [Event::Reconnecting { .. }]), "{events:?}");
}

/// What the next failed attempt to connect is reported as.
fn down_cause(events: &[Event]) -> &Cause {
    match events {
        [Event::Down { cause: Some(cause) }] => cause,
        _ => panic!("{events:?}"),
    }
}

#[test]
fn failed_attempt_names_address_and_cause() {
    let mut lab = Lab::new(Way::Refused);
    let events = lab.turn();
    assert_eq!(
        down_cause(&events).to_error().to_string(),
        "cannot reach Redis at here:1: connection refused"
    );
    let mut lab = Lab::new(Way::Silent);
    assert!(lab.after(CONNECT_TIMEOUT - Duration::from_millis(1)).is_empty());
    let events = lab.after(Duration::from_millis(1));
    assert_eq!(
        down_cause(&events).to_error().to_string(),
        "cannot reach Redis at here:1: no connection within 500ms"
    );
}

#[test]
fn attempts_after_a_connection_grow_to_their_limit() {
    let mut lab = Lab::up();
    lab.way(Way::Silent);
    lab.server = None;
    assert!(matches!(lab.turn()[..], [Event::Reconnecting { .. }]));
    for limit in [100, 200, 400, 500, 500] {
        let pause = lab.backend.next_wake().unwrap().since(lab.now);
        assert!(lab.after(pause).is_empty());
        let events = lab.after(Duration::from_millis(limit));
        let error = down_cause(&events).to_error().to_string();
        assert_eq!(error, format!("cannot reach Redis at here:1: no connection within {limit}ms"));
    }
}

#[test]
fn pauses_grow_to_their_limit() {
    let mut lab = Lab::new(Way::Refused);
    let ms = Duration::from_millis;
    for most in [5, 10, 20, 40, 80, 160, 250, 250] {
        let events = lab.turn();
        assert!(!down_cause(&events).is_permanent());
        let pause = lab.backend.next_wake().unwrap().since(lab.now);
        assert!((ms(most) / 2..=ms(most)).contains(&pause), "{pause:?} of {most}");
        assert!(lab.after(pause).is_empty());
    }
    // A connection ends the series.
    lab.way(Way::Open);
    lab.turn();
    let pause = lab.backend.next_wake().unwrap().since(lab.now);
    lab.after(pause);
    assert!(matches!(lab.connect()[..], [Event::Up { .. }]));
}

/// A server may end each connection at its first request.
#[test]
fn connections_that_end_at_once_are_failures() {
    let mut lab = Lab::up();
    let pause = |lab: &mut Lab, lasted: u64| {
        lab.now = lab.now.after(Duration::from_millis(lasted));
        lab.server = None;
        assert!(matches!(lab.turn()[..], [Event::Reconnecting { .. }]));
        let pause = lab.backend.next_wake().unwrap().since(lab.now);
        lab.after(pause);
        assert!(matches!(lab.connect()[..], [Event::Up { .. }]));
        pause
    };
    let last = (0..9).map(|_| pause(&mut lab, 900)).last().unwrap();
    assert!(last >= Duration::from_millis(125), "{last:?}");
    let steady = pause(&mut lab, 1_000);
    assert!(steady <= Duration::from_millis(5), "{steady:?}");
}

#[test]
fn server_is_checked_on_every_connection() {
    for (policy, version, named) in
        [("allkeys-lru", "7.2.0", "allkeys-lru"), ("noeviction", "6.2.14", "has version 6.2.14")]
    {
        let mut lab = Lab::up();
        (lab.policy, lab.version) = (policy, version);
        lab.server = None;
        assert!(matches!(lab.turn()[..], [Event::Reconnecting { .. }]));
        lab.after(Duration::from_millis(5));
        let events = lab.connect();
        let cause = down_cause(&events);
        let error = cause.to_error();
        assert!(cause.is_permanent() && error.to_string().contains(named), "{error}");
        (lab.policy, lab.version) = ("noeviction", "7.2.0");
        lab.after(Duration::from_secs(1));
        assert!(matches!(lab.connect()[..], [Event::Up { state: ServerState::MissedEvents }]));
    }
}
