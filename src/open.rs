//! Opening by URL.
//!
//! Only this module documents the URLs and names every strategy and channel.

mod error;
#[cfg(any(feature = "http", feature = "redis"))]
mod hosts;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "raft")]
mod member;
#[cfg(any(feature = "http", feature = "redis", feature = "raft"))]
mod options;
#[cfg(feature = "redis")]
mod redis;
mod scheme;
#[cfg(test)]
mod tests;
mod url;

use std::time::Duration;

pub use self::{error::OpenError, url::Url};
use crate::Locker;

/// The longest text of a duration, in bytes. Sums that overflow the parser are longer.
const DURATION_BYTES_MAX: usize = 20;

/// Opens a strategy by URL.
///
/// | URL | strategy |
/// |---|---|
/// | `local:` | [`Local`]: a new table in this process; clone the [`Locker`] to share it |
/// | `noop:` | [`Noop`]: grants every request; only for checking that a test can fail |
/// | `redis://[[user]:password@]host[:port][/db]` | [`Redis`]; by default port 6379, database 0 |
/// | `rediss://…` | the same over TLS, with the feature `tls` |
/// | `redis+sentinel://[[user]:password@]s1,s2:26380,…/MASTER[/db]` | [`Redis`] by its Sentinels |
/// | `rediss+sentinel://…` | the same over TLS |
/// | `redis+cluster://[[user]:password@]h1:7000,h2:7000,…` | [`Redis`] in a Redis Cluster |
/// | `rediss+cluster://…` | the same over TLS |
/// | `redis+unix:///path/of/socket` | [`Redis`] over a Unix socket |
/// | `http://[:TOKEN@]host[:port][,host…]` | [`Http`]: the nodes of a `gaggle serve` |
/// | `https://…` | the same over TLS, with the feature `tls` |
/// | `http+unix:///path/of/socket` | the same on a Unix socket |
/// | `gaggle+memory://cluster` | [`Gaggle`] over a hub that all URLs of the cluster share |
/// | `gaggle+redis://[[user]:password@]host[:port][/db]` | [`Gaggle`] over the pub/sub of a Redis |
/// | `gaggle+tcp://address:port` | [`Gaggle`] over TCP, listening on an IP address or `localhost` |
/// | `raft+memory:`, `raft+redis:`, `raft+tcp:` | [`Raft`] over these channels, same options |
///
/// [`Error::Unavailable`]: gaggle_strategies::Error::Unavailable
/// [`Error::Closed`]: gaggle_strategies::Error::Closed
/// [`Local`]: gaggle_strategies::Local
/// [`Noop`]: gaggle_strategies::Noop
/// [`Redis`]: gaggle_strategies::Redis
/// [`Gaggle`]: gaggle_strategies::Gaggle
/// [`Http`]: gaggle_strategies::Http
/// [`Raft`]: gaggle_strategies::Raft
///
/// Options follow a question mark, as in `?name=a&members=a,b,c`, each once, with `%`-escapes for
/// characters that a URL cannot contain. Options of all URLs of [`Redis`]
///
/// | option | default | meaning |
/// |---|---|---|
/// | `db` | `0` | number of the database; `redis+unix:` only |
/// | `user`, `pass` | none | user and password; `redis+unix:` only |
/// | `tls_ca` | the system's | file of the authorities that sign certificates; `rediss` only |
/// | `tls_cert`, `tls_key` | none | files of a client certificate and its key; `rediss` only |
/// | `tls_name` | the host | the name in the server's certificate; `rediss` only |
/// | `sentinel_user`, `sentinel_password` | none | login at the Sentinels |
/// | `queue` | `fifo` | `fifo`: waiters queue in Redis; `none`: each retries after a pause |
/// | `namespace` | `gaggle` | first part of every key; namespaces are independent |
/// | `allow_eviction` | `false` | `true` accepts a Redis that may evict keys, and locks with them |
/// | `replicas` | none | how many replicas must have a grant before it is reported, 1 to 100 |
/// | `request_timeout` | `1s` | how long unlock, extend and `try_now` wait for a reply |
/// | `waiter_ttl` | `3s` | how long a process may be silent before its waiters are dropped |
///
/// Options of `http:`, `https:` and `http+unix:`
///
/// | option | default | meaning |
/// |---|---|---|
/// | `token_file` | none | file with the token, if it is not the password of the URL |
/// | `tls_ca`, `tls_cert`, `tls_key`, `tls_name` | as of `rediss` | `https` only |
/// | `request_timeout` | `1s` | how long unlock, extend and `try_now` wait for a reply |
///
/// Options of `gaggle+…:` and `raft+…:`
///
/// | option | default | meaning |
/// |---|---|---|
/// | `cluster` | needed with `+redis` and `+tcp` | the cluster's name, the same at each member |
/// | `name` | needed | this member's name, for one process at a time |
/// | `members` | needed, not with `+tcp` | the names of all members, `a,b,c` |
/// | `peers` | needed with `+tcp` | names and addresses of all members, `a@127.0.0.1:7001,b@…` |
/// | `tls_ca`, `tls_cert`, `tls_key` | none | `+tcp`: PEM files for TLS 1.3 between the members |
/// | `secret_file` | none | `+tcp`: a file with a secret that all members share |
/// | `insecure` | `false` | `true` lets `+tcp` listen beyond loopback, in plain text |
/// | `heartbeat` | `50ms` | how often a leader sends a heartbeat, 5 ms to 1 s |
/// | `election_timeout` | `150ms..300ms` | wait for a leader: min 3 heartbeats, max one more |
/// | `request_timeout` | `1s` | how long unlock, extend and `try_now` wait for a reply |
/// | `outside_max` | none | longest lease of a lock transferred to a process outside the members |
///
/// With `outside_max`, which is the same at each member, a new group grants nothing for that long.
/// [`parse_duration`] has the form of durations. The Redis of a channel is reached in plain text.
///
/// A member forms or joins its group in the background; locks wait for it within their
/// `max_wait`, and [`Locker::ready`] completes when it votes.
///
/// # Runtime
///
/// The task of a Redis handle or a member runs on the tokio runtime on which `open` is polled,
/// which needs I/O and time. The [`Locker`] can be called from other runtimes, and serves as long
/// as the first one runs, in the same process: a fork opens another handle. `local:` and `noop:`
/// have no task and need no runtime to open. `auto_extend` needs a tokio runtime. All other waits
/// work in any executor. [`open_on_thread`] needs no runtime.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// locker.lock("orders/42").await?.unlock().await?;
///
/// let wrong = gaggle::open("redis://localhost?queue=lifo").await.unwrap_err();
/// assert_eq!(
///     wrong.to_string(),
///     "option queue: expected fifo or none, not \"lifo\"; \
///      for example: redis://127.0.0.1:6379/0?queue=fifo&namespace=gaggle"
/// );
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`OpenError`] says why the URL is invalid, with a valid example. It shows names and values of
/// options and paths of files, and no other text of the URL: that may be a password. Or it says why
/// the strategy did not open, as [`Error::Unavailable`] outside a tokio runtime.
///
/// # Panics
///
/// Within a tokio runtime that was built without I/O or without time (`redis:`, `redis+unix:`,
/// `+redis`, `+tcp`): build it with `enable_all`. `+memory` opens without time, and its calls end
/// as [`Error::Closed`].
///
/// # Cancel safety
///
/// Dropping the future opens nothing.
pub async fn open(url: &str) -> Result<Locker, OpenError> {
    Url::parse(url)?.open().await
}

