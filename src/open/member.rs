//! A member of the Raft family and its channel: from a URL to a running member.

#[cfg(feature = "tcp")]
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    num::NonZeroU16,
};
use std::{sync::Arc, time::Duration};

use gaggle_channels::{self as channels, Channel, NodeName};
use gaggle_strategies::{Gaggle, MemberOptions, Raft};
use url::Url;

#[cfg(feature = "redis")]
use super::redis;
use super::{
    options::{Options, set},
    scheme::{Policy, Scheme, Transport},
    url::{decode, has_user},
};
use crate::{Locker, OpenError};

/// An embedded member of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    policy: Policy,
    link: Link,
    options: MemberOptions,
    outside_max: Option<Duration>,
}

/// The options of the channel.
#[derive(Clone, Debug)]
enum Link {
    Memory {
        cluster: String,
        name: NodeName,
    },
    #[cfg(feature = "redis")]
    Redis(channels::RedisOptions),
    #[cfg(feature = "tcp")]
    Tcp(channels::TcpOptions),
}

impl Member {
    pub(super) fn parse(
        url: &Url,
        scheme: &'static Scheme,
        policy: Policy,
        transport: Transport,
    ) -> Result<Self, OpenError> {
        let options = &Options::parse(scheme, url)?;
        let (link, member) = match transport {
            Transport::Memory => {
                let cluster = memory_cluster(scheme, url)?;
                let (name, member) = members(options, &cluster)?;
                (Link::Memory { cluster, name }, member)
            }
            #[cfg(feature = "redis")]
            Transport::Redis => {
                let server = redis::server(scheme, url)?;
                let cluster = options.required("cluster")?;
                let (name, member) = members(options, cluster)?;
                (Link::Redis(channels::RedisOptions::new(server, cluster, name)), member)
            }
            #[cfg(not(feature = "redis"))]
            Transport::Redis => {
                return Err(OpenError::FeatureOff { scheme: "+redis", feature: "redis" });
            }
            #[cfg(feature = "tcp")]
            Transport::Tcp => tcp(url, options)?,
            #[cfg(not(feature = "tcp"))]
            Transport::Tcp => {
                return Err(OpenError::FeatureOff { scheme: "+tcp", feature: "tcp" });
            }
        };
        let member = set(member, options.duration("heartbeat")?, MemberOptions::heartbeat);
        let member = set(member, options.range("election_timeout")?, |member, (min, max)| {
            member.election_timeout(min, max)
        });
        let timeout = options.duration("request_timeout")?;
        let member = set(member, timeout, MemberOptions::request_timeout);
        let outside_max = options.duration("outside_max")?;
        let member = set(member, outside_max, MemberOptions::outside_max);
        Ok(Self { policy, link, options: member, outside_max })
    }

    /// The option `outside_max`.
    pub(super) fn outside_max(&self) -> Option<Duration> {
        self.outside_max
    }

    /// Sets the option `outside_max`.
    pub(super) fn set_outside_max(&mut self, lease: Duration) {
        self.options = self.options.clone().outside_max(lease);
        self.outside_max = Some(lease);
    }

    pub(super) async fn open(self) -> Result<Locker, OpenError> {
        let channel: Arc<dyn Channel> = match self.link {
            Link::Memory { cluster, name } => {
                Arc::new(channels::Hub::shared(&cluster).channel(name))
            }
            #[cfg(feature = "redis")]
            Link::Redis(options) => Arc::new(channels::Redis::new(options)?),
            #[cfg(feature = "tcp")]
            Link::Tcp(options) => Arc::new(channels::Tcp::new(options)?),
        };
        Ok(match self.policy {
            Policy::Raft => Locker::new(Raft::open(channel, self.options).await?),
            Policy::Gaggle => Locker::new(Gaggle::open(channel, self.options).await?),
        })
    }
}

/// The own name, and the group of `members`.
fn members(options: &Options, cluster: &str) -> Result<(NodeName, MemberOptions), OpenError> {
    let scheme = options.scheme;
    let members = options.names("members")?;
    let name = node_name(scheme, "name", options.required("name")?)?;
    let members = members.iter().map(|member| node_name(scheme, "members", member));
    let members = members.collect::<Result<Vec<_>, _>>()?;
    if !members.contains(&name) {
        return Err(scheme.invalid("name", "must be one of the members"));
    }
    Ok((name, MemberOptions::named(cluster, members)))
}

fn node_name(scheme: &Scheme, option: &str, name: &str) -> Result<NodeName, OpenError> {
    NodeName::new(name).map_err(|error| scheme.invalid(option, error.to_string()))
}

fn memory_cluster(scheme: &Scheme, url: &Url) -> Result<String, OpenError> {
    if has_user(url) || url.port().is_some() || !matches!(url.path(), "" | "/") {
        return Err(scheme.invalid_url("only a cluster name may follow //"));
    }
    match decode(url.host_str().unwrap_or_default()) {
        Some(cluster) if !cluster.is_empty() => Ok(cluster.into_owned()),
        _ => Err(scheme.invalid_url("the cluster's name is missing behind the //")),
    }
}

