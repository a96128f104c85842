use std::{
    fmt,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use clap::ValueEnum;
use gaggle::Nonce;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{args::Args, store::Address};
use crate::cli::Failure;

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

/// Which keys the members lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Keys {
    /// One for all.
    Same,
    /// One each.
    Distinct,
}

/// One run: what each member does, and where.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) channel: Option<ChannelName>,
    pub(super) processes: bool,
    pub(super) keys: Keys,
    pub(super) counters: Vec<String>,
    pub(super) jobs: Vec<Job>,
    /// All members of this run share one handle of this process.
    pub(super) shared: bool,
}

/// What one member does. It travels to a worker process over its standard input, so that no
/// password shows in a list of processes.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) member: u32,
    pub(super) url: String,
    pub(super) key: String,
    pub(super) warm_up_key: String,
    pub(super) counter: String,
    pub(super) increments: u32,
    pub(super) work: Duration,
    pub(super) store: Address,
}

/// The Redis of `--redis`.
#[derive(Clone)]
pub(super) struct RedisUrl {
    server: String,
    given: String,
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
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text).map_err(|error| error.to_string())?;
        if url.scheme() != "redis" {
            return Err("a right one: redis://127.0.0.1:6379/0".into());
        }
        let given = url.to_string();
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self { server: url.into(), given })
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

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Plan {
    pub(super) fn new(
        args: &Args,
        strategy: StrategyName,
        store: Address,
    ) -> Result<Self, Failure> {
        // Unique to the run: nothing of a former run, or of another one at the same time, is met.
        let run = Nonce::random();
        let channel = strategy.has_channel().then(|| args.channel());
        let urls = urls(args, strategy, &run.to_string())?;
        let name = |index| match args.keys {
            Keys::Same => format!("gaggle/increment/{run}"),
            Keys::Distinct => format!("gaggle/increment/{run}/{index}"),
        };
        let job = |(member, url)| Job {
            member,
            url,
            key: name(member),
            warm_up_key: format!("gaggle/increment/{run}/warm-up/{member}"),
            counter: name(member),
            increments: args.increments,
            work: args.work,
            store: store.clone(),
        };
        let jobs: Vec<_> = (0..).zip(urls).map(job).collect();
        let mut counters: Vec<_> = jobs.iter().map(|job| job.counter.clone()).collect();
        counters.dedup();
        Ok(Self {
            channel,
            processes: args.processes,
            keys: args.keys,
            counters,
            jobs,
            shared: strategy == StrategyName::Local,
        })
    }

    pub(super) fn expected(&self) -> u64 {
        self.jobs.iter().map(|job| u64::from(job.increments)).sum()
    }
}

/// One URL a member.
fn urls(args: &Args, strategy: StrategyName, run: &str) -> Result<Vec<String>, Failure> {
    let redis = || args.redis.clone().expect("checked before the run");
    let names: Vec<_> = (0..args.members).map(|member| format!("m{member}")).collect();
    let members = names.join(",");
    let family = strategy.as_str();
    let same = |url: String| vec![url; names.len()];
    Ok(match strategy {
        StrategyName::Local | StrategyName::Noop => same(format!("{family}:")),
        StrategyName::Redis => same(redis().given),
        StrategyName::Raft | StrategyName::Gaggle => match args.channel() {
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
