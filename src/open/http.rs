//! The URL of a `gaggle serve`.

use gaggle_strategies::HttpOptions;
use url::Url;

use super::{
    hosts::{check_socket, servers},
    options::{Options, set},
    scheme::{Kind, Scheme},
    url::decode,
};
use crate::OpenError;

/// The options of the HTTP strategy.
pub(super) fn parse(
    url: &Url,
    hosts: &[String],
    scheme: &'static Scheme,
) -> Result<HttpOptions, OpenError> {
    if scheme.has_tls() && cfg!(not(feature = "tls")) {
        return Err(OpenError::FeatureOff { scheme: "https", feature: "tls" });
    }
    let options = &Options::parse(scheme, url)?;
    let http = match scheme.kind {
        Kind::HttpSocket => HttpOptions::unix(socket(url, scheme)?),
        _ => HttpOptions::new(nodes(url, hosts, scheme)?),
    };
    #[cfg(feature = "tls")]
    let http = match scheme.has_tls() {
        true => {
            let (files, name) = options.tls()?;
            set(http.tls(files), name, HttpOptions::tls_name)
        }
        false => http,
    };
    if !url.username().is_empty() {
        return Err(scheme.invalid_url("a token has no user: write :TOKEN@host"));
    }
    let token = decode(url.password().unwrap_or_default());
    let token = token.ok_or_else(|| scheme.invalid_url("the token is not valid UTF-8"))?;
    let file = options.filled("token_file")?;
    if file.is_some() && !token.is_empty() {
        return Err(scheme.invalid("token_file", "the URL has a token already"));
    }
    let http = set(http, Some(token).filter(|token| !token.is_empty()), HttpOptions::token);
    let http = set(http, file, HttpOptions::token_file);
    Ok(set(http, options.duration("request_timeout")?, HttpOptions::request_timeout))
}

/// `host:port` of each node. The port is that of the scheme by default.
fn nodes(url: &Url, hosts: &[String], scheme: &Scheme) -> Result<Vec<String>, OpenError> {
    if !matches!(url.path(), "" | "/") {
        return Err(scheme.invalid_url("only options may follow the address"));
    }
    let node = |url: &Url| {
        let port = url.port_or_known_default().unwrap_or_default();
        format!("{}:{port}", url.host_str().unwrap_or_default())
    };
    let nodes = servers((url, hosts), (scheme, scheme.name), "a node")?;
    Ok(nodes.iter().map(node).collect())
}

fn socket(url: &Url, scheme: &Scheme) -> Result<String, OpenError> {
    check_socket(url, scheme)?;
    let path = decode(url.path()).map(String::from);
    path.ok_or_else(|| scheme.invalid_url("the path is not valid UTF-8"))
}
