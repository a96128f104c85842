//! [`Url`]: a URL that [`open`](crate::open) accepts, with its strategy, server and options.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use ::url::{ParseError, Position, Url as PlainUrl};
use futures_util::future::BoxFuture;
use gaggle_channels::{ChannelError, internal::url::check_login};
#[cfg(feature = "redis")]
use gaggle_strategies::RedisOptions;
use gaggle_strategies::{Error, Local, Noop};
#[cfg(feature = "http")]
use gaggle_strategies::{Http, HttpOptions};
use percent_encoding::percent_decode_str;

#[cfg(feature = "http")]
use super::http;
#[cfg(feature = "raft")]
use super::member::Member;
#[cfg(feature = "redis")]
use super::redis;
use super::scheme::{Kind, SCHEMES, Scheme, Transport};
use crate::{Locker, OpenError, own_thread};

/// The port of a Redis whose URL names none.
const REDIS_PORT: u16 = 6379;

/// A URL that [`open`](crate::open) accepts. `Display` and `Debug` show it without its password.
///
/// # Examples
///
/// ```
/// let url = gaggle::Url::parse("redis://me:secret@10.0.0.1/2?namespace=orders")?;
///
/// assert_eq!(url.to_string(), "redis://me@10.0.0.1/2?namespace=orders");
/// assert_eq!((url.strategy(), url.address().as_str()), ("redis", "10.0.0.1:6379/2"));
/// # Ok::<(), gaggle::OpenError>(())
/// ```
#[derive(Clone)]
pub struct Url {
    text: String,
    /// The first host alone; [`Self::other_hosts`] has the rest.
    parsed: PlainUrl,
    /// The hosts after the first one, each with a comma before it.
    other_hosts: String,
    scheme: &'static Scheme,
    target: Target,
}

/// The strategy and channel that a URL names, with its options.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Local,
    Noop,
    #[cfg(feature = "http")]
    Http(Box<HttpOptions>),
    #[cfg(feature = "redis")]
    Redis(Box<RedisOptions>),
    #[cfg(feature = "raft")]
    Member(Box<Member>),
}

