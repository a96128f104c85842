//! From the text of a URL to what it means; nothing is opened here.

use std::{collections::BTreeMap, fmt, net::SocketAddr, time::Duration};

use gaggle_channels::NodeName;
use gaggle_strategies::{Nonce, limits::MEMBERS_MAX};
use url::Url;

use super::{
    options::{Options, decode},
    scheme::{Kind, Policy, Reach, Scheme, Transport},
};
use crate::OpenError;

/// What a URL names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Local,
    Noop,
    Redis(Redis),
    Member(Member),
}

/// One Redis.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redis {
    pub(crate) server: Secret,
    pub(crate) fifo: bool,
    pub(crate) namespace: Option<String>,
    pub(crate) allow_eviction: bool,
    pub(crate) request_timeout: Option<Duration>,
}

/// An embedded member of a cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) policy: Policy,
    pub(crate) cluster: String,
    pub(crate) name: NodeName,
    pub(crate) group: Group,
    pub(crate) link: Link,
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) election_timeout: Option<(Duration, Duration)>,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) outside_max: Option<Duration>,
}

/// Who votes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Named(Vec<NodeName>),
    Sized(u32),
}

/// How a member reaches the others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Memory,
    Redis { server: Secret },
    Tcp { listen: SocketAddr, peers: BTreeMap<NodeName, String>, insecure: bool },
}

/// Text that may hold a password: it is not printed.
#[derive(PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

pub(crate) fn parse(text: &str) -> Result<Target, OpenError> {
    let meant = Scheme::meant(text);
    if meant.has_user() && at_sign_is_late(text) {
        return Err(meant.invalid_url(
            "an @ stands behind the first /, ? or #: write / as %2F, ? as %3F, # as %23 and @ as \
             %40 in a user, a password or an option",
        ));
    }
    // The parser's errors do not quote the text.
    let url = Url::parse(text).map_err(|error| meant.invalid_url(error.to_string()))?;
    let scheme = Scheme::named(url.scheme())?;
    if url.fragment().is_some() {
        return Err(scheme.invalid_url("it has a fragment (#), which means nothing here"));
    }
    let options = Options::parse(scheme, url.query().unwrap_or_default())?;
    match scheme.kind {
        Kind::Local | Kind::Noop => {
            if url.has_host() || !url.path().is_empty() {
                return Err(scheme.invalid_url("nothing may follow the colon"));
            }
            Ok(if scheme.kind == Kind::Local { Target::Local } else { Target::Noop })
        }
        Kind::Redis(reach) => Ok(Target::Redis(Redis {
            server: match reach {
                Reach::Tcp => redis_server(scheme, &url)?,
                Reach::Unix => redis_socket(scheme, &url, &options)?,
            },
            fifo: is_fifo(scheme, &options)?,
            namespace: options
                .text("namespace")
                .map(|_| options.required("namespace").map(str::to_owned))
                .transpose()?,
            allow_eviction: options.flag("allow_eviction")?,
            request_timeout: options.duration("request_timeout")?,
        })),
        Kind::Member(policy, transport) => {
            member(scheme, &url, &options, policy, transport).map(Target::Member)
        }
    }
}

fn is_fifo(scheme: &Scheme, options: &Options) -> Result<bool, OpenError> {
    if options.text("queue") == Some("passing") {
        let problem = "passing was removed: write queue=fifo, or leave the option out";
        return Err(scheme.invalid("queue", problem));
    }
    options.one_of("queue", &[("fifo", true), ("none", false)])
}

/// Whether the user and password, which end with an `@`, seem to hold what ends them before it.
fn at_sign_is_late(text: &str) -> bool {
    let behind = text.split_once("//").map_or("", |(_, behind)| behind);
    behind.find(['/', '?', '#']).is_some_and(|end| behind[end..].contains('@'))
}

fn member(
    scheme: &'static Scheme,
    url: &Url,
    options: &Options,
    policy: Policy,
    transport: Transport,
) -> Result<Member, OpenError> {
    let (cluster, link) = match transport {
        Transport::Memory => (memory_cluster(scheme, url)?, Link::Memory),
        Transport::Redis => {
            let server = redis_server(scheme, url)?;
            (options.required("cluster")?.to_owned(), Link::Redis { server })
        }
        Transport::Tcp => {
            let (listen, insecure) = (listen(scheme, url)?, options.flag("insecure")?);
            if !listen.ip().is_loopback() && !insecure {
                return Err(scheme.invalid_url(
                    "the address to listen on is beyond loopback, where frames travel in plain text; \
                     insecure=true allows it",
                ));
            }
            let cluster = options.required("cluster")?.to_owned();
            let peers = peers(scheme, options.required("peers")?)?;
            (cluster, Link::Tcp { listen, peers, insecure })
        }
    };
    let (name, group) = group(scheme, options, &link)?;
    Ok(Member {
        policy,
        cluster,
        name,
        group,
        link,
        heartbeat: options.duration("heartbeat")?,
        election_timeout: options.range("election_timeout")?,
        request_timeout: options.duration("request_timeout")?,
        outside_max: options.duration("outside_max")?,
    })
}

