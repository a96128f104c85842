//! The options of a handle on Redis.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use redis::{Client, ConnectionInfo};

use super::connect::Server;
use crate::{
    capabilities::{Capabilities, Exclusion, Order, Survives},
    client::{backend::Profile, busy_poll::BUSY_POLL_MAX},
    clock::{BootClock, Clock},
    deadline::Drift,
    defaults,
    error::Error,
    limits::DURATION_MAX,
    options::{check_option, check_span},
};

/// Between two attempts where there is no queue: the numbers of Gaggle 1.x.
const RETRY: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(300));
/// The longest time between two checks of a waiter.
const CHECK_MAX: Duration = Duration::from_secs(1);
/// How many requests of a handle may be pending, some kilobytes each.
const REQUESTS_MAX: usize = 1 << 20;

/// How the waiters of a key are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// Waiters queue in Redis, first come, first served, across all processes; an unlock grants
    /// the key to the next waiter. The default.
    #[default]
    Fifo,
    /// Waiters retry every 150 to 300 ms, as in Gaggle 1.x, and are granted the key in no order. A
    /// free key may stay unused for a while. For comparison.
    None,
}

/// How to use one Redis as a lock service.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use gaggle_strategies::RedisOptions;
///
/// let options = RedisOptions::new("redis://127.0.0.1:6379/0")
///     .namespace("orders")
///     .request_timeout(Duration::from_millis(500));
/// ```
#[derive(Clone, Debug)]
pub struct RedisOptions {
    pub(super) namespace: String,
    pub(super) queue: Queue,
    pub(super) request_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) waiter_ttl: Duration,
    pub(super) nonce_memory: Duration,
    pub(super) allow_eviction: bool,
    pub(super) waiters_max: u64,
    pub(super) replicas: u32,
    pub(super) busy_poll: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) server: Server,
}

/// The server, user, password and database of a connection that the program has configured already.
/// Its other settings are the library's own.
///
/// # Examples
///
/// ```
/// use gaggle_strategies::RedisOptions;
///
/// let client = redis::Client::open("redis://127.0.0.1:6379/1")?;
/// let options = RedisOptions::from(client.get_connection_info().clone()).namespace("orders");
/// # Ok::<(), redis::RedisError>(())
/// ```
impl From<ConnectionInfo> for RedisOptions {
    fn from(info: ConnectionInfo) -> Self {
        Self::at(Server::of(info))
    }
}

/// The options of the client's [`ConnectionInfo`]; no connection of the client is used.
impl From<&Client> for RedisOptions {
    fn from(client: &Client) -> Self {
        client.get_connection_info().clone().into()
    }
}