/// Opens a strategy by URL on a new thread, which has its own tokio runtime.
///
/// The locker works in any executor. A runtime that is blocked, or that ends, stops neither
/// replies nor [`auto_extend`](crate::Acquire::auto_extend). Each reply crosses threads, which costs
/// most where tasks of the process share a key: `docs/quick-start.md` has figures.
///
/// The thread closes the strategy and ends once the last [`Locker`], its clones and scopes, its
/// requests and its guards are dropped. The drop does not wait for that; [`Locker::close`] waits for
/// the strategy. In a fork, locks of the copied handle end [`Error::Failed`], those of `local:`
/// among them.
///
/// [`Error::Failed`]: gaggle_strategies::Error::Failed
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use futures_executor::block_on; // any executor
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = block_on(gaggle::open_on_thread("local:"))?;
/// let request = locker.lock_with("report", gaggle::LockOptions::default());
/// let guard = block_on(request.auto_extend(Duration::from_secs(3_600)).into_future())?;
/// block_on(guard.unlock())?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`open`], and [`Error::Failed`] if the system cannot start a thread.
///
/// # Cancel safety
///
/// Dropping the future opens nothing; the thread ends.
pub async fn open_on_thread(url: &str) -> Result<Locker, OpenError> {
    Url::parse(url)?.open_on_thread().await
}

/// Parses a duration as the options of URLs and of the command line have it: a number and its unit,
/// as `500ms`, `10s`, `1.5h` or `1h 30m`. Returns `None` for any other text, and for one of more than
/// 20 bytes.
///
/// The units are `ns`, `us`, `ms`, `s`, `m` (minutes), `h`, `d`, `w`, and their long forms, as in
/// the crate `humantime`; `0` needs none. Errors and log events show durations in the same form.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(gaggle::parse_duration("1h 30m"), Some(Duration::from_secs(5_400)));
/// assert_eq!(gaggle::parse_duration("5"), None, "the unit is missing");
/// ```
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let is_short = text.len() <= DURATION_BYTES_MAX;
    is_short.then(|| humantime::parse_duration(text).ok()).flatten()
}
