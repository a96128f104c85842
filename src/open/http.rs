//! The URL of a `gaggle serve`.

use gaggle_strategies::HttpOptions;
use url::Url;

use super::{
    options::{Options, set},
    scheme::{Kind, Scheme},
    url::{WILDCARD, decode, has_user, is_wildcard},
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
        if is_wildcard(url) {
            return Err(scheme.invalid_url(WILDCARD));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        Ok(format!("{}:{port}", url.host_str().unwrap_or_default()))
    };
    let further = |host: &String| {
        let parsed = Url::parse(&format!("{}://{host}", scheme.name)).ok();
        let is_host = |url: &Url| !has_user(url) && url.path() == "/" && url.query().is_none();
        let expected = || scheme.invalid_url("a node must be host or host:port");
        node(&parsed.filter(is_host).ok_or_else(expected)?)
    };
    let first = std::iter::once(node(url));
    first.chain(hosts.iter().skip(1).map(further)).collect()
}

fn socket(url: &Url, scheme: &Scheme) -> Result<String, OpenError> {
    if has_user(url) || !url.host_str().unwrap_or_default().is_empty() {
        return Err(scheme.invalid_url("only the path of a socket may follow //"));
    }
    if !url.path().starts_with('/') || url.path() == "/" {
        return Err(scheme.invalid_url("the path of the socket is missing behind the ///"));
    }
    let path = decode(url.path()).map(String::from);
    path.ok_or_else(|| scheme.invalid_url("the path is not valid UTF-8"))
}
