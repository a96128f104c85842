//! The candidates for the server: directly, by Sentinels or in a Cluster, with or without TLS.

use gaggle_channels::internal::net::LookUps;
#[cfg(feature = "tls")]
use gaggle_channels::{ChannelError, tls::TlsClient};
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::{
    cluster::ClusterDial,
    dial::{Dial, Direct, Transport},
    query::QueryClient,
    sentinel::SentinelDial,
    server::{Place, invalid},
};
#[cfg(feature = "tls")]
use super::{
    dial::TlsWay,
    server::{Tls, URL},
};
use crate::{error::Error, redis::options::RedisOptions};

/// How to connect to the server of these options, and the scheme of its URLs.
pub(in crate::redis) fn dial(
    options: &RedisOptions,
    info: &ConnectionInfo,
    tls: bool,
) -> Result<(Box<dyn Dial>, &'static str), Error> {
    let transport = transport(options, tls)?;
    if !transport.is_plain() && matches!(info.addr(), ConnectionAddr::Unix(_)) {
        return Err(invalid("TLS".into(), "a host: a Unix socket has no TLS"));
    }
    let queries = |login: &RedisConnectionInfo| QueryClient {
        // An error of HELLO keeps its code, an error of AUTH does not.
        login: login.clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name(),
        transport: transport.clone(),
    };
    let scheme = transport.scheme();
    let dial: Box<dyn Dial> = match &options.server.place {
        Place::Direct => Box::new(Direct { address: info.addr().clone(), transport }),
        Place::Sentinels(sentinels) => {
            let queries = queries(&sentinels.login);
            Box::new(SentinelDial { sentinels: sentinels.clone(), queries, attempts: 0 })
        }
        Place::Cluster(nodes) => {
            let queries = queries(info.redis_settings());
            Box::new(ClusterDial::new(info, nodes, options.namespace.clone(), queries)?)
        }
    };
    Ok((dial, scheme))
}

fn transport(options: &RedisOptions, tls: bool) -> Result<Transport, Error> {
    #[cfg(not(feature = "tls"))]
    if tls {
        return Err(invalid("TLS".into(), "a program with the feature tls of this crate"));
    }
    Ok(Transport {
        limit: options.connect_timeout,
        clock: options.clock.clone(),
        look_ups: LookUps::default(),
        #[cfg(feature = "tls")]
        tls: options.tls.clone().or_else(|| tls.then(Tls::default)).map(tls_way).transpose()?,
    })
}

#[cfg(feature = "tls")]
fn tls_way(Tls { files, name }: Tls) -> Result<TlsWay, Error> {
    let client = TlsClient::new(&files).map_err(|error| match error {
        ChannelError::InvalidOptions { field, problem } => {
            Error::InvalidOptions { field, value: "a file".into(), limit: problem }
        }
        error => invalid(error.to_string(), URL),
    })?;
    Ok(TlsWay { client, name })
}
