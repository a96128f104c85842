//! The URL of a Redis, for the strategy and for the channel.

use gaggle_strategies::{Queue, RedisOptions};
use url::Url;

use super::{
    options::Options,
    scheme::{Kind, Scheme, has_user},
};
use crate::OpenError;

/// The options of the Redis strategy.
pub(super) fn parse(url: &Url, options: &Options) -> Result<RedisOptions, OpenError> {
    let server = match options.scheme.kind {
        Kind::RedisSocket => socket(url, options)?,
        _ => server(options.scheme, url)?,
    };
    if options.text("queue") == Some("passing") {
        let problem = "passing was removed: write queue=fifo, or leave the option out";
        return Err(options.scheme.invalid("queue", problem));
    }
    let queue = options.one_of("queue", &[("fifo", Queue::Fifo), ("none", Queue::None)])?;
    let mut redis = RedisOptions::new(server).queue(queue);
    if options.text("namespace").is_some() {
        redis = redis.namespace(options.required("namespace")?);
    }
    redis = redis.allow_eviction(options.flag("allow_eviction")?);
    if let Some(timeout) = options.duration("request_timeout")? {
        redis = redis.request_timeout(timeout);
    }
    Ok(redis)
}

/// The server alone, in the form of Redis' own URLs: `redis://[user[:password]@]host[:port][/db]`.
pub(super) fn server(scheme: &Scheme, url: &Url) -> Result<String, OpenError> {
    if url.host_str().unwrap_or_default().is_empty() {
        return Err(scheme.invalid_url("the host of the Redis is missing"));
    }
    let database = url.path().trim_start_matches('/');
    if !database.is_empty() && database.parse::<u16>().is_err() {
        return Err(scheme.invalid_url("the path is no number of a database"));
    }
    let mut server = url.clone();
    server.set_query(None);
    let (_, rest) = server.as_str().split_once(':').expect("a URL has a colon");
    Ok(format!("redis:{rest}"))
}

/// The server alone, in the form that redis-rs and redis-cli know:
/// `redis+unix:///path?db=…&user=…&pass=…`.
pub(super) fn socket(url: &Url, options: &Options) -> Result<String, OpenError> {
    let scheme = options.scheme;
    if has_user(url) || !url.host_str().unwrap_or_default().is_empty() {
        return Err(scheme.invalid_url("only the path of a socket may follow //"));
    }
    if !url.path().starts_with('/') || url.path() == "/" {
        return Err(scheme.invalid_url("the path of the socket is missing behind the ///"));
    }
    let database = options.text("db").unwrap_or("0");
    if database.parse::<u16>().is_err() {
        return Err(scheme.invalid("db", "it is no number of a database"));
    }
    let mut server = url.clone();
    let login = ["user", "pass"].map(|option| Some((option, options.text(option)?)));
    server
        .query_pairs_mut()
        .clear()
        .append_pair("db", database)
        .extend_pairs(login.iter().flatten());
    Ok(server.into())
}
