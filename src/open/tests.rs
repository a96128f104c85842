//! Goal: every URL stands for the options that the documentation says, or gets an error that says
//! what was expected. Method: tables of URLs with the options, the error or the texts of each.

mod errors;
mod secrets;

use std::{collections::BTreeMap, time::Duration};

use ::url::Url as PlainUrl;

use super::{
    Url, hosts,
    options::Options,
    parse_duration, redis,
    scheme::{Kind, SCHEMES, Scheme, Transport},
    url::split_hosts,
};

/// A value for each option, and how it appears in the options of strategy and channel.
const EFFECTS: [(&str, &str, &str); 25] = [
    ("db", "7", "db=7"),
    ("user", "me", "user=me"),
    ("pass", "p4ss", "pass=p4ss"),
    ("sentinel_user", "she", "sentinel_user=she"),
    ("sentinel_password", "s3cr", "sentinel_password=s3cr"),
    ("tls_name", "n7", "name: Some(\"n7\")"),
    ("queue", "none", "queue: None"),
    ("token_file", "/run/token", "File(\"/run/token\")"),
    ("namespace", "orders", "namespace: \"orders\""),
    ("replicas", "2", "replicas: 2"),
    ("allow_eviction", "true", "allow_eviction: true"),
    ("request_timeout", "250ms", "request_timeout: 250ms"),
    ("waiter_ttl", "30s", "waiter_ttl: 30s"),
    ("cluster", "other", "cluster: \"other\""),
    ("name", "c", "name: \"c\""),
    ("members", "a,x", "\"x\""),
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
fn opened_with(text: &str) -> String {
    let parsed = Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let (target, url) = (parsed.target(), PlainUrl::parse(&split_hosts(text).0).unwrap());
    let scheme = Scheme::named(url.scheme()).unwrap();
    let server = match scheme.kind {
        Kind::RedisSocket => redis::socket(&url, &Options::parse(scheme, &url).unwrap()),
        Kind::Redis | Kind::Member(_, Transport::Redis) => redis::server(scheme, &url),
        // The login is not shown either.
        Kind::Sentinel | Kind::Cluster => Ok(text.to_owned()),
        _ => Ok(String::new()),
    };
    format!("{} {target:?}", server.unwrap())
}

/// The example of the scheme with this option, and without the options that it excludes.
fn with(scheme: &Scheme, option: &str, value: &str) -> String {
    let mut url = PlainUrl::parse(scheme.example).unwrap();
    let mut options: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
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
        for option in scheme.options() {
            let effect = EFFECTS.iter().find(|(name, ..)| *name == option);
            let (_, value, shown) = effect.unwrap_or_else(|| panic!("add {option} to the table"));
            let (before, url) = (opened_with(scheme.example), with(scheme, option, value));
            let after = opened_with(&url);
            assert!(!before.contains(shown), "{}: {before}", scheme.example);
            assert!(after.contains(shown), "{url}: {shown} is not in {after}");
        }
    }
}

