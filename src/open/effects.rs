//! Goal: every option of every scheme reaches its strategy or its channel. Method: for each option
//! of each scheme, the options of strategy and channel, with it and without.

use std::{collections::BTreeMap, time::Duration};

use gaggle_strategies::LockOptions;
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

/// Contract, *Input and limits* and rules 2, 6, 7 and 8.
#[test]
fn defaults_are_those_of_the_contract() {
    let ten_and_five =
        LockOptions::default().duration(Duration::from_secs(10)).max_wait(Duration::from_secs(5));
    assert_eq!(LockOptions::default(), ten_and_five);
    for (scheme, memory) in
        [("redis", "nonce_memory: 30s"), ("raft+memory", "nonce_memory_ms: 30000")]
    {
        let opened = opened_with(Scheme::named(scheme).unwrap().example);
        for default in
            [memory, "waiter_ttl: 3s", "request_timeout: 1s", "drift: Drift { ppm: 10000 }"]
        {
            assert!(opened.contains(default), "{default} is not in {opened}");
        }
    }
}