impl Url {
    /// Parses a URL, with its options. Nothing is opened, and no file is read.
    ///
    /// # Errors
    ///
    /// Those of [`open`](crate::open), but for [`OpenError::Strategy`] and [`OpenError::Channel`].
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        let likely = Scheme::nearest_to(text);
        if likely.has_user() {
            check_login(text).map_err(|problem| likely.invalid_url(problem))?;
        }
        // Several hosts are not valid in a URL: the first stands for all.
        let (first, hosts) = split_hosts(text);
        // The parser's errors do not quote the text.
        let parsed = PlainUrl::parse(&first).map_err(|error| match error {
            _ if text.trim().is_empty() => likely.invalid_url("the text is empty"),
            ParseError::RelativeUrlWithoutBase => no_scheme(),
            error => likely.invalid_url(error.to_string()),
        })?;
        // `localhost:6379` parses as a URL.
        let is_port = parsed.path().parse::<u16>().is_ok();
        let scheme = Scheme::named(parsed.scheme())
            .map_err(|error| if is_port { no_scheme() } else { error })?;
        if parsed.fragment().is_some() {
            return Err(scheme.invalid_url("a fragment (#) has no meaning here"));
        }
        let has_hosts = matches!(scheme.kind, Kind::Sentinel | Kind::Cluster | Kind::Http);
        if !hosts.is_empty() && !has_hosts {
            return Err(scheme.invalid_url("expected one host"));
        }
        let target = target(&parsed, &hosts, scheme)?;
        let other_hosts = hosts.iter().skip(1).map(|host| format!(",{host}")).collect();
        Ok(Self { text: text.to_owned(), parsed, other_hosts, scheme, target })
    }

    /// The schemes of a strategy, which is named as by [`strategy`](Self::strategy).
    pub fn schemes(strategy: &str) -> impl Iterator<Item = &'static str> {
        SCHEMES.iter().filter(move |it| it.strategy() == strategy).map(|it| it.name)
    }

    /// The scheme, as `redis` or `gaggle+tcp`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.scheme.name
    }

    /// The strategy: `local`, `noop`, `redis`, `http`, `raft` or `gaggle`, as in
    /// [`Capabilities`](crate::Capabilities).
    #[must_use]
    pub fn strategy(&self) -> &'static str {
        self.scheme.strategy()
    }

    /// The server, the address that a member listens on, or the name of a cluster in this process:
    /// for messages. Empty for `local:` and `noop:`.
    #[must_use]
    pub fn address(&self) -> String {
        let url = &self.parsed;
        let (host, others) = (url.host_str().unwrap_or_default(), &self.other_hosts);
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let path = url.path().trim_matches('/');
        let database = if path.is_empty() { String::new() } else { format!("/{path}") };
        let redis_port = url.port().unwrap_or(REDIS_PORT);
        match self.scheme.kind {
            Kind::Local | Kind::Noop => String::new(),
            Kind::Redis | Kind::Member(_, Transport::Redis) => {
                format!("{host}:{redis_port}{database}")
            }
            Kind::Cluster => format!("{host}:{redis_port}{others}"),
            Kind::Sentinel => format!("{path} of the Sentinels {host}{port}{others}"),
            Kind::Http => {
                let port = url.port_or_known_default().unwrap_or_default();
                format!("{host}:{port}{others}")
            }
            Kind::RedisSocket | Kind::HttpSocket => url.path().to_owned(),
            Kind::Member(..) => format!("{host}{port}"),
        }
    }

    /// Whether the URL contains a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        let mut options = self.parsed.query().unwrap_or_default().split('&');
        self.parsed.password().is_some() || options.any(is_secret_pair)
    }

    /// The URL as it was given, with its password.
    #[must_use]
    pub fn with_password(&self) -> &str {
        &self.text
    }

    /// The option `outside_max` of a group; `None` with other strategies.
    #[must_use]
    pub fn outside_max(&self) -> Option<Duration> {
        match &self.target {
            #[cfg(feature = "raft")]
            Target::Member(member) => member.outside_max(),
            _ => None,
        }
    }

    /// Sets the option `outside_max` of a group: for a member that grants leases to processes
    /// outside of the group. Other strategies have no such option, and are left as they are.
    #[must_use]
    pub fn with_outside_max(mut self, lease: Duration) -> Self {
        match &mut self.target {
            #[cfg(feature = "raft")]
            Target::Member(member) => member.set_outside_max(lease),
            _ => _ = lease,
        }
        self
    }

    /// Opens the strategy, as [`open`](crate::open) does.
    ///
    /// # Errors
    ///
    /// [`OpenError::Strategy`] or [`OpenError::Channel`]; [`OpenError::InvalidUrl`] names an option
    /// that the strategy or the channel refused.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future opens nothing.
    pub async fn open(&self) -> Result<Locker, OpenError> {
        let opened = open_target(self.target.clone()).await;
        opened.map_err(|error| explained(self.scheme, error))
    }

    /// Opens the strategy on a new thread, as [`open_on_thread`](crate::open_on_thread) does.
    ///
    /// # Errors, cancel safety
    ///
    /// As [`open_on_thread`](crate::open_on_thread).
    pub async fn open_on_thread(&self) -> Result<Locker, OpenError> {
        own_thread::opened(own_thread::start(self.clone())?.await)
    }

    /// The options of the strategy and of the channel.
    #[cfg(test)]
    pub(super) fn target(&self) -> &Target {
        &self.target
    }
}

/// The URL without its password.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.parsed.clone();
        // A URL without a host has no password there.
        let _ = url.set_password(None);
        // The query is kept as written: a plus sign is not a space in these URLs.
        let kept = url.query().unwrap_or_default().split('&').filter(|pair| !is_secret_pair(pair));
        let kept = kept.collect::<Vec<_>>().join("&");
        url.set_query(Some(&*kept).filter(|kept| !kept.is_empty()));
        f.write_str(&url[..Position::AfterPort])?;
        f.write_str(&self.other_hosts)?;
        f.write_str(&url[Position::AfterPort..])
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

impl FromStr for Url {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        Self::parse(text)
    }
}

/// The error for a URL such as `localhost:6379`.
fn no_scheme() -> OpenError {
    SCHEMES[0].invalid_url("the scheme is missing")
}

/// Whether `name=value`, as written in a URL, is an option that holds a password.
fn is_secret_pair(pair: &str) -> bool {
    option_name(pair).is_some_and(|name| is_secret(&name))
}

/// Whether the option holds a password.
pub(super) fn is_secret(option: &str) -> bool {
    matches!(option, "pass" | "sentinel_password")
}

/// The name in `name=value`, decoded.
pub(super) fn option_name(pair: &str) -> Option<Cow<'_, str>> {
    decode(pair.split_once('=').map_or(pair, |(name, _)| name))
}

pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}