impl RedisOptions {
    /// The defaults for the server at `redis://[[user]:password@]host[:port][/db]`, over TLS at
    /// `rediss://…` with the feature `tls`, or on the Unix socket `redis+unix:///path[?db=0]`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self::at(Server::at_url(&url.into()))
    }

    fn at(server: Server) -> Self {
        Self {
            namespace: defaults::NAMESPACE.into(),
            queue: Queue::default(),
            request_timeout: defaults::REQUEST_TIMEOUT,
            connect_timeout: defaults::CONNECT_TIMEOUT,
            waiter_ttl: defaults::WAITER_TTL,
            nonce_memory: defaults::NONCE_MEMORY,
            allow_eviction: false,
            waiters_max: defaults::WAITERS_MAX,
            replicas: 0,
            busy_poll: defaults::BUSY_POLL,
            clock: Arc::new(BootClock),
            server,
        }
    }

    /// Sets the Sentinels, as `host[:port]`, that know where the server is: the master of the name
    /// `master`. In each attempt to connect they are asked in turn for its address, in place of the
    /// address that the options were made from; user, password, database and TLS are as there.
    /// `docs/redis.md` says what a failover can lose.
    ///
    /// ```
    /// use gaggle_strategies::RedisOptions;
    ///
    /// let options = RedisOptions::new("redis://user:password@master/0")
    ///     .sentinels("mymaster", ["10.0.0.1", "10.0.0.2", "10.0.0.3:26380"]);
    /// ```
    #[must_use]
    pub fn sentinels(
        mut self,
        master: impl Into<String>,
        addresses: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let addresses = addresses.into_iter().map(Into::into).collect();
        self.server.set_sentinels(master.into(), addresses);
        self
    }

    /// Sets the login at the Sentinels, none by default. It has no effect before
    /// [`sentinels`](Self::sentinels).
    #[must_use]
    pub fn sentinel_login(mut self, user: Option<&str>, password: &str) -> Self {
        self.server.set_sentinel_login(user, password);
        self
    }

    /// Sets that the server is one node of a Redis Cluster, and other nodes, as `host[:port]`. In
    /// each attempt to connect, all nodes that are known are asked in turn for the master that
    /// serves the namespace. All keys of a namespace are in one slot, and so on one master.
    ///
    /// ```
    /// use gaggle_strategies::RedisOptions;
    ///
    /// let options = RedisOptions::new("redis://user:password@10.0.0.1:6379")
    ///     .cluster(["10.0.0.2", "10.0.0.3:7000"]);
    /// ```
    #[must_use]
    pub fn cluster(mut self, others: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.server.set_cluster(others.into_iter().map(Into::into).collect());
        self
    }

    /// Uses TLS with these files: the authorities that sign the server's certificate, and a client
    /// certificate. The defaults are the authorities of the system and no certificate.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, files: gaggle_channels::tls::TlsFiles) -> Self {
        self.server.set_tls_files(files);
        self
    }

    /// Uses TLS, and sets the name in the server's certificate: by default the host.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_name(mut self, name: impl Into<String>) -> Self {
        self.server.set_tls_name(name.into());
        self
    }

    /// Sets the first part of every key and topic, `gaggle` by default: 1 to 128 bytes without
    /// braces. Locks of different namespaces know nothing of each other.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets how waiters are served, [`Queue::Fifo`] by default.
    #[must_use]
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the time within which `unlock`, `extend`, `inspect` and a `lock` with a `max_wait` of
    /// zero end: 1 ms to 1 h, 1 s by default. A connection that is silent for this long is dropped.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets how long one attempt to connect may take, with TLS, login and checks: 1 ms to 1 h, 5 s
    /// by default. The first one after a connection was lost may take a fifth of it, and each
    /// further attempt twice as long as its predecessor. A Redis behind a slow link needs more.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long a process may be silent before its waiters are dropped: 100 ms to 1 h, 3 s by
    /// default. Checks of waiters are signs of life. A process that waits for more than 1,300 keys
    /// checks each less often than once a second where this allows it: at least every third of it.
    #[must_use]
    pub fn waiter_ttl(mut self, ttl: Duration) -> Self {
        self.waiter_ttl = ttl;
        self
    }

    /// Sets how long Redis remembers an ended nonce of which a copy may arrive: 1 s to 1 h, 30 s by
    /// default. A LOCK that may be older is refused, because Redis may have forgotten its nonce. A
    /// shorter time saves memory in a Redis that has little.
    #[must_use]
    pub fn nonce_memory(mut self, memory: Duration) -> Self {
        self.nonce_memory = memory;
        self
    }

    /// Sets whether a Redis that may evict keys is accepted; it can then lose locks. `false` by
    /// default.
    #[must_use]
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.allow_eviction = allow;
        self
    }

    /// Sets how many may wait for one key: 1 to 10,000,000, 65,536 by default. Further callers get
    /// [`Error::Limit`] at once, which sheds load. A waiter takes some 200 bytes in Redis.
    #[must_use]
    pub fn waiters_max(mut self, most: u64) -> Self {
        self.waiters_max = most;
        self
    }

    /// Sets how many replicas must have acknowledged a grant, or an extension, before it is
    /// reported: 0 to 100, 0 by default. If at most this many replicas can be promoted, a failover
    /// loses no lock that was reported; if more can, it can still lose some.
    ///
    /// A grant that too few replicas acknowledge is withdrawn after half of `request_timeout`, or
    /// a quarter of `waiter_ttl` if that is shorter. The call requests it again in its `max_wait`,
    /// and ends with [`Error::Unavailable`]. Each grant takes one more round trip.
    #[must_use]
    pub fn replicas(mut self, count: u32) -> Self {
        self.replicas = count;
        self
    }

    /// Sets how long the handle polls for the reply to its only request before it sleeps: 0 (never)
    /// to 1 ms, 100 µs by default. Waking an idle core often takes longer than a Redis nearby
    /// needs. Other tasks of the runtime run in between. If replies are later, fewer requests poll,
    /// down to one of 64.
    #[must_use]
    pub fn busy_poll(mut self, limit: Duration) -> Self {
        self.busy_poll = limit;
        self
    }

    /// Sets where local time is read, [`BootClock`] by default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Checks everything that needs no I/O.
    pub(super) fn check(&self) -> Result<(), Error> {
        let braces = self.namespace.contains(['{', '}']);
        if self.namespace.is_empty() || self.namespace.len() > 128 || braces {
            return Err(Error::InvalidOptions {
                field: "namespace",
                value: format!("{:?}", self.namespace),
                limit: "1 to 128 bytes without braces".into(),
            });
        }
        let (ms, hour) = (Duration::from_millis(1), Duration::from_secs(3600));
        check_span("request_timeout", self.request_timeout, ms, hour)?;
        check_span("connect_timeout", self.connect_timeout, ms, hour)?;
        check_span("waiter_ttl", self.waiter_ttl, ms * 100, hour)?;
        check_span("nonce_memory", self.nonce_memory, ms * 1000, hour)?;
        check_span("busy_poll", self.busy_poll, Duration::ZERO, BUSY_POLL_MAX)?;
        self.server.check()?;
        count("replicas", self.replicas.into(), 0..=100)?;
        count("waiters_max", self.waiters_max, 1..=10_000_000)
    }

    /// The properties that the client core needs.
    pub(super) fn profile(&self) -> Profile {
        let queues = self.queue == Queue::Fifo;
        Profile {
            capabilities: Capabilities {
                exclusion: Exclusion::WhileServerKeepsMemory,
                order: if queues { Order::Fifo } else { Order::None },
                survives: Survives::AnyClient,
                distributed: true,
                // A process without a queue reads no publications.
                notifies_forced: queues,
                ..Capabilities::none("redis")
            },
            queues,
            retry: RETRY,
            // A connection loses nothing without breaking.
            resend: None,
            // Checks are signs of life as well.
            check_every: Some(check_every(self.waiter_ttl)),
            lease_max: DURATION_MAX,
            request_timeout: self.request_timeout,
            requests_max: REQUESTS_MAX,
            drift: Drift::default(),
            busy_poll: self.busy_poll,
        }
    }
}

