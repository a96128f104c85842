//! Opening by URL: the one place that documents every URL, and the one module that names every
//! strategy and channel. See [`open`].

#[cfg(test)]
mod effects;
mod error;
#[cfg(feature = "raft")]
mod member;
#[cfg_attr(
    not(all(feature = "redis", feature = "raft")),
    allow(dead_code, reason = "each strategy uses a part of it")
)]
mod options;
#[cfg(feature = "redis")]
mod redis;
mod scheme;
#[cfg(test)]
mod secrets;
#[cfg_attr(
    not(any(feature = "redis", feature = "raft")),
    allow(dead_code, unused_variables, reason = "only these have options")
)]
pub(crate) mod target;

use gaggle_channels::ChannelError;
#[cfg(any(feature = "raft", feature = "redis"))]
use gaggle_strategies::UnavailableKind;
use gaggle_strategies::{Error, Local, Noop};

pub use self::error::OpenError;
use self::{scheme::Scheme, target::Target};
use crate::Locker;

/// Opens a strategy by URL.
///
/// | URL | strategy |
/// |---|---|
/// | `local:` | [`Local`]: a lock table of its own in this process; clone the [`Locker`] to share it |
/// | `noop:` | [`Noop`]: grants every request; for checking that a test can fail only |
/// | `redis://[user[:password]@]host[:port][/db]` | [`Redis`](gaggle_strategies::Redis): one Redis, port 6379 and database 0 by default |
/// | `redis+unix:///path/of/socket` | [`Redis`](gaggle_strategies::Redis) over a Unix socket, with the options `db`, `user` and `pass` besides |
/// | `gaggle+memory://cluster` | [`Gaggle`](gaggle_strategies::Gaggle) over a hub that this process' URLs of the same cluster share |
/// | `gaggle+redis://[user[:password]@]host[:port][/db]` | `Gaggle` over the pub/sub of a Redis |
/// | `gaggle+tcp://address:port` | `Gaggle` over TCP, listening there: an IP address or `localhost` |
/// | `raft+memory:`, `raft+redis:`, `raft+tcp:` | [`Raft`](gaggle_strategies::Raft) over the same channels, with the same options |
///
/// Options follow a question mark, as in `?name=a&size=5`, each once, with `%`-escapes for what a
/// URL cannot hold. Options of `redis:` and `redis+unix:`
///
/// | option | default | meaning |
/// |---|---|---|
/// | `db` | `0` | number of the database; `redis+unix:` only |
/// | `user`, `pass` | none | user and password; `redis+unix:` only |
/// | `queue` | `fifo` | `fifo`: waiters queue in Redis; `none`: plain retry, as in the original |
/// | `namespace` | `gaggle` | first part of every key of ours; namespaces know nothing of each other |
/// | `allow_eviction` | `false` | `true` accepts a Redis that may evict keys, and locks with them |
/// | `request_timeout` | `1s` | how long unlock, extend and `try_now` wait for an answer |
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
/// | `heartbeat` | `50ms` | how often a leader sends a heartbeat |
/// | `election_timeout` | `150ms..300ms` | how long a follower waits for a leader |
/// | `request_timeout` | `1s` | how long unlock, extend and `try_now` wait for an answer |
/// | `outside_max` | none | admits locks transferred to processes that are no members, each for at most this long; a new group then grants nothing for so long; the same at each member |
///
/// Durations are whole `ms` or `s`. A Redis is reached in plain text: there is no `rediss:`.
///
/// A member forms or joins its cluster in the background; locks wait for it within their
/// `max_wait`, and [`Locker::ready`] completes when it votes.
///
/// # Runtime
///
/// The tasks of a Redis handle or a member run on the tokio runtime on which `open` is polled, which
/// needs I/O and time. The [`Locker`] belongs to that runtime: any other may call it, and it serves as
/// long as that one runs. `local:` and `noop:` have no task, and belong to no runtime.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// # locker.lock("k").await?.unlock().await?;
/// let wrong = gaggle::open("redis://localhost?queue=lifo").await.unwrap_err();
/// assert_eq!(
///     wrong.to_string(),
///     "option queue: it is not fifo or none; \
///      for example: redis://127.0.0.1:6379/0?queue=fifo&namespace=gaggle"
/// );
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`OpenError`]: what is wrong with the URL, with a right example and without any text of the URL,
/// which may be a part of a password; or
/// why the strategy did not open. [`Error::Unavailable`] in it outside a tokio runtime.
///
/// # Cancel safety
///
/// Dropping the future opens nothing.
pub async fn open(url: &str) -> Result<Locker, OpenError> {
    let target = target::parse(url)?;
    open_target(target).await.map_err(|error| explained(Scheme::meant(url), error))
}

/// What only the strategy or the channel checks is named as it stands in the URL.
fn explained(scheme: &'static Scheme, error: OpenError) -> OpenError {
    let (field, problem) = match &error {
        // Without the value: it may be text of the URL.
        OpenError::Strategy(Error::InvalidOptions { field, limit, .. }) => {
            (*field, format!("the limit is {limit}"))
        }
        OpenError::Channel(ChannelError::InvalidOptions { field, problem }) => {
            (*field, problem.clone())
        }
        _ => return error,
    };
    match field {
        option if scheme.options.contains(&option) => scheme.invalid(option, problem),
        "cluster" => scheme.invalid_url(format!("the cluster's name: {problem}")),
        "url" => scheme.invalid_url(format!("the address of the Redis: {problem}")),
        _ => error,
    }
}

async fn open_target(target: Target) -> Result<Locker, OpenError> {
    // An error instead of the panic of the first task that is spawned.
    #[cfg(any(feature = "raft", feature = "redis"))]
    if !matches!(target, Target::Local | Target::Noop) {
        let misconfigured = |error| Error::unavailable(UnavailableKind::Misconfigured, error);
        tokio::runtime::Handle::try_current().map_err(misconfigured)?;
    }
    match target {
        Target::Local => Ok(Locker::new(Local::new())),
        Target::Noop => Ok(Locker::new(Noop::new())),
        #[cfg(feature = "redis")]
        Target::Redis(options) => Ok(Locker::new(gaggle_strategies::Redis::open(options).await?)),
        #[cfg(feature = "raft")]
        Target::Member(member) => member.open().await,
    }
}
