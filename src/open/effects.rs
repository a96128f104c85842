//! Goal: every option of every scheme reaches its strategy or its channel, and a test sees its
//! effect on what is opened. Method: for each option of each scheme, the options of strategy and
//! channel, with it and without; and a table of the tests that open handles with it.

use std::{collections::BTreeMap, fs, path::Path};

use url::Url;

use super::{
    options::Options,
    redis,
    scheme::{Kind, SCHEMES, Scheme, Transport},
    target::parse,
};

/// A value for each option, and how it appears in the options of strategy and channel.
const EFFECTS: [(&str, &str, &str); 24] = [
    ("db", "7", "db=7"),
    ("user", "me", "user=me"),
    ("pass", "p4ss", "pass=p4ss"),
    ("sentinel_user", "she", "sentinel_user=she"),
    ("sentinel_password", "s3cr", "sentinel_password=s3cr"),
    ("tls_name", "n7", "name: Some(\"n7\")"),
    ("queue", "none", "queue: None"),
    ("namespace", "orders", "namespace: \"orders\""),
    ("replicas", "2", "replicas: 2"),
    ("allow_eviction", "true", "allow_eviction: true"),
    ("request_timeout", "250ms", "request_timeout: 250ms"),
    ("cluster", "other", "cluster: \"other\""),
    ("name", "c", "name: \"c\""),
    ("members", "a,x", "\"x\""),
    ("size", "17", "Sized(17)"),
    ("peers", "a@127.0.0.1:7001,x@127.0.0.1:7009", "\"127.0.0.1:7009\""),
    ("tls_ca", "/run/ca.pem", "/run/ca.pem"),
    ("tls_cert", "/run/a.pem", "/run/a.pem"),
    ("tls_key", "/run/a-key.pem", "/run/a-key.pem"),
    ("secret_file", "/run/secret", "/run/secret"),
    ("insecure", "true", "insecure: true"),
    ("heartbeat", "20ms", "heartbeat: 20ms"),
    ("election_timeout", "700ms..900ms", "election_timeout: (700ms, 900ms)"),
    ("outside_max", "7s", "outside_max: Some(7s)"),
];

const OPEN: &str = "tests/open.rs";
const OPEN_EFFECTS: &str = "tests/open_effects.rs";

/// The test that opens a handle with the option and sees its effect, for the Redis strategy.
const SEEN_ON_REDIS: [(&str, &str, &[&str]); 7] = [
    (OPEN, "redis_opens_over_a_unix_socket", &["db", "user", "pass"]),
    (OPEN, "redis_opens_with_its_options", &["queue", "namespace"]),
    (OPEN, "request_timeout_bounds_an_unlock", &["request_timeout"]),
    (OPEN_EFFECTS, "eviction_is_accepted_if_it_is_allowed", &["allow_eviction"]),
    (OPEN_EFFECTS, "grant_without_its_replica_is_not_reported", &["replicas"]),
    (
        OPEN_EFFECTS,
        "redis_over_tls_needs_each_file_and_name",
        &["tls_ca", "tls_cert", "tls_key", "tls_name"],
    ),
    (OPEN_EFFECTS, "sentinels_get_their_own_login", &["sentinel_user", "sentinel_password"]),
];

/// The same for members.
const SEEN_ON_MEMBERS: [(&str, &str, &[&str]); 9] = [
    (OPEN, "members_meet_over_memory_tcp_and_redis", &["name", "members", "size", "peers"]),
    ("tests/open_events.rs", "groupless_member_names_the_missing", &["cluster"]),
    (
        "tests/open_tls.rs",
        "certificates_are_replaced_under_load",
        &["tls_ca", "tls_cert", "tls_key"],
    ),
    (OPEN_EFFECTS, "members_meet_with_one_secret_alone", &["secret_file"]),
    (OPEN, "tcp_beyond_loopback_needs_insecure", &["insecure"]),
    (OPEN_EFFECTS, "heartbeat_sets_how_often_members_send", &["heartbeat"]),
    (OPEN_EFFECTS, "election_timeout_delays_the_next_leader", &["election_timeout"]),
    (OPEN_EFFECTS, "request_timeout_bounds_an_unlock_of_a_member", &["request_timeout"]),
    (OPEN, "outside_max_of_a_url_bounds_the_leases", &["outside_max"]),
];

/// The options that a URL stands for, and its Redis, which no options show.
pub(super) fn opened_with(text: &str) -> String {
    let target = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let url = Url::parse(text).unwrap();
    let scheme = Scheme::named(url.scheme()).unwrap();
    let server = match scheme.kind {
        Kind::RedisSocket => {
            redis::socket(&url, &Options::parse(scheme, url.query().unwrap_or_default()).unwrap())
        }
        Kind::Redis | Kind::Member(_, Transport::Redis) => redis::server(scheme, &url),
        // The login is not shown either.
        Kind::Sentinel | Kind::Cluster => Ok(text.to_owned()),
        _ => Ok(String::new()),
    };
    format!("{} {target:?}", server.unwrap())
}

/// The example of the scheme with this option, and without the options that it excludes.
fn with(scheme: &Scheme, option: &str, value: &str) -> String {
    let mut url = Url::parse(scheme.example).unwrap();
    let mut options: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
    if option == "size" {
        options.remove("members");
    }
    if option == "user" {
        options.insert("pass".into(), "x".into());
    }
    if option == "sentinel_user" {
        options.insert("sentinel_password".into(), "x".into());
    }
    // These are given together.
    if option.starts_with("tls_") {
        for file in ["tls_ca", "tls_cert", "tls_key"] {
            options.insert(file.into(), "/run/another".into());
        }
    }
    options.insert(option.into(), value.into());
    url.query_pairs_mut().clear().extend_pairs(options);
    url.into()
}

#[test]
fn every_option_has_its_effect() {
    for scheme in SCHEMES {
        for option in scheme.options {
            let effect = EFFECTS.iter().find(|(name, ..)| name == option);
            let (_, value, shown) = effect.unwrap_or_else(|| panic!("add {option} to the table"));
            let (before, url) = (opened_with(scheme.example), with(scheme, option, value));
            let after = opened_with(&url);
            assert!(!before.contains(shown), "{}: {before}", scheme.example);
            assert!(after.contains(shown), "{url}: {shown} is not in {after}");
        }
    }
}

/// The test's own lines.
fn body_of(file: &str, test: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&file).unwrap();
    let (_, from) = text
        .split_once(&format!("fn {test}("))
        .unwrap_or_else(|| panic!("{} has no test {test}", file.display()));
    from.split("\n}\n").next().unwrap_or_default().to_owned()
}

#[test]
fn every_option_has_a_test_of_its_effect() {
    for scheme in SCHEMES {
        let tests = match scheme.kind {
            Kind::Member(..) => &SEEN_ON_MEMBERS[..],
            _ => &SEEN_ON_REDIS,
        };
        for option in scheme.options {
            let test = tests.iter().find(|(.., options)| options.contains(option));
            let (file, test, _) = test
                .unwrap_or_else(|| panic!("{}: no test sees the effect of {option}", scheme.name));
            let body = body_of(file, test);
            // `Group` of the tests of TLS opens with the URL options of its certificates.
            let given = body.contains(&format!("{option}="))
                || option.starts_with("tls_") && body.contains("Group::new()");
            assert!(given, "{test} opens nothing with {option}");
        }
    }
}