/// Whether a URL has a user or a password.
#[cfg(any(feature = "http", feature = "redis", feature = "raft"))]
pub(super) fn has_user(url: &PlainUrl) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// What a URL of several hosts names: the URL with the first host alone, and all hosts if there are
/// several. Commas and spaces separate them.
pub(super) fn split_hosts(url: &str) -> (String, Vec<String>) {
    let Some(begin) = url.find("//").map(|at| at + 2) else { return (url.into(), Vec::new()) };
    let end = url[begin..].find(['/', '?', '#']).map_or(url.len(), |at| begin + at);
    let hosts_at = url[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    let hosts = &url[hosts_at..end];
    let Some((first, _)) = hosts.split_once(',') else { return (url.into(), Vec::new()) };
    let one = [&url[..hosts_at], first.trim(), &url[end..]].concat();
    (one, hosts.split(',').map(|host| host.trim().to_owned()).collect())
}

fn target(
    url: &PlainUrl,
    #[cfg_attr(not(any(feature = "http", feature = "redis")), expect(unused_variables))]
    hosts: &[String],
    scheme: &'static Scheme,
) -> Result<Target, OpenError> {
    match scheme.kind {
        Kind::Local | Kind::Noop
            if url.has_host() || !url.path().is_empty() || url.query().is_some() =>
        {
            Err(scheme.invalid_url("nothing may follow the colon"))
        }
        Kind::Local => Ok(Target::Local),
        Kind::Noop => Ok(Target::Noop),
        #[cfg(feature = "raft")]
        Kind::Member(policy, transport) => {
            Member::parse(url, scheme, policy, transport).map(Box::new).map(Target::Member)
        }
        #[cfg(not(feature = "raft"))]
        Kind::Member(_, Transport::Tcp) => {
            Err(OpenError::FeatureOff { scheme: "+tcp", feature: "tcp" })
        }
        #[cfg(not(feature = "raft"))]
        Kind::Member(..) => {
            Err(OpenError::FeatureOff { scheme: "raft and gaggle", feature: "raft" })
        }
        #[cfg(feature = "http")]
        Kind::Http | Kind::HttpSocket => {
            http::parse(url, hosts, scheme).map(Box::new).map(Target::Http)
        }
        #[cfg(not(feature = "http"))]
        Kind::Http | Kind::HttpSocket => {
            Err(OpenError::FeatureOff { scheme: "http", feature: "http" })
        }
        #[cfg(feature = "redis")]
        Kind::Redis | Kind::Sentinel | Kind::Cluster | Kind::RedisSocket => {
            redis::parse(url, hosts, scheme).map(Box::new).map(Target::Redis)
        }
        #[cfg(not(feature = "redis"))]
        Kind::Redis | Kind::Sentinel | Kind::Cluster | Kind::RedisSocket => {
            Err(OpenError::FeatureOff { scheme: "redis", feature: "redis" })
        }
    }
}

/// Names an option that the strategy or the channel refused as in the URL.
fn explained(scheme: &'static Scheme, error: OpenError) -> OpenError {
    let (field, problem) = match &error {
        // The error's value is omitted: it may be text of the URL.
        OpenError::Strategy(Error::InvalidOptions { field, limit, .. })
            if field.starts_with("tls_") =>
        {
            (*field, limit.clone())
        }
        OpenError::Strategy(Error::InvalidOptions { field, limit, .. }) => {
            (*field, format!("the limit is {limit}"))
        }
        OpenError::Channel(ChannelError::InvalidOptions { field, problem }) => {
            (*field, problem.clone())
        }
        _ => return error,
    };
    match field {
        option if scheme.options().contains(&option) => scheme.invalid(option, problem),
        "cluster" => scheme.invalid_url(format!("the cluster's name: {problem}")),
        "members" => scheme.invalid("peers", problem),
        _ => error,
    }
}

/// Boxed, so that programs keep a small future and do not compile each strategy's again.
fn open_target(target: Target) -> BoxFuture<'static, Result<Locker, OpenError>> {
    Box::pin(async move {
        match target {
            Target::Local => Ok(Locker::new(Local::new())),
            Target::Noop => Ok(Locker::new(Noop::new())),
            #[cfg(feature = "http")]
            Target::Http(options) => Ok(Locker::new(Http::open(*options).await?)),
            #[cfg(feature = "redis")]
            Target::Redis(options) => {
                Ok(Locker::new(gaggle_strategies::Redis::open(*options).await?))
            }
            #[cfg(feature = "raft")]
            Target::Member(member) => member.open().await,
        }
    })
}
