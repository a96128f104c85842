//! The strategies and channels that `increment` and `bench` run, by name and by URL.

mod secret;

use std::{
    convert::Infallible,
    fmt,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use clap::ValueEnum;
use gaggle::{LockOptions, Locker, Url};
use humantime::format_duration;

use self::secret::Secret;
use crate::{
    failure::{BUILT_WITHOUT_TLS, Failure},
    server_url::{self, HTTP, REDIS},
};

/// A strategy, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyName {
    /// A lock table in this process.
    Local,
    /// A single Redis server.
    Redis,
    /// A `gaggle serve`.
    Http,
    /// A replicated log of compare-and-set entries.
    Raft,
    /// A replicated log with a queue.
    Gaggle,
    /// No lock at all.
    Noop,
}

/// A channel, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChannelName {
    /// A hub in this process.
    Memory,
    /// The pub/sub of a Redis.
    Redis,
    /// TCP on loopback.
    Tcp,
    /// The same under TLS, with a secret of the run.
    Tls,
}

/// A strategy over a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) strategy: StrategyName,
    /// Only of the strategies `raft` and `gaggle`.
    pub(super) channel: Option<ChannelName>,
}

/// The URL of `--redis` or `--http`, or the problem with it: clap would print an invalid URL, and so
/// [`Selection::check`] reports it. Without `Debug`, which clap does not need.
#[derive(Clone)]
pub(super) struct ServerUrl(Result<Url, String>);

/// The members of a run.
pub(super) struct Cluster {
    /// The URL of each.
    pub(super) urls: Vec<String>,
    /// The secret file of the channel `tls`, which is deleted with the run.
    _secret: Option<Secret>,
}

impl StrategyName {
    pub(super) fn has_channel(self) -> bool {
        matches!(self, Self::Raft | Self::Gaggle)
    }
}

impl ServerUrl {
    pub(super) fn of_redis(text: &str) -> Result<Self, Infallible> {
        Ok(Self(server_url::parse(text.trim(), &[REDIS])))
    }

    pub(super) fn of_http(text: &str) -> Result<Self, Infallible> {
        Ok(Self(server_url::parse(text.trim(), &[HTTP])))
    }

    /// Whether it is one Redis over TCP, without TLS: the channel and the counter of `increment`
    /// can then use it, too.
    pub(super) fn is_plain(&self) -> bool {
        self.0.as_ref().is_ok_and(|url| url.scheme() == "redis")
    }

    fn url(&self) -> &Url {
        self.0.as_ref().expect("`Selection::check` has passed")
    }

    /// The URL without its query, which holds options of the strategy.
    pub(super) fn server(&self) -> &str {
        let url = self.url().with_password();
        url.split_once('?').map_or(url, |(server, _)| server)
    }

    /// Host, port and database, without the password.
    pub(super) fn address(&self) -> String {
        self.url().address()
    }
}

impl Setup {
    fn channel(self) -> ChannelName {
        self.channel.expect("raft and gaggle have a channel")
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self.strategy))?;
        self.channel.map_or(Ok(()), |channel| write!(f, "/{}", name(channel)))
    }
}

/// A strategy or a channel, as the command line names it.
pub(super) fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is skipped");
    value.get_name().to_owned()
}

/// The strategy of a command that names none: the server that is given, else a group.
pub(super) fn default_strategy(
    (redis, http): (Option<&ServerUrl>, Option<&ServerUrl>),
    names_channel: bool,
) -> StrategyName {
    match (redis, http) {
        _ if names_channel => StrategyName::Gaggle,
        (Some(_), _) => StrategyName::Redis,
        (_, Some(_)) => StrategyName::Http,
        _ => StrategyName::Gaggle,
    }
}

/// The values without repetitions, in the order of the first occurrences.
pub(super) fn distinct<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(value) {
            distinct.push(*value);
        }
    }
    distinct
}

/// The strategies and channels that the options of a command select.
pub(super) struct Selection<'a> {
    pub(super) strategies: &'a [StrategyName],
    pub(super) channels: &'a [ChannelName],
    /// Whether `--channel` was given, rather than a default taken.
    pub(super) names_channel: bool,
    pub(super) redis: Option<&'a ServerUrl>,
    pub(super) http: Option<&'a ServerUrl>,
    /// Whether the Redis also keeps a counter.
    pub(super) counts: bool,
    pub(super) processes: bool,
}

