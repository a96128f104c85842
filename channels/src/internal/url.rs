//! The check of the login in the URL of a Redis, which parsers do not make.

const BEYOND_THE_HOST: &str = "an @ stands behind the first /, ? or #: write / as %2F, ? as %3F, \
                               # as %23 and @ as %40 in a user, a password or an option";
const SEVERAL_LOGINS: &str = "a login stands once, before the first host: write @ as %40 and , as \
                              %2C in a user or a password";

/// Checks that user and password end where a parser ends them, at the last `@`, and that they stand
/// before the first host alone.
///
/// A parser takes an unescaped `/`, `?` or `#` in a password for the end of the address. Errors and
/// logs would then show a part of the password as host, port or path. URLs of Unix sockets have no
/// login before a host.
///
/// ```
/// use gaggle_channels::internal::url::check_login;
///
/// assert_eq!(check_login("redis://u:pass%3Fword@127.0.0.1"), Ok(()));
/// assert!(check_login("redis://u:pass?word@127.0.0.1").is_err());
/// assert!(check_login("redis+cluster://u:p@a,u:p@b").is_err());
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
    if scheme.contains("unix") {
        return Ok(());
    }
    if after[end..].contains('@') {
        return Err(BEYOND_THE_HOST);
    }
    let login = after[..end].rsplit_once('@').map_or("", |(login, _)| login);
    let has_hosts = ["sentinel", "cluster", "http"].iter().any(|it| scheme.contains(it));
    if has_hosts && login.contains(',') {
        return Err(SEVERAL_LOGINS);
    }
    Ok(())
}
