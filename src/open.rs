//! Opening by URL: the one place that documents every URL, and the one file that names every
//! strategy and channel. See [`open`].

mod error;
#[cfg(feature = "raft")]
mod hubs;
mod options;
mod scheme;
#[cfg_attr(
    not(all(feature = "redis", feature = "tcp")),
    allow(dead_code, reason = "every URL is understood, also one that cannot be opened")
)]
pub(crate) mod target;

#[cfg(feature = "raft")]
use std::sync::Arc;

use gaggle_channels::ChannelError;
#[cfg(feature = "raft")]
use gaggle_channels::{self as channels, Channel};
#[cfg(feature = "raft")]
use gaggle_strategies::{self as strategies, MemberOptions, Replicate};
use gaggle_strategies::{Error, Local, Noop};
#[cfg(feature = "redis")]
use gaggle_strategies::{Queue, RedisOptions};

pub use self::error::OpenError;
#[cfg(feature = "raft")]
use self::{
    scheme::Policy,
    target::{Group, Link},
};
use self::{
    scheme::Scheme,
    target::{Member, Redis, Target},
};
use crate::Locker;

/// Opens a strategy by URL.
///
/// | URL | strategy |
/// |---|---|
/// | `local:` | [`Local`]: a lock table of its own in this process; clone the [`Locker`] to share it |
/// | `noop:` | [`Noop`]: grants everybody; for checking that a test can fail only |
/// | `redis://[user[:password]@]host[:port][/db]` | [`Redis`](gaggle_strategies::Redis): one Redis, port 6379 and database 0 by default |
/// | `gaggle+memory://cluster` | [`Gaggle`] over a hub that this process' URLs of the same cluster share |
/// | `gaggle+redis://[user[:password]@]host[:port][/db]` | [`Gaggle`] over the pub/sub of a Redis |
/// | `gaggle+tcp://address:port` | [`Gaggle`] over TCP, listening there: an IP address or `localhost` |
/// | `raft+memory:`, `raft+redis:`, `raft+tcp:` | [`Raft`] over the same channels, with the same options |
///
/// Options follow a question mark, as in `?name=a&size=5`, each once, with `%`-escapes for what a
/// URL cannot hold. Options of `redis:`
///
/// | option | default | meaning |
/// |---|---|---|
/// | `queue` | `fifo` | `fifo`: waiters queue in Redis; `none`: plain retry, as in the original |
/// | `namespace` | `gaggle` | first part of every key of ours; namespaces know nothing of each other |
/// | `allow_eviction` | `false` | `true` accepts a Redis that may evict keys, and locks with them |
/// | `request_timeout` | `1s` | how long unlock, extend and try_lock wait for an answer |
///
/// Options of `gaggle+…:` and `raft+…:`
///
/// | option | default | meaning |
/// |---|---|---|
/// | `cluster` | needed with `+redis` and `+tcp` | the cluster's name, the same at each member |
/// | `name` | needed, except with `size` | this member's name; one name is never run twice |
/// | `members` | this or `size` with `+memory` and `+redis` | the names of all members, `a,b,c` |
/// | `size` | this or `members` with `+memory` and `+redis` | that many processes find each other; for demonstrations |
/// | `peers` | needed with `+tcp` | the members and where they listen, `a@127.0.0.1:7001,b@…` |
/// | `insecure` | `false` | `true` lets `+tcp` listen beyond loopback, in plain text |
/// | `replicate` | `at-once` | `heartbeat`: only with the next heartbeat, as the original's Raft |
/// | `heartbeat` | `50ms` | how often a leader makes itself heard |
/// | `election_timeout` | `150ms..300ms` | how long a follower waits for a leader |
/// | `request_timeout` | `1s` | how long unlock, extend and try_lock wait for an answer |
/// | `outside_max` | none | admits locks handed to processes that are no members, each for at most this long; a new group then grants nothing for so long; the same at each member |
///
/// Durations are whole `ms` or `s`. A Redis is reached in plain text: there is no `rediss:`.
///
/// A member forms or joins its cluster in the background; locks wait for it within their
/// `max_wait`, and [`Locker::ready`] tells when it votes. Needs a tokio runtime with I/O and time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// # locker.lock("k").await?.unlock().await?;
/// let wrong = gaggle::open("redis://localhost?queue=lifo").await.unwrap_err();
/// assert_eq!(
///     wrong.to_string(),
///     "option queue: \"lifo\" is not fifo or none; \
///      for example: redis://127.0.0.1:6379/0?queue=fifo&namespace=gaggle"
/// );
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`OpenError`]: what is wrong with the URL, with a right example and never with a password; or
/// why the strategy did not open.
///
/// # Cancel safety
///
/// Dropping the future opens nothing.
pub async fn open(url: &str) -> Result<Locker, OpenError> {
    let target = target::parse(url)?;
    open_target(target).await.map_err(|error| explained(url, error))
}

