//! The servers of a URL: one host or several, or a Unix socket.

use url::Url;

use super::{scheme::Scheme, url::has_user};
use crate::OpenError;

const WILDCARD: &str =
    "0.0.0.0 and :: are not addresses to connect to: give that of the server, as 127.0.0.1";

/// Refuses an address that only a listener has.
pub(super) fn check_wildcard(url: &Url, scheme: &Scheme) -> Result<(), OpenError> {
    match url.host_str() {
        Some("0.0.0.0" | "[::]") => Err(scheme.invalid_url(WILDCARD)),
        _ => Ok(()),
    }
}

/// Each host as a URL of `plain`, which is read without the newline behind a URL that was in a file.
/// `what` names one. Without `hosts`, that of `url` is the only one.
pub(super) fn servers(
    (url, hosts): (&Url, &[String]),
    (scheme, plain): (&Scheme, &str),
    what: &str,
) -> Result<Vec<Url>, OpenError> {
    let parsed = |host: &String| {
        let url = Url::parse(&format!("{plain}://{host}")).ok();
        let is_host = |url: &Url| {
            let is_alone = matches!(url.path(), "" | "/") && url.query().is_none();
            is_alone && !url.host_str().unwrap_or_default().is_empty() && !has_user(url)
        };
        let expected = || scheme.invalid_url(format!("{what} must be host or host:port"));
        let url = url.filter(is_host).ok_or_else(expected)?;
        check_wildcard(&url, scheme).map(|()| url)
    };
    match hosts {
        [] => check_wildcard(url, scheme).map(|()| vec![url.clone()]),
        hosts => hosts.iter().map(parsed).collect(),
    }
}

/// `host` or `host:port`.
#[cfg(feature = "redis")]
pub(super) fn address(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Checks that the URL has the path of a socket, and no host.
pub(super) fn check_socket(url: &Url, scheme: &Scheme) -> Result<(), OpenError> {
    if has_user(url) || !url.host_str().unwrap_or_default().is_empty() {
        return Err(scheme.invalid_url("only the path of a socket may follow //"));
    }
    if !url.path().starts_with('/') || url.path() == "/" {
        return Err(scheme.invalid_url("the path of the socket is missing behind the ///"));
    }
    Ok(())
}
