//! The schemes of URLs: kind, options and example of each.

use url::Url;

use crate::OpenError;

/// A scheme with its options and a valid example.
#[derive(Debug)]
pub(super) struct Scheme {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) options: &'static [&'static str],
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

/// The options of a member on one channel, before the options of each.
macro_rules! member_options {
    ($($option:literal),+) => {
        &[$($option,)+ "heartbeat", "election_timeout", "request_timeout", "outside_max"]
    };
}

/// The options of the Redis strategy, after those of its place.
macro_rules! redis_options {
    ($($option:literal),*) => {
        &[$($option,)* "queue", "namespace", "allow_eviction", "replicas", "request_timeout"]
    };
}

/// The example of a member over TCP with TLS, without its strategy.
macro_rules! tcp_with_tls {
    () => {
        "+tcp://10.0.0.1:7001?cluster=demo&name=a\
         &peers=a@10.0.0.1:7001,b@10.0.0.2:7001,c@10.0.0.3:7001\
         &tls_ca=/etc/gaggle/ca.pem&tls_cert=/etc/gaggle/a.pem&tls_key=/etc/gaggle/a-key.pem"
    };
}

const ON_MEMORY: &[&str] = member_options!["name", "members"];
const ON_REDIS: &[&str] = member_options!["cluster", "name", "members"];
const ON_TCP: &[&str] = member_options![
    "cluster",
    "name",
    "peers",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "secret_file",
    "insecure"
];

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "redis",
        kind: Kind::Redis,
        options: redis_options![],
        example: "redis://127.0.0.1:6379/0?queue=fifo&namespace=gaggle",
    },
    Scheme {
        name: "rediss",
        kind: Kind::Redis,
        options: redis_options!["tls_ca", "tls_cert", "tls_key", "tls_name"],
        example: "rediss://redis.example.com:6379/0?queue=fifo&namespace=gaggle",
    },
    Scheme {
        name: "redis+sentinel",
        kind: Kind::Sentinel,
        options: redis_options!["sentinel_user", "sentinel_password"],
        example: "redis+sentinel://s1,s2,s3/mymaster/0?queue=fifo&namespace=gaggle",
    },
    Scheme {
        name: "rediss+sentinel",
        kind: Kind::Sentinel,
        options: redis_options![
            "sentinel_user",
            "sentinel_password",
            "tls_ca",
            "tls_cert",
            "tls_key",
            "tls_name"
        ],
        example: "rediss+sentinel://s1,s2,s3/mymaster/0?queue=fifo&namespace=gaggle",
    },
    Scheme {
        name: "redis+cluster",
        kind: Kind::Cluster,
        options: redis_options![],
        example: "redis+cluster://h1,h2,h3?queue=fifo&namespace=gaggle",
    },
    Scheme {
        name: "rediss+cluster",
        kind: Kind::Cluster,
        options: redis_options!["tls_ca", "tls_cert", "tls_key", "tls_name"],
        example: "rediss+cluster://h1,h2,h3?queue=fifo&namespace=gaggle",
    },
    Scheme { name: "local", kind: Kind::Local, options: &[], example: "local:" },
    Scheme { name: "noop", kind: Kind::Noop, options: &[], example: "noop:" },
    Scheme {
        name: "redis+unix",
        kind: Kind::RedisSocket,
        options: redis_options!["db", "user", "pass"],
        example: "redis+unix:///run/redis/redis.sock?db=0&queue=fifo&namespace=gaggle",
    },
    Scheme {
        name: "gaggle+memory",
        kind: Kind::Member(Policy::Gaggle, Transport::Memory),
        options: ON_MEMORY,
        example: "gaggle+memory://demo?name=a&members=a,b,c",
    },
    Scheme {
        name: "gaggle+redis",
        kind: Kind::Member(Policy::Gaggle, Transport::Redis),
        options: ON_REDIS,
        example: "gaggle+redis://127.0.0.1:6379/0?cluster=demo&name=a&members=a,b,c",
    },
    Scheme {
        name: "gaggle+tcp",
        kind: Kind::Member(Policy::Gaggle, Transport::Tcp),
        options: ON_TCP,
        example: "gaggle+tcp://127.0.0.1:7001?cluster=demo&name=a\
                  &peers=a@127.0.0.1:7001,b@127.0.0.1:7002,c@127.0.0.1:7003",
    },
    Scheme {
        name: "raft+memory",
        kind: Kind::Member(Policy::Raft, Transport::Memory),
        options: ON_MEMORY,
        example: "raft+memory://demo?name=a&members=a,b,c",
    },
    Scheme {
        name: "raft+redis",
        kind: Kind::Member(Policy::Raft, Transport::Redis),
        options: ON_REDIS,
        example: "raft+redis://127.0.0.1:6379/0?cluster=demo&name=a&members=a,b,c",
    },
    Scheme {
        name: "raft+tcp",
        kind: Kind::Member(Policy::Raft, Transport::Tcp),
        options: ON_TCP,
        example: "raft+tcp://127.0.0.1:7001?cluster=demo&name=a\
                  &peers=a@127.0.0.1:7001,b@127.0.0.1:7002,c@127.0.0.1:7003",
    },
];

