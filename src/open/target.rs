//! From the text of a URL to the options of the strategy that it names.
//!
//! Nothing is opened here.

use gaggle_channels::url::{check_login, split_hosts};
#[cfg(feature = "redis")]
use gaggle_strategies::RedisOptions;
use url::{ParseError, Url};

#[cfg(feature = "raft")]
use super::member::Member;
#[cfg(feature = "redis")]
use super::redis;
use super::{
    options::Options,
    scheme::{Kind, Scheme},
};
use crate::OpenError;

/// The strategy and channel that a URL names, with its options.
#[derive(Debug)]
pub(crate) enum Target {
    Local,
    Noop,
    #[cfg(feature = "redis")]
    Redis(Box<RedisOptions>),
    #[cfg(feature = "raft")]
    Member(Box<Member>),
}

pub(crate) fn parse(text: &str) -> Result<Target, OpenError> {
    let meant = Scheme::meant(text);
    if meant.has_user() {
        check_login(text).map_err(|problem| meant.invalid_url(problem))?;
    }
    // Several hosts are no URL: the first stands for all.
    let (text, hosts) = split_hosts(text);
    // The parser's errors do not quote the text.
    let url = Url::parse(&text).map_err(|error| match error {
        _ if text.trim().is_empty() => meant.invalid_url("it is empty"),
        ParseError::RelativeUrlWithoutBase => Scheme::missing_in_url(),
        error => meant.invalid_url(error.to_string()),
    })?;
    // `localhost:6379` parses as a URL.
    let is_port = url.path().parse::<u16>().is_ok();
    let scheme = Scheme::named(url.scheme())
        .map_err(|error| if is_port { Scheme::missing_in_url() } else { error })?;
    if url.fragment().is_some() {
        return Err(scheme.invalid_url("it has a fragment (#), which means nothing here"));
    }
    if !hosts.is_empty() && !matches!(scheme.kind, Kind::Sentinel | Kind::Cluster) {
        return Err(scheme.invalid_url("it has several hosts"));
    }
    let options = Options::parse(scheme, url.query().unwrap_or_default())?;
    match scheme.kind {
        Kind::Local | Kind::Noop if url.has_host() || !url.path().is_empty() => {
            Err(scheme.invalid_url("nothing may follow the colon"))
        }
        Kind::Local => Ok(Target::Local),
        Kind::Noop => Ok(Target::Noop),
        #[cfg(feature = "raft")]
        Kind::Member(policy, transport) => {
            Member::parse(&url, &options, policy, transport).map(Box::new).map(Target::Member)
        }
        #[cfg(not(feature = "raft"))]
        Kind::Member(_, super::scheme::Transport::Tcp) => {
            Err(OpenError::FeatureOff { scheme: "+tcp", feature: "tcp" })
        }
        #[cfg(not(feature = "raft"))]
        Kind::Member(..) => {
            Err(OpenError::FeatureOff { scheme: "raft and gaggle", feature: "raft" })
        }
        // The kinds of Redis.
        #[cfg(feature = "redis")]
        _ => redis::parse(&url, &hosts, &options).map(Box::new).map(Target::Redis),
        #[cfg(not(feature = "redis"))]
        _ => Err(OpenError::FeatureOff { scheme: "redis", feature: "redis" }),
    }
}

#[cfg(test)]
mod tests;
