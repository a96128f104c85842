//! The login in the URL of a Redis, checked before a parser splits the text.

/// Checks that user and password end where a parser ends them, at the last `@`.
///
/// A parser takes an unescaped `/`, `?` or `#` in a password for the end of the address, and a part
/// of the password for host, port or path: errors and logs would then show it. URLs of Unix sockets
/// have no login before a host.
///
/// ```
/// use gaggle_channels::url::check_login;
///
/// assert_eq!(check_login("redis://u:pass%3Fword@127.0.0.1"), Ok(()));
/// assert!(check_login("redis://u:pass?word@127.0.0.1").is_err());
/// ```
///
/// # Errors
///
/// The problem and its remedy, without any text of the URL.
pub fn check_login(url: &str) -> Result<(), &'static str> {
    // Parsers remove these before they look at a URL.
    let url = url.replace(['\t', '\n', '\r'], "");
    let (scheme, after) = url.split_once("//").unwrap_or((&url, ""));
    let end = after.find(['/', '?', '#']).unwrap_or(after.len());
    if scheme.contains("unix") || !after[end..].contains('@') {
        return Ok(());
    }
    Err("an @ stands behind the first /, ? or #: write / as %2F, ? as %3F, # as %23 and @ as %40 \
         in a user, a password or an option")
}