/// Values that only the strategy or the channel judges are options of the URL all the same.
fn explained(url: &str, error: OpenError) -> OpenError {
    let (option, problem) = match error {
        OpenError::Strategy(Error::InvalidOptions { field, value, limit }) => {
            (field, format!("{value}, the limit is {limit}"))
        }
        OpenError::Channel(ChannelError::InvalidOptions { field, problem }) => (field, problem),
        other => return other,
    };
    match url.split_once(':').map(|(name, _)| Scheme::named(name)) {
        Some(Ok(scheme)) => scheme.invalid(option, problem),
        _ => OpenError::InvalidOption { option, problem, example: "local:" },
    }
}

async fn open_target(target: Target) -> Result<Locker, OpenError> {
    match target {
        Target::Local => Ok(Locker::new(Local::new())),
        Target::Noop => Ok(Locker::new(Noop::new())),
        Target::Redis(redis) => open_redis(redis).await,
        Target::Member(member) => open_member(member).await,
    }
}

#[cfg(not(feature = "redis"))]
async fn open_redis(_: Redis) -> Result<Locker, OpenError> {
    Err(OpenError::FeatureOff { scheme: "redis", feature: "redis" })
}

#[cfg(feature = "redis")]
async fn open_redis(redis: Redis) -> Result<Locker, OpenError> {
    let queue = if redis.fifo { Queue::Fifo } else { Queue::None };
    let mut options =
        RedisOptions::new(redis.server.0).queue(queue).allow_eviction(redis.allow_eviction);
    if let Some(namespace) = redis.namespace {
        options = options.namespace(namespace);
    }
    if let Some(timeout) = redis.request_timeout {
        options = options.request_timeout(timeout);
    }
    Ok(Locker::new(gaggle_strategies::Redis::open(options).await?))
}

#[cfg(not(feature = "raft"))]
async fn open_member(_: Member) -> Result<Locker, OpenError> {
    Err(OpenError::FeatureOff { scheme: "raft and gaggle", feature: "raft" })
}

#[cfg(feature = "raft")]
async fn open_member(member: Member) -> Result<Locker, OpenError> {
    let channel = open_channel(&member)?;
    let policy = member.policy;
    let options = member_options(member);
    Ok(match policy {
        Policy::Raft => Locker::new(strategies::Raft::open(channel, options).await?),
        Policy::Gaggle => Locker::new(strategies::Gaggle::open(channel, options).await?),
    })
}

#[cfg(feature = "raft")]
fn open_channel(member: &Member) -> Result<Arc<dyn Channel>, OpenError> {
    let name = member.name.clone();
    match &member.link {
        Link::Memory => Ok(hubs::channel(&member.cluster, name)),
        #[cfg(feature = "redis")]
        Link::Redis { server } => {
            let options = channels::RedisOptions::new(&server.0, &member.cluster, name);
            Ok(Arc::new(channels::Redis::new(options)?))
        }
        #[cfg(not(feature = "redis"))]
        Link::Redis { .. } => Err(OpenError::FeatureOff { scheme: "+redis", feature: "redis" }),
        #[cfg(feature = "tcp")]
        Link::Tcp { listen, peers, insecure } => {
            let mut options = channels::TcpOptions::new(name.clone(), *listen).insecure(*insecure);
            options.peers = peers.clone();
            // So that one list does for all members.
            options.peers.remove(&name);
            Ok(Arc::new(channels::Tcp::new(options)?))
        }
        #[cfg(not(feature = "tcp"))]
        Link::Tcp { .. } => Err(OpenError::FeatureOff { scheme: "+tcp", feature: "tcp" }),
    }
}

#[cfg(feature = "raft")]
fn member_options(member: Member) -> MemberOptions {
    let mut options = match member.group {
        Group::Named(names) => MemberOptions::named(&member.cluster, names),
        Group::Sized(size) => MemberOptions::sized(&member.cluster, size),
    };
    if member.at_heartbeat {
        options = options.replicate(Replicate::AtHeartbeat);
    }
    if let Some(heartbeat) = member.heartbeat {
        options = options.heartbeat(heartbeat);
    }
    if let Some((min, max)) = member.election_timeout {
        options = options.election_timeout(min, max);
    }
    if let Some(timeout) = member.request_timeout {
        options = options.request_timeout(timeout);
    }
    if let Some(lease) = member.outside_max {
        options = options.outside_max(lease);
    }
    options
}