impl Scheme {
    /// The strategy, named as in `Capabilities`.
    pub(super) fn strategy(&self) -> &'static str {
        match self.kind {
            Kind::Local => "local",
            Kind::Noop => "noop",
            Kind::Redis | Kind::Sentinel | Kind::Cluster | Kind::RedisSocket => "redis",
            Kind::Member(Policy::Raft, _) => "raft",
            Kind::Member(Policy::Gaggle, _) => "gaggle",
        }
    }

    pub(super) fn named(name: &str) -> Result<&'static Self, OpenError> {
        if let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.name == name) {
            return Ok(scheme);
        }
        let plain = name.replace("rediss", "redis");
        let without_tls = SCHEMES.iter().find(|scheme| scheme.name == plain);
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

    /// The error for a URL such as `localhost:6379`.
    pub(super) fn missing_in_url() -> OpenError {
        SCHEMES[0].invalid_url("the scheme is missing")
    }

    /// Whether a user and a password may stand before the host.
    pub(super) fn has_user(&self) -> bool {
        matches!(
            self.kind,
            Kind::Redis | Kind::Sentinel | Kind::Cluster | Kind::Member(_, Transport::Redis)
        )
    }

    pub(super) fn invalid_url(&self, problem: impl Into<String>) -> OpenError {
        OpenError::InvalidUrl { problem: problem.into(), example: self.example }
    }

    pub(super) fn invalid(&self, option: &'static str, problem: impl Into<String>) -> OpenError {
        let example = self.example_with(option);
        OpenError::InvalidOption { option, problem: problem.into(), example }
    }

    pub(super) fn missing(&self, option: &'static str) -> OpenError {
        let example = self.example_with(option);
        OpenError::MissingOption { scheme: self.name, option, example }
    }

    /// The example, with TLS if the option belongs to it.
    fn example_with(&self, option: &str) -> &'static str {
        let of_tls = option.starts_with("tls_") || option == "secret_file";
        if of_tls { self.example_with_tls() } else { self.example }
    }

    /// A valid URL with TLS, if the scheme has it.
    pub(super) fn example_with_tls(&self) -> &'static str {
        match self.kind {
            Kind::Member(Policy::Gaggle, Transport::Tcp) => concat!("gaggle", tcp_with_tls!()),
            Kind::Member(Policy::Raft, Transport::Tcp) => concat!("raft", tcp_with_tls!()),
            _ => {
                // `rediss+cluster` for `redis+cluster`.
                let twin = self.name.replacen("redis", "rediss", 1);
                SCHEMES.iter().find(|scheme| scheme.name == twin).unwrap_or(self).example
            }
        }
    }

    /// The error for the option with this number in the URL. Its name is shown if another scheme
    /// has it, or if it cannot be a part of a password.
    pub(super) fn unknown_option(&self, name: &str, number: usize, is_shown: bool) -> OpenError {
        let is_known = SCHEMES.iter().any(|scheme| scheme.options.contains(&name));
        OpenError::UnknownOption {
            scheme: self.name,
            option: match is_known || is_shown {
                true => name.to_owned(),
                false => format!("number {number} of the URL"),
            },
            allowed: self.options,
            example: self.example_with(name),
        }
    }
}

/// Whether a URL has a user or a password.
#[cfg_attr(
    not(any(feature = "redis", feature = "raft")),
    allow(dead_code, reason = "other URLs have no host")
)]
pub(super) fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}
