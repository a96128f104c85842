//! The schemes of URLs: kind, options and example of each.

use crate::OpenError;

/// A scheme with a valid example.
#[derive(Debug)]
pub(super) struct Scheme {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) example: &'static str,
}

/// The strategy of a scheme, and its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Local,
    Noop,
    /// A single Redis server. With a scheme that begins with `rediss`, this kind and the next two
    /// use TLS.
    Redis,
    /// The master that Sentinels know.
    Sentinel,
    /// The masters of a Cluster.
    Cluster,
    /// A single Redis server over a Unix socket.
    RedisSocket,
    /// The nodes of a `gaggle serve`; with `https` over TLS.
    Http,
    /// A `gaggle serve` on a Unix socket.
    HttpSocket,
    Member(Policy, Transport),
}

/// Which strategy runs on the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Raft,
    Gaggle,
}

/// The channel between the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Memory,
    Redis,
    Tcp,
}

/// The example of a member over TCP, without its strategy.
macro_rules! tcp {
    () => {
        "+tcp://127.0.0.1:7001?cluster=demo&name=a\
         &peers=a@127.0.0.1:7001,b@127.0.0.1:7002,c@127.0.0.1:7003"
    };
}

/// The same with TLS.
macro_rules! tcp_with_tls {
    () => {
        "+tcp://10.0.0.1:7001?cluster=demo&name=a\
         &peers=a@10.0.0.1:7001,b@10.0.0.2:7001,c@10.0.0.3:7001\
         &tls_ca=/etc/gaggle/ca.pem&tls_cert=/etc/gaggle/a.pem&tls_key=/etc/gaggle/a-key.pem"
    };
}

/// Every scheme. The first one stands for a URL without a scheme.
pub(super) const SCHEMES: &[Scheme] = &[
    Scheme::new("redis", Kind::Redis, "redis://127.0.0.1:6379/0?queue=fifo&namespace=gaggle"),
    Scheme::new(
        "rediss",
        Kind::Redis,
        "rediss://redis.example.com:6379/0?queue=fifo&namespace=gaggle",
    ),
    Scheme::new(
        "redis+sentinel",
        Kind::Sentinel,
        "redis+sentinel://s1,s2,s3/mymaster/0?queue=fifo&namespace=gaggle",
    ),
    Scheme::new(
        "rediss+sentinel",
        Kind::Sentinel,
        "rediss+sentinel://s1,s2,s3/mymaster/0?queue=fifo&namespace=gaggle",
    ),
    Scheme::new(
        "redis+cluster",
        Kind::Cluster,
        "redis+cluster://h1,h2,h3?queue=fifo&namespace=gaggle",
    ),
    Scheme::new(
        "rediss+cluster",
        Kind::Cluster,
        "rediss+cluster://h1,h2,h3?queue=fifo&namespace=gaggle",
    ),
    Scheme::new("local", Kind::Local, "local:"),
    Scheme::new("noop", Kind::Noop, "noop:"),
    Scheme::new(
        "redis+unix",
        Kind::RedisSocket,
        "redis+unix:///run/redis/redis.sock?db=0&queue=fifo&namespace=gaggle",
    ),
    Scheme::new("http", Kind::Http, "http://127.0.0.1:7080?request_timeout=1s"),
    Scheme::new("https", Kind::Http, "https://locks.example.com:7080?token_file=/etc/gaggle/token"),
    Scheme::new("http+unix", Kind::HttpSocket, "http+unix:///run/gaggle.sock?request_timeout=1s"),
    Scheme::new(
        "gaggle+memory",
        Kind::Member(Policy::Gaggle, Transport::Memory),
        "gaggle+memory://demo?name=a&members=a,b,c",
    ),
    Scheme::new(
        "gaggle+redis",
        Kind::Member(Policy::Gaggle, Transport::Redis),
        "gaggle+redis://127.0.0.1:6379/0?cluster=demo&name=a&members=a,b,c",
    ),
    Scheme::new(
        "gaggle+tcp",
        Kind::Member(Policy::Gaggle, Transport::Tcp),
        concat!("gaggle", tcp!()),
    ),
    Scheme::new(
        "raft+memory",
        Kind::Member(Policy::Raft, Transport::Memory),
        "raft+memory://demo?name=a&members=a,b,c",
    ),
    Scheme::new(
        "raft+redis",
        Kind::Member(Policy::Raft, Transport::Redis),
        "raft+redis://127.0.0.1:6379/0?cluster=demo&name=a&members=a,b,c",
    ),
    Scheme::new("raft+tcp", Kind::Member(Policy::Raft, Transport::Tcp), concat!("raft", tcp!())),
];

impl Scheme {
    const fn new(name: &'static str, kind: Kind, example: &'static str) -> Self {
        Self { name, kind, example }
    }