/// The longest time between two checks of a waiter, with this `waiter_ttl`.
pub(super) fn check_every(waiter_ttl: Duration) -> Duration {
    CHECK_MAX.min(waiter_ttl / 3)
}

fn count(field: &'static str, value: u64, limits: RangeInclusive<u64>) -> Result<(), Error> {
    let limit = format_args!("{} to {}", limits.start(), limits.end());
    check_option(field, limits.contains(&value), value, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_beyond_its_limit_is_named() {
        let base = || RedisOptions::new("redis://127.0.0.1");
        let bad = [
            ("namespace", base().namespace("")),
            ("namespace", base().namespace("a{b")),
            ("namespace", base().namespace("x".repeat(129))),
            ("request_timeout", base().request_timeout(Duration::ZERO)),
            ("connect_timeout", base().connect_timeout(Duration::from_secs(3601))),
            ("waiter_ttl", base().waiter_ttl(Duration::from_millis(99))),
            ("nonce_memory", base().nonce_memory(Duration::from_millis(999))),
            ("busy_poll", base().busy_poll(Duration::from_micros(1001))),
            ("waiters_max", base().waiters_max(0)),
            ("replicas", base().replicas(101)),
        ];
        for (name, options) in bad {
            let result = options.check();
            let right =
                matches!(&result, Err(Error::InvalidOptions { field, .. }) if *field == name);
            assert!(right, "{name}: {result:?}");
        }
        base().check().unwrap();
    }

    #[test]
    fn a_password_is_not_shown() {
        for url in ["redis://me:secret@h", "redis+unix:///s?pass=secret", "redis://me:1?secret@h"] {
            let shown = format!("{:?}", RedisOptions::new(url));
            assert!(!shown.contains("secret") && shown.contains("namespace"), "{shown}");
        }
        let client = Client::open("redis://me:secret@h").unwrap();
        let shown = format!("{:?}", RedisOptions::from(&client));
        assert!(!shown.contains("secret") && shown.contains("namespace"), "{shown}");
    }

    #[test]
    fn redis_profile_has_the_values_of_its_options() {
        let (timeout, polls) = (Duration::from_millis(123), Duration::from_micros(45));
        let options = RedisOptions::new("redis://h").request_timeout(timeout);
        let profile = options.busy_poll(polls).queue(Queue::None).profile();
        assert_eq!((profile.request_timeout, profile.busy_poll), (timeout, polls));
        let brief = RedisOptions::new("redis://h").waiter_ttl(Duration::from_millis(300)).profile();
        assert_eq!(brief.check_every, Some(Duration::from_millis(100)), "alive within waiter_ttl");
        let retry = [150, 300].map(Duration::from_millis);
        assert_eq!((profile.queues, profile.retry), (false, (retry[0], retry[1])));
    }
}