/// Own name and voters: the peers where there are any, else `members`, else `size`.
fn group(
    scheme: &'static Scheme,
    options: &Options,
    link: &Link,
) -> Result<(NodeName, Group), OpenError> {
    if let Link::Tcp { peers, .. } = link {
        let name = node_name(scheme, "name", options.required("name")?)?;
        let names: Vec<_> = peers.keys().cloned().collect();
        if !names.contains(&name) {
            return Err(scheme.invalid("name", "it is not among the peers"));
        }
        return Ok((name, Group::Named(names)));
    }
    match (options.names("members")?, options.number("size", MEMBERS_MAX as u32)?) {
        (Some(_), Some(_)) => Err(scheme.invalid("size", "give either members or size")),
        (None, None) => Err(scheme.missing("members")),
        (Some(members), None) => {
            let name = node_name(scheme, "name", options.required("name")?)?;
            let members = members.iter().map(|member| node_name(scheme, "members", member));
            let members = members.collect::<Result<Vec<_>, _>>()?;
            if !members.contains(&name) {
                return Err(scheme.invalid("name", "it is not among the members"));
            }
            Ok((name, Group::Named(members)))
        }
        (None, Some(size)) => {
            let drawn = Nonce::random().to_string();
            let name = node_name(scheme, "name", options.text("name").unwrap_or(&drawn))?;
            Ok((name, Group::Sized(size)))
        }
    }
}

fn node_name(scheme: &Scheme, option: &'static str, name: &str) -> Result<NodeName, OpenError> {
    NodeName::new(name).map_err(|error| scheme.invalid(option, error.to_string()))
}

/// `a@127.0.0.1:7001,b@…`
fn peers(scheme: &'static Scheme, text: &str) -> Result<BTreeMap<NodeName, String>, OpenError> {
    let mut peers = BTreeMap::new();
    for (number, peer) in (1..).zip(text.split(',')) {
        let problem =
            || scheme.invalid("peers", format!("its entry {number} is not name@host:port"));
        let (name, address) = peer.rsplit_once('@').ok_or_else(problem)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(problem)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(problem());
        }
        let name = node_name(scheme, "peers", name)?;
        if peers.insert(name, address.to_owned()).is_some() {
            return Err(scheme.invalid("peers", "it has a name twice"));
        }
    }
    Ok(peers)
}

fn memory_cluster(scheme: &Scheme, url: &Url) -> Result<String, OpenError> {
    let host = url.host_str().unwrap_or_default();
    if has_user(url) || url.port().is_some() || !matches!(url.path(), "" | "/") {
        return Err(scheme.invalid_url("only a cluster name may follow //"));
    }
    match decode(host) {
        Some(cluster) if !cluster.is_empty() => Ok(cluster.into_owned()),
        _ => Err(scheme.invalid_url("the cluster's name is missing behind the //")),
    }
}

fn listen(scheme: &Scheme, url: &Url) -> Result<SocketAddr, OpenError> {
    if has_user(url) || !matches!(url.path(), "" | "/") {
        return Err(scheme.invalid_url("only address:port may follow //"));
    }
    let address = match (url.host_str(), url.port()) {
        (Some("localhost"), Some(port)) => format!("127.0.0.1:{port}"),
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => return Err(scheme.invalid_url("the address:port to listen on is missing")),
    };
    address.parse().map_err(|_| scheme.invalid_url("the address to listen on is no IP address"))
}

/// The server alone, in the form of Redis' own URLs: `redis://[user[:password]@]host[:port][/db]`.
fn redis_server(scheme: &Scheme, url: &Url) -> Result<Secret, OpenError> {
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
    Ok(Secret(format!("redis:{rest}")))
}

/// The server alone, in the form that redis-rs and redis-cli know:
/// `redis+unix:///path?db=…&user=…&pass=…`.
fn redis_socket(scheme: &Scheme, url: &Url, options: &Options) -> Result<Secret, OpenError> {
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
    let mut settings = server.query_pairs_mut();
    settings.clear().append_pair("db", database);
    for option in ["user", "pass"] {
        if let Some(value) = options.text(option) {
            settings.append_pair(option, value);
        }
    }
    drop(settings);
    Ok(Secret(server.into()))
}

fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

#[cfg(test)]
mod tests;
