//! The URL of a Redis, for the strategy and for the channel.

use gaggle_strategies::RedisOptions;
use url::Url;

use super::{
    hosts::{address, check_socket, check_wildcard, servers},
    options::{Options, set},
    scheme::{Kind, Scheme},
    url::decode,
};
use crate::OpenError;

/// The scheme of one host among several.
const PLAIN: &str = "redis";

/// The options of the Redis strategy.
pub(super) fn parse(
    url: &Url,
    hosts: &[String],
    scheme: &'static Scheme,
) -> Result<RedisOptions, OpenError> {
    let tls = scheme.has_tls();
    if tls && cfg!(not(feature = "tls")) {
        return Err(OpenError::FeatureOff { scheme: "rediss", feature: "tls" });
    }
    let options = &Options::parse(scheme, url)?;
    let redis = match scheme.kind {
        Kind::RedisSocket => RedisOptions::new(socket(url, options)?),
        Kind::Sentinel => by_sentinels(url, hosts, options)?,
        Kind::Cluster => of_cluster(url, hosts, scheme)?,
        _ => RedisOptions::new(server(scheme, url)?),
    };
    let redis = redis.queue(options.queue()?);
    #[cfg(feature = "tls")]
    let redis = match tls {
        true => {
            let (files, name) = options.tls()?;
            set(redis.tls(files), name, RedisOptions::tls_name)
        }
        false => redis,
    };
    let redis = set(redis, options.filled("namespace")?, RedisOptions::namespace);
    let redis = redis.allow_eviction(options.flag("allow_eviction")?);
    let redis = set(redis, options.number("replicas", 100)?, RedisOptions::replicas);
    let redis = set(redis, options.duration("request_timeout")?, RedisOptions::request_timeout);
    Ok(set(redis, options.duration("waiter_ttl")?, RedisOptions::waiter_ttl))
}

/// The server alone, in the form of Redis' own URLs: `redis://[[user]:password@]host[:port][/db]`.
pub(super) fn server(scheme: &Scheme, url: &Url) -> Result<String, OpenError> {
    if url.host_str().unwrap_or_default().is_empty() {
        return Err(scheme.invalid_url("the host of the Redis is missing"));
    }
    check_wildcard(url, scheme)?;
    let login = (decode(url.username()), decode(url.password().unwrap_or_default()));
    let (Some(user), Some(_)) = login else {
        return Err(scheme.invalid_url("the user or the password is not valid UTF-8"));
    };
    if url.password().is_none() && needs_password(&user) {
        let problem =
            "a user needs a password: user:password@host; :password@host is the user default";
        return Err(scheme.invalid_url(problem));
    }
    let database = url.path().trim_start_matches('/');
    if !database.is_empty() && database.parse::<u16>().is_err() {
        return Err(scheme.invalid_url("the path must be a database number"));
    }
    let mut server = url.clone();
    server.set_query(None);
    let (name, rest) = server.as_str().split_once(':').expect("a URL has a colon");
    let plain = if name.starts_with("rediss") { "rediss" } else { "redis" };
    Ok(format!("{plain}:{rest}"))
}

/// Whether `user` needs a password: without one a client sends no user, and is `default`.
fn needs_password(user: &str) -> bool {
    !matches!(user, "" | "default")
}

/// The path is `/MASTER[/db]`; the rest of the URL is read as for one server.
fn by_sentinels(url: &Url, hosts: &[String], options: &Options) -> Result<RedisOptions, OpenError> {
    let scheme = options.scheme;
    let path = url.path().strip_prefix('/').unwrap_or_default();
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    let Some(master) = decode(master).filter(|master| !master.is_empty()) else {
        return Err(scheme.invalid_url("the path must be /MASTER or /MASTER/DATABASE"));
    };
    let mut one = url.clone();
    one.set_path(database);
    let server = server(scheme, &one)?;
    let hosts = servers((url, hosts), (scheme, PLAIN), "a Sentinel")?;
    let redis = RedisOptions::new(server).sentinels(master, hosts.iter().map(address));
    match (options.text("sentinel_user"), options.text("sentinel_password")) {
        (Some(_), None) => Err(options.missing("sentinel_password")),
        (_, None) => Ok(redis),
        (user, Some(password)) => Ok(redis.sentinel_login(user, password)),
    }
}

/// The first host is the server; the others are further nodes.
fn of_cluster(url: &Url, hosts: &[String], scheme: &Scheme) -> Result<RedisOptions, OpenError> {
    let server = server(scheme, url)?;
    if !matches!(url.path(), "" | "/" | "/0") {
        return Err(scheme.invalid_url("a Cluster has only the database 0"));
    }
    let nodes = servers((url, hosts), (scheme, PLAIN), "a node of the Cluster")?;
    Ok(RedisOptions::new(server).cluster(nodes.iter().skip(1).map(address)))
}

/// The server alone, in the form that redis-rs and redis-cli know:
/// `redis+unix:///path?db=…&user=…&pass=…`.
pub(super) fn socket(url: &Url, options: &Options) -> Result<String, OpenError> {
    let scheme = options.scheme;
    check_socket(url, scheme)?;
    let database = options.text("db").unwrap_or("0");
    if database.parse::<u16>().is_err() {
        return Err(options.unexpected("db", "a database number"));
    }
    if options.text("pass").is_none() && needs_password(options.text("user").unwrap_or_default()) {
        return Err(scheme.invalid("user", "a user needs a password: give pass"));
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
