//! URLs of a lock server: a Redis, or a `gaggle serve`. The commands take no other strategy by URL.

use gaggle::{OpenError, Url};

use crate::failure::BUILT_WITHOUT_TLS;

/// The strategy of a Redis.
pub(crate) const REDIS: &str = "redis";
/// The strategy of a `gaggle serve`.
pub(crate) const HTTP: &str = "http";
pub(crate) const EXAMPLE: &str = "for example redis://127.0.0.1:6379";
const HTTP_EXAMPLE: &str = "for example http://127.0.0.1:7080";

/// Parses the URL of a server that one of these strategies uses.
///
/// # Errors
///
/// The problem, without any text that may belong to a password.
pub(crate) fn parse(text: &str, strategies: &[&str]) -> Result<Url, String> {
    let takes = |strategy| strategies.contains(&strategy);
    let (server, example) = match (takes(REDIS), takes(HTTP)) {
        (true, true) => ("the URL of a Redis or of a `gaggle serve`", EXAMPLE),
        (true, false) => ("the URL of a Redis", EXAMPLE),
        _ => ("the URL of a `gaggle serve`", HTTP_EXAMPLE),
    };
    let url = Url::parse(text).map_err(|error| match error {
        OpenError::UnknownScheme { .. } => {
            let known = strategies.iter().flat_map(|it| Url::schemes(it)).collect::<Vec<_>>();
            let known = known.join(", ");
            format!("the URL has an unknown scheme, known are {known}; {example}")
        }
        OpenError::FeatureOff { feature: "tls", .. } => BUILT_WITHOUT_TLS.into(),
        error => error.to_string(),
    })?;
    match url.strategy() {
        strategy if takes(strategy) => Ok(url),
        "raft" | "gaggle" => Err(format!(
            "the URL is of a voting member, and a member that ends with each command costs its \
             group a vote: give {server}; {example}"
        )),
        strategy @ (REDIS | HTTP) => {
            Err(format!("expected {server}, not of the strategy {strategy}; {example}"))
        }
        strategy => Err(format!("{strategy}: excludes no other process: give {server}; {example}")),
    }
}

/// The address of a Redis: host, port and database, without user and password.
pub(crate) fn address(text: &str) -> String {
    Url::parse(text).map(|url| url.address()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use gaggle_fixtures::{SECRET_PARTS, secret_urls};

    use super::*;

    #[test]
    fn every_scheme_of_a_server_is_taken_and_no_other() {
        for scheme in Url::schemes(REDIS).chain(Url::schemes(HTTP)) {
            let path = if scheme.contains("sentinel") { "/m" } else { "" };
            let host = if scheme.contains("unix") { "/run/r.sock" } else { "127.0.0.1:1" };
            match parse(&format!("{scheme}://{host}{path}"), &[REDIS, HTTP]) {
                Ok(url) => assert_eq!(url.scheme(), scheme),
                Err(problem) => {
                    let has_tls = scheme.starts_with("rediss") || scheme == "https";
                    let is_off = cfg!(not(feature = "tls")) && has_tls;
                    assert!(is_off && problem == BUILT_WITHOUT_TLS, "{scheme}: {problem}");
                }
            }
        }
        for (text, expected) in [
            ("http://h", "expected the URL of a Redis, not of the strategy http"),
            ("amqp://h", "known are redis, rediss, redis+sentinel"),
            ("localhost", "the scheme is missing; for example: redis://"),
            ("gaggle+memory://d?name=a&members=a", "of a voting member"),
            ("local:", "local: excludes no other process"),
        ] {
            let problem = parse(text, &[REDIS]).unwrap_err();
            assert!(problem.contains(expected) && !problem.contains("tcp"), "{text}: {problem}");
        }
        let problem = parse("redis://h", &[HTTP]).unwrap_err();
        assert!(problem.ends_with("not of the strategy redis; for example http://127.0.0.1:7080"));
    }

    #[test]
    fn address_and_problem_show_no_secret() {
        for text in secret_urls() {
            let shown =
                parse(&text, &[REDIS, HTTP]).map_or_else(|problem| problem, |url| url.address());
            assert!(!SECRET_PARTS.iter().any(|part| shown.contains(part)), "{text:?}: {shown}");
        }
        assert!(parse("redis://u:hun?ter2@h", &[REDIS]).unwrap_err().contains("? as %3F"));
        assert_eq!(address("redis://u:hunter%3F2@h:7/2?queue=none"), "h:7/2");
    }
}