#[test]
fn valid_urls_give_the_options_of_the_table() {
    let defaults = [r#"namespace: "gaggle", queue: Fifo"#, "allow_eviction: false"];
    let tcp = "&peers=a@127.0.0.1:7001,b@db:9";
    let table: [(String, &[&str]); 19] = [
        ("local:".into(), &["Local"]),
        ("noop:".into(), &["Noop"]),
        ("redis://localhost".into(), &[&["redis://localhost Redis("], &defaults[..]].concat()),
        ("redis://u:p%40ss@[::1]:6380/3".into(), &["redis://u:p%40ss@[::1]:6380/3 Redis("]),
        (
            "redis://h?queue=none&namespace=my%20app&allow_eviction=true&request_timeout=200ms"
                .into(),
            &[
                r#"redis://h Redis(RedisOptions { namespace: "my app", queue: None"#,
                "request_timeout: 200ms",
                "allow_eviction: true",
            ],
        ),
        ("redis+unix:///run/r.sock".into(), &["redis+unix:///run/r.sock?db=0 Redis("]),
        (
            "redis+unix:///run/my%20r.sock?pass=p%26s&namespace=n&user=u&db=3".into(),
            &["redis+unix:///run/my%20r.sock?db=3&user=u&pass=p%26s Redis(", r#"namespace: "n""#],
        ),
        ("http://h".into(), &[r#"nodes: [Tcp("h:80")], token: None, request_timeout: 1s"#]),
        (
            "https://:t@a:7,[::1],c:443?request_timeout=2s".into(),
            &[
                r#"[Tcp("a:7"), Tcp("[::1]:443"), Tcp("c:443")], token: Text"#,
                "request_timeout: 2s",
            ],
        ),
        (
            "http+unix:///run/my%20g.sock?token_file=/t".into(),
            &[r#"nodes: [Unix("/run/my g.sock")], token: File("/t")"#],
        ),
        (
            "gaggle+memory://demo?name=a&members=a,b,c".into(),
            &["Gaggle", r#"cluster: "demo", name: "a""#, r#"members: {"a", "b", "c"}"#],
        ),
        (
            "gaggle+memory://demo/?members=a&name=a".into(),
            &[r#"cluster: "demo", name: "a""#, r#"members: {"a"}"#],
        ),
        (
            "gaggle+memory://demo?name=%D1%8F&members=%D1%8F,b+c".into(),
            &[r#"name: "я""#, r#"members: {"b+c", "я"}"#],
        ),
        (
            "gaggle+memory://demo?name=a%20&members=a,%20b, c".into(),
            &[r#"name: "a""#, r#"members: {"a", "b", "c"}"#],
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=a@h:1, b @ h:2 ,%20c@h:3".into(),
            &[r#"peers: {"b": "h:2", "c": "h:3"}"#, r#"members: {"a", "b", "c"}"#],
        ),
        (
            "gaggle+memory://my%20demo?name=x&members=x".into(),
            &[r#"cluster: "my demo", name: "x""#],
        ),
        (
            "raft+redis://127.0.0.1:6379/2?cluster=c/1&name=a&members=a,b".into(),
            &["redis://127.0.0.1:6379/2 ", "Raft", r#"cluster: "c/1", name: "a""#],
        ),
        (
            format!(
                "gaggle+tcp://127.0.0.1:7001?cluster=c&name=a{tcp}&heartbeat=20ms\
                 &election_timeout=100ms..1s&request_timeout=2s&outside_max=10s"
            ),
            &[
                r#"name: "a", listen: 127.0.0.1:7001, peers: {"b": "db:9"}, insecure: false"#,
                r#"members: {"a", "b"}"#,
                "heartbeat: 20ms",
                "election_timeout: (100ms, 1s)",
                "request_timeout: 2s",
                "outside_max: Some(10s)",
            ],
        ),
        (
            format!("raft+tcp://localhost:7001?cluster=c&name=b{tcp}&insecure=true"),
            &[r#"listen: 127.0.0.1:7001, peers: {"a": "127.0.0.1:7001"}, insecure: true"#],
        ),
    ];
    for (url, expected) in table {
        let shown = opened_with(&url);
        for part in expected {
            assert!(shown.contains(part), "{url}: {part} is not in {shown}");
        }
    }
}

/// `RedisOptions` hide their hosts.
#[test]
fn hosts_are_those_that_the_parser_reads() {
    for (url, expected) in [
        ("redis+cluster://a,b:7\n", ["a", "b:7"]),
        ("redis+cluster://a,b ", ["a", "b"]),
        ("redis+cluster:// a , b:7 ", ["a", "b:7"]),
        ("redis+cluster://u:p@a,b:", ["a", "b"]),
        ("redis+sentinel://a:,b\t:7/m", ["a", "b:7"]),
        ("redis+sentinel://[::1]:7,[0::2]/m", ["[::1]:7", "[::2]"]),
    ] {
        let (first, hosts) = split_hosts(url);
        let parsed = PlainUrl::parse(&first).unwrap();
        let scheme = Scheme::named(parsed.scheme()).unwrap();
        let found = hosts::servers((&parsed, &hosts), (scheme, "redis"), "a node").unwrap();
        assert_eq!(found.iter().map(hosts::address).collect::<Vec<_>>(), expected, "{url:?}");
        Url::parse(url).unwrap_or_else(|error| panic!("{url:?}: {error}"));
    }
}

/// A client without a password sends no user.
#[test]
fn user_default_needs_no_password() {
    for url in ["redis://default@h", "redis://default:@h", "redis+unix:///s?user=default"] {
        Url::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[test]
fn every_example_is_valid() {
    for example in SCHEMES.iter().flat_map(|it| [it.example, it.example_with_tls()]) {
        Url::parse(example).unwrap_or_else(|error| panic!("{example}: {error}"));
    }
}

/// The table of `gaggle::open`, and the list in the error of an unknown scheme.
#[test]
fn every_scheme_and_option_is_documented() {
    let table: Vec<&str> =
        include_str!("../open.rs").lines().filter(|line| line.starts_with("/// | `")).collect();
    let unknown = Url::parse("amqp://h").unwrap_err().to_string();
    for scheme in SCHEMES {
        assert!(unknown.contains(scheme.name), "{unknown}");
        for name in scheme.options().into_iter().chain(scheme.name.split('+').next_back()) {
            let is_named = |row: &&&str| {
                row.contains(&format!("`{name}")) || row.contains(&format!("+{name}:"))
            };
            assert!(table.iter().any(|row| is_named(&row)), "{name} is undocumented");
        }
    }
}

/// A URL, how it is shown, its address, and whether it has a password.
#[test]
fn url_is_shown_without_its_password() {
    const SENTINELS: &str = "m of the Sentinels h:7,i:8";
    for (url, shown, address, has_password) in [
        ("local:", "local:", "", false),
        ("redis://a:b@h:7/2", "redis://a@h:7/2", "h:7/2", true),
        ("redis://h?queue=none", "redis://h?queue=none", "h:6379", false),
        ("redis+sentinel://a:b@h:7,i:8/m", "redis+sentinel://a@h:7,i:8/m", SENTINELS, true),
        (
            "rediss+sentinel://h:7,i:8/m?sentinel_password=x&queue=none",
            "rediss+sentinel://h:7,i:8/m?queue=none",
            SENTINELS,
            true,
        ),
        ("redis+cluster://a:b@h:7,i:8", "redis+cluster://a@h:7,i:8", "h:7,i:8", true),
        ("rediss+cluster://h,i:8/", "rediss+cluster://h,i:8/", "h:6379,i:8", false),
        ("redis+unix:///r.sock?db=1&pass=x", "redis+unix:///r.sock?db=1", "/r.sock", true),
        ("redis+unix:///r?p%61ss=x&user=a%20b+c", "redis+unix:///r?user=a%20b+c", "/r", true),
        ("redis+unix:///r.sock?pass=x", "redis+unix:///r.sock", "/r.sock", true),
        ("http://:b@h:7,i:8", "http://h:7,i:8/", "h:7,i:8", true),
        ("https://h?token_file=/t", "https://h/?token_file=/t", "h:443", false),
        ("http+unix:///g.sock", "http+unix:///g.sock", "/g.sock", false),
        (
            "gaggle+redis://:b@h/1?cluster=c&name=a&members=a",
            "gaggle+redis://h/1?cluster=c&name=a&members=a",
            "h:6379/1",
            true,
        ),
        (
            "raft+memory://demo?name=a&members=a",
            "raft+memory://demo?name=a&members=a",
            "demo",
            false,
        ),
        (
            "gaggle+tcp://127.0.0.1:7001?cluster=c&name=a&peers=a@h:1",
            "gaggle+tcp://127.0.0.1:7001?cluster=c&name=a&peers=a@h:1",
            "127.0.0.1:7001",
            false,
        ),
    ] {
        let parsed = Url::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!((parsed.to_string(), parsed.address()), (shown.into(), address.into()));
        assert_eq!((parsed.with_password(), parsed.has_password()), (url, has_password));
        assert_eq!(Url::schemes(parsed.strategy()).filter(|it| *it == parsed.scheme()).count(), 1);
    }
}

#[test]
fn duration_is_a_number_with_its_unit() {
    for (text, ms) in [
        ("0", 0),
        ("0s", 0),
        ("500ms", 500),
        ("100000us", 100),
        ("10s", 10_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("1h 30m", 5_400_000),
        ("24h", 86_400_000),
        ("1day", 86_400_000),
    ] {
        assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
    }
    for text in ["", "5", "s", "-1s", "1,5s", "5x", "99999999999999999h"] {
        assert_eq!(parse_duration(text), None, "{text:?}");
    }
}

/// The parser panics where the sum is just beyond the greatest duration.
#[test]
fn text_beyond_any_duration_is_refused() {
    assert_eq!(parse_duration("30500568904943w7h15s1000ms"), None);
    assert_eq!(parse_duration("18446744073709551615s 1000ms"), None);
}
