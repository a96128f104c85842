//! What both `increment` and `bench` run: a strategy by its name, over a channel, opened by URL.

use std::{
    convert::Infallible,
    fmt,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use clap::ValueEnum;
use url::Url;

use crate::failure::Failure;

/// A strategy, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyName {
    /// A lock table in this process.
    Local,
    /// One Redis.
    Redis,
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
}

/// What is run: a strategy, over a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) strategy: StrategyName,
    /// Of the Raft family only.
    pub(super) channel: Option<ChannelName>,
}

/// The Redis of `--redis`, and what is wrong with it: what parses arguments would show a refused one
/// whole, its password included.
#[derive(Clone)]
pub(super) struct RedisUrl {
    server: String,
    given: String,
    wrong: Option<String>,
}

impl StrategyName {
    pub(super) fn has_channel(self) -> bool {
        matches!(self, Self::Raft | Self::Gaggle)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Redis => "redis",
            Self::Raft => "raft",
            Self::Gaggle => "gaggle",
            Self::Noop => "noop",
        }
    }
}

impl ChannelName {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Tcp => "tcp",
        }
    }
}

impl RedisUrl {
    pub(super) fn parse(text: &str) -> Result<Self, Infallible> {
        let (given, mut server, mut wrong) = (text.to_owned(), text.to_owned(), None);
        match Url::parse(text) {
            Ok(mut url) if url.scheme() == "redis" => {
                url.set_query(None);
                url.set_fragment(None);
                server = url.into();
            }
            Ok(url) if url.scheme() == "rediss" => wrong = Some("TLS is not supported".to_owned()),
            Ok(_) => wrong = Some("its scheme is not redis".to_owned()),
            Err(error) => wrong = Some(error.to_string()),
        }
        Ok(Self { server, given, wrong })
    }

    /// The server alone; the options, if any were given, are the strategy's.
    pub(super) fn server(&self) -> &str {
        &self.server
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

impl Setup {
    fn channel(self) -> ChannelName {
        self.channel.expect("the Raft family has a channel")
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.strategy.as_str())?;
        self.channel.map_or(Ok(()), |channel| write!(f, "/{}", channel.as_str()))
    }
}

/// What the options ask for together.
pub(super) struct Asked<'a> {
    pub(super) strategies: &'a [StrategyName],
    pub(super) channels: &'a [ChannelName],
    /// Whether somebody named a channel, rather than the defaults.
    pub(super) channel_given: bool,
    pub(super) redis: Option<&'a RedisUrl>,
    pub(super) processes: bool,
}

impl Asked<'_> {
    /// Refuses what cannot be, before anything runs.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if let Some(wrong) = self.redis.and_then(|redis| redis.wrong.as_ref()) {
            let example = "for example redis://127.0.0.1:6379/0";
            return Err(Failure::new(format!("--redis: {wrong}; {example}")));
        }
        let over_channel = self.strategies.iter().any(|strategy| strategy.has_channel());
        let over = |channel| over_channel && self.channels.contains(&channel);
        let needs_redis =
            self.strategies.contains(&StrategyName::Redis) || over(ChannelName::Redis);
        let problem = if needs_redis && self.redis.is_none() {
            "the strategy or channel redis needs --redis redis://127.0.0.1:6379/0"
        } else if self.channel_given && !over_channel {
            "--channel is for the strategies raft and gaggle, and none is asked for"
        } else if self.processes && self.strategies.contains(&StrategyName::Local) {
            "the strategy local lives in one process: leave --processes out"
        } else if self.processes && over(ChannelName::Memory) {
            "the channel memory lives in one process: take --channel tcp or redis"
        } else {
            return Ok(());
        };
        Err(Failure::new(problem))
    }
}

/// `15ms`, `2s`, `500us`, `0`; at most this long, so that a run ends.
pub(super) fn parse_span(text: &str, most: Duration) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let wrong = || format!("say how long as 15ms, 2s or 500us, at most {}s", most.as_secs());
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_us = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "" if number == 0 => 1,
        _ => return Err(wrong()),
    };
    let span = number.checked_mul(unit_us).map(Duration::from_micros).ok_or_else(wrong)?;
    if span > most { Err(wrong()) } else { Ok(span) }
}

/// One URL a member, for a cluster of this run alone.
pub(super) fn urls(
    setup: Setup,
    members: u32,
    redis: Option<&RedisUrl>,
    run: &str,
) -> Result<Vec<String>, Failure> {
    let redis = || redis.expect("checked before the run").clone();
    let names: Vec<_> = (0..members).map(|member| format!("m{member}")).collect();
    let members = names.join(",");
    let family = setup.strategy.as_str();
    let same = |url: String| vec![url; names.len()];
    Ok(match setup.strategy {
        StrategyName::Local | StrategyName::Noop => same(format!("{family}:")),
        StrategyName::Redis => same(redis().given),
        StrategyName::Raft | StrategyName::Gaggle => match setup.channel() {
            ChannelName::Memory => {
                let url = |name| format!("{family}+memory://{run}?name={name}&members={members}");
                names.iter().map(url).collect()
            }
            ChannelName::Redis => {
                let server = redis().server;
                let url =
                    |name| format!("{family}+{server}?cluster={run}&name={name}&members={members}");
                names.iter().map(url).collect()
            }
            ChannelName::Tcp => {
                let ports = free_ports(names.len())?;
                let at = |(name, port)| format!("{name}@127.0.0.1:{port}");
                let peers = names.iter().zip(&ports).map(at).collect::<Vec<_>>().join(",");
                let url = |(name, port)| {
                    format!(
                        "{family}+tcp://127.0.0.1:{port}?cluster={run}&name={name}&peers={peers}"
                    )
                };
                names.iter().zip(&ports).map(url).collect()
            }
        },
    })
}

/// Ports of loopback that are free now, all different because all are held at once.
fn free_ports(count: usize) -> Result<Vec<u16>, Failure> {
    let listener = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners: Result<Vec<_>, _> = (0..count).map(|_| listener()).collect();
    let ports = listeners.and_then(|listeners| {
        listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
    });
    ports.map_err(|error| Failure::new("no free ports on loopback").because(&error))
}