/// The channel over TCP, and the group of its `peers`.
#[cfg(feature = "tcp")]
fn tcp(url: &Url, options: &Options) -> Result<(Link, MemberOptions), OpenError> {
    let scheme = options.scheme;
    let (listen, insecure) = (listen(scheme, url)?, options.flag("insecure")?);
    let keys = keys(options)?;
    if !listen.ip().is_loopback() && !insecure && keys.is_none() {
        let problem = "invalid URL: the address to listen on is beyond loopback, where frames \
                       would travel in plain text: give tls_ca, tls_cert and tls_key, or \
                       secret_file; insecure=true allows plain text";
        return Err(scheme.problem_of("secret_file", problem.into()));
    }
    let cluster = options.required("cluster")?;
    let mut peers = peers(scheme, options.required("peers")?)?;
    let name = node_name(scheme, "name", options.required("name")?)?;
    let members = MemberOptions::named(cluster, peers.keys().cloned());
    // All members share one list; each leaves out itself.
    let Some(entry) = peers.remove(&name) else {
        return Err(scheme.invalid("name", "must be one of the peers"));
    };
    warn_of_another_address(&name, listen, &entry);
    let tcp = channels::TcpOptions::new(name, listen).insecure(insecure);
    #[cfg(feature = "tls")]
    let tcp = set(tcp, keys, |tcp, keys| tcp.tls(cluster, keys));
    let tcp = peers.into_iter().fold(tcp, |tcp, (peer, address)| tcp.peer(peer, address));
    Ok((Link::Tcp(tcp), members))
}

/// The keys of TLS, if the URL names any.
#[cfg(all(feature = "tcp", feature = "tls"))]
fn keys(options: &Options) -> Result<Option<channels::tls::TlsKeys>, OpenError> {
    use channels::tls::TlsKeys;
    let files = ["tls_ca", "tls_cert", "tls_key"];
    let any = files.iter().any(|option| options.text(option).is_some());
    match (any, options.text("secret_file")) {
        (false, None) => Ok(None),
        (true, Some(_)) => {
            Err(options.scheme.invalid("secret_file", "give either files of certificates or this"))
        }
        (false, Some(_)) => Ok(Some(TlsKeys::secret(options.required("secret_file")?))),
        (true, None) => Ok(Some(TlsKeys::files(
            options.required("tls_ca")?,
            options.required("tls_cert")?,
            options.required("tls_key")?,
        ))),
    }
}

#[cfg(all(feature = "tcp", not(feature = "tls")))]
fn keys(options: &Options) -> Result<Option<()>, OpenError> {
    let names = ["tls_ca", "tls_cert", "tls_key", "secret_file"];
    match names.iter().any(|option| options.text(option).is_some()) {
        true => Err(OpenError::FeatureOff { scheme: "TLS", feature: "tls" }),
        false => Ok(None),
    }
}

#[cfg(feature = "tcp")]
fn listen(scheme: &Scheme, url: &Url) -> Result<SocketAddr, OpenError> {
    if has_user(url) || !matches!(url.path(), "" | "/") {
        return Err(scheme.invalid_url("only address:port may follow //"));
    }
    let address = match (url.host_str(), url.port()) {
        (Some("localhost"), Some(port)) => format!("127.0.0.1:{port}"),
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => return Err(scheme.invalid_url("the address:port to listen on is missing")),
    };
    address.parse().map_err(|_| {
        scheme.invalid_url("the address to listen on must be an IP address or localhost")
    })
}

/// `a@127.0.0.1:7001,b@…`
#[cfg(feature = "tcp")]
fn peers(scheme: &Scheme, text: &str) -> Result<BTreeMap<NodeName, String>, OpenError> {
    let mut peers = BTreeMap::new();
    for (number, peer) in (1..).zip(text.split(',').map(str::trim)) {
        let problem = || scheme.invalid("peers", format!("entry {number} must be name@host:port"));
        let (name, address) = peer.rsplit_once('@').ok_or_else(problem)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(problem)?;
        let host = host.trim_start();
        if host.is_empty()
            || host.contains(char::is_whitespace)
            || port.parse::<NonZeroU16>().is_err()
        {
            return Err(problem());
        }
        let name = node_name(scheme, "peers", name)?;
        if peers.insert(name, address.trim_start().to_owned()).is_some() {
            return Err(scheme.invalid("peers", "a name is given twice"));
        }
    }
    Ok(peers)
}

/// The other members connect to a member's entry in `peers`.
#[cfg(feature = "tcp")]
fn warn_of_another_address(name: &NodeName, listen: SocketAddr, entry: &str) {
    let Some((host, port)) = entry.rsplit_once(':') else { return };
    let (any, ip) = (listen.ip().is_unspecified(), listen.ip());
    let host_differs = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(host) => !any && host != ip,
        Err(_) if host == "localhost" => !any && !ip.is_loopback(),
        // A name may resolve to another address on other machines.
        Err(_) => false,
    };
    if host_differs || port.parse() != Ok(listen.port()) {
        tracing::warn!(
            %name, %listen, peers_entry = entry,
            "own entry in peers differs from the address listened on; \
             the group forms only if the network maps one to the other"
        );
    }
}