    /// The names of the options: those of the kind, of TLS, and of the strategy.
    pub(super) fn options(&self) -> Vec<&'static str> {
        let redis =
            ["queue", "namespace", "allow_eviction", "replicas", "request_timeout", "waiter_ttl"];
        let member = ["heartbeat", "election_timeout", "request_timeout", "outside_max"];
        let (own, common): (&[_], &[_]) = match self.kind {
            Kind::Local | Kind::Noop => (&[], &[]),
            Kind::Redis | Kind::Cluster => (&[], &redis),
            Kind::Sentinel => (&["sentinel_user", "sentinel_password"], &redis),
            Kind::RedisSocket => (&["db", "user", "pass"], &redis),
            Kind::Http | Kind::HttpSocket => (&["token_file"], &["request_timeout"]),
            Kind::Member(_, Transport::Memory) => (&["name", "members"], &member),
            Kind::Member(_, Transport::Redis) => (&["cluster", "name", "members"], &member),
            Kind::Member(_, Transport::Tcp) => (&["cluster", "name", "peers"], &member),
        };
        let tls: &[_] = match self.kind {
            Kind::Member(_, Transport::Tcp) => {
                &["tls_ca", "tls_cert", "tls_key", "secret_file", "insecure"]
            }
            _ if self.has_tls() => &["tls_ca", "tls_cert", "tls_key", "tls_name"],
            _ => &[],
        };
        [own, tls, common].concat()
    }

    /// Whether the server is reached over TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.name.starts_with("rediss") || self.name == "https"
    }

    /// The strategy, named as in `Capabilities`.
    pub(super) fn strategy(&self) -> &'static str {
        match self.kind {
            Kind::Local => "local",
            Kind::Noop => "noop",
            Kind::Redis | Kind::Sentinel | Kind::Cluster | Kind::RedisSocket => "redis",
            Kind::Http | Kind::HttpSocket => "http",
            Kind::Member(Policy::Raft, _) => "raft",
            Kind::Member(Policy::Gaggle, _) => "gaggle",
        }
    }

    pub(super) fn named(name: &str) -> Result<&'static Self, OpenError> {
        if let Some(scheme) = Self::find(name) {
            return Ok(scheme);
        }
        let without_tls = Self::find(&name.replace("rediss", "redis"));
        Err(match without_tls.map(|scheme| (scheme.kind, scheme)) {
            Some((Kind::RedisSocket, scheme)) => {
                scheme.invalid_url("a Unix socket has no TLS: write redis+unix")
            }
            Some((Kind::Member(..), scheme)) => {
                scheme.invalid_url("TLS to the Redis of a channel (rediss) is not supported")
            }
            _ => OpenError::UnknownScheme { example: Self::nearest(name).example },
        })
    }

    fn find(name: &str) -> Option<&'static Self> {
        SCHEMES.iter().find(|scheme| scheme.name == name)
    }

    /// The scheme most similar to the beginning of the text, for a helpful example. `redis` if none
    /// is similar: `local:` would exclude no other process.
    pub(super) fn nearest_to(text: &str) -> &'static Self {
        Self::nearest(&text.split(':').next().unwrap_or_default().to_ascii_lowercase())
    }

    fn nearest(name: &str) -> &'static Self {
        let likeness = |scheme: &Self| {
            let known = scheme.name.bytes();
            let first = known.clone().zip(name.bytes()).take_while(|(a, b)| a == b).count();
            let last = known.rev().zip(name.bytes().rev()).take_while(|(a, b)| a == b).count();
            if name == scheme.name { usize::MAX } else { first + last }
        };
        // The first of equally similar schemes wins: `max_by_key` takes the last, hence `rev`.
        let nearest = SCHEMES.iter().rev().max_by_key(|scheme| likeness(scheme));
        nearest.filter(|scheme| likeness(scheme) > 2).unwrap_or(&SCHEMES[0])
    }

    /// Whether a user and a password may stand before the host.
    pub(super) fn has_user(&self) -> bool {
        matches!(
            self.kind,
            Kind::Redis
                | Kind::Sentinel
                | Kind::Cluster
                | Kind::Http
                | Kind::Member(_, Transport::Redis)
        )
    }

    /// The error for the URL as a whole.
    pub(super) fn invalid_url(&self, problem: impl AsRef<str>) -> OpenError {
        let problem = format!("invalid URL: {}", problem.as_ref());
        OpenError::InvalidUrl { problem, example: self.example }
    }

    /// The error for the value of an option.
    pub(super) fn invalid(&self, option: &str, problem: impl AsRef<str>) -> OpenError {
        self.problem_of(option, format!("option {option}: {}", problem.as_ref()))
    }

    /// The error for an option, with an example that has TLS if the option belongs to it.
    pub(super) fn problem_of(&self, option: &str, problem: String) -> OpenError {
        let of_tls = option.starts_with("tls_") || option == "secret_file";
        let example = if of_tls { self.example_with_tls() } else { self.example };
        OpenError::InvalidUrl { problem, example }
    }

    /// A valid URL with TLS, if the scheme has it.
    pub(super) fn example_with_tls(&self) -> &'static str {
        match self.kind {
            Kind::Member(Policy::Gaggle, Transport::Tcp) => concat!("gaggle", tcp_with_tls!()),
            Kind::Member(Policy::Raft, Transport::Tcp) => concat!("raft", tcp_with_tls!()),
            Kind::Http => Self::find("https").unwrap_or(self).example,
            // `rediss+cluster` for `redis+cluster`.
            _ => Self::find(&self.name.replacen("redis", "rediss", 1)).unwrap_or(self).example,
        }
    }
}