impl Selection<'_> {
    /// Refuses an invalid combination of options.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if let Some(Err(problem)) = self.redis.map(|redis| &redis.0) {
            return Err(Failure::new(format!("--redis (or GAGGLE_REDIS): {problem}")));
        }
        if let Some(Err(problem)) = self.http.map(|http| &http.0) {
            return Err(Failure::new(format!("--http (or GAGGLE_HTTP): {problem}")));
        }
        let has_group = self.strategies.iter().any(|strategy| strategy.has_channel());
        let over = |channel| has_group && self.channels.contains(&channel);
        let needs_redis =
            self.strategies.contains(&StrategyName::Redis) || over(ChannelName::Redis);
        let needs_plain = self.counts || over(ChannelName::Redis);
        let problem = if over(ChannelName::Tls) && cfg!(not(feature = "tls")) {
            BUILT_WITHOUT_TLS
        } else if needs_plain && self.redis.is_some_and(|redis| !redis.is_plain()) {
            "the channel redis and the counter of increment need one Redis over TCP, without TLS: \
             --redis redis://127.0.0.1:6379/0"
        } else if needs_redis && self.redis.is_none() {
            "the strategy or channel redis needs --redis redis://127.0.0.1:6379/0"
        } else if self.strategies.contains(&StrategyName::Http) && self.http.is_none() {
            "the strategy http needs --http http://127.0.0.1:7080"
        } else if self.names_channel && !has_group {
            "--channel is only for the strategies raft and gaggle: add --strategy gaggle"
        } else if self.processes && self.strategies.contains(&StrategyName::Local) {
            "the strategy local lives in one process: omit --processes"
        } else if self.processes && over(ChannelName::Memory) {
            "the channel memory lives in one process: use --channel tcp or redis"
        } else {
            return Ok(());
        };
        Err(Failure::new(problem))
    }
}

/// The members in a cluster of this run only.
pub(super) fn members(
    setup: Setup,
    members: u32,
    (redis, http): (Option<&ServerUrl>, Option<&ServerUrl>),
    run: &str,
) -> Result<Cluster, Failure> {
    let redis = || redis.expect("`Selection::check` has passed");
    let is_tls = setup.channel == Some(ChannelName::Tls);
    let secret = is_tls.then(|| Secret::new(run)).transpose()?;
    let tcp_options = secret.as_ref().map(Secret::option).unwrap_or_default();
    let names: Vec<_> = (0..members).map(|member| format!("m{member}")).collect();
    let members = names.join(",");
    let family = name(setup.strategy);
    let same = |url: String| vec![url; names.len()];
    let urls = match setup.strategy {
        StrategyName::Local | StrategyName::Noop => same(format!("{family}:")),
        StrategyName::Redis => same(redis().url().with_password().to_owned()),
        StrategyName::Http => {
            let http = http.expect("`Selection::check` has passed");
            same(http.url().with_password().to_owned())
        }
        StrategyName::Raft | StrategyName::Gaggle => match setup.channel() {
            ChannelName::Memory => {
                let url = |name| format!("{family}+memory://{run}?name={name}&members={members}");
                names.iter().map(url).collect()
            }
            ChannelName::Redis => {
                let server = redis().server();
                let url =
                    |name| format!("{family}+{server}?cluster={run}&name={name}&members={members}");
                names.iter().map(url).collect()
            }
            ChannelName::Tcp | ChannelName::Tls => {
                let ports = free_ports(names.len())?;
                let at = |(name, port)| format!("{name}@127.0.0.1:{port}");
                let peers = names.iter().zip(&ports).map(at).collect::<Vec<_>>().join(",");
                let url = |(name, port)| {
                    let listen = format!("{family}+tcp://127.0.0.1:{port}");
                    format!("{listen}?cluster={run}&name={name}&peers={peers}{tcp_options}")
                };
                names.iter().zip(&ports).map(url).collect()
            }
        },
    };
    Ok(Cluster { urls, _secret: secret })
}

/// How long a member may take until it votes.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Waits until a member votes, and locks once, which opens lazy connections.
pub(super) async fn warm_up(locker: &Locker, key: &str) -> Result<(), Failure> {
    match tokio::time::timeout(READY_WITHIN, locker.ready()).await {
        Ok(ready) => ready.map_err(|error| Failure::of(&error))?,
        Err(_) => {
            return Err(Failure::new(format!("no vote within {}", format_duration(READY_WITHIN))));
        }
    }
    let options = LockOptions::default().max_wait(READY_WITHIN);
    let guard = locker.lock_with(key, options).await.map_err(|error| Failure::of(&error))?;
    guard.unlock().await.map_err(|error| Failure::of(&error))
}

/// Different free ports of loopback: all are bound at the same time.
fn free_ports(count: usize) -> Result<Vec<u16>, Failure> {
    let listener = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners: Result<Vec<_>, _> = (0..count).map(|_| listener()).collect();
    let ports = listeners.and_then(|listeners| {
        listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
    });
    ports.map_err(|error| Failure::new("no free ports on loopback").because(&error))
}
