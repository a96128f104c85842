//! Goal: every option of every scheme reaches the strategy or the channel that it is for.
//! Method: for each scheme and option of the table of schemes, the options that are opened with, with
//! the option and without.

use std::collections::BTreeMap;

use url::Url;

use super::{
    scheme::{SCHEMES, Scheme},
    target::{Link, Target, parse},
};

/// A value for each option, and what it shows as in the options that are opened with.
const EFFECTS: [(&str, &str, &str); 16] = [
    ("db", "7", "db=7"),
    ("user", "me", "user=me"),
    ("pass", "p4ss", "pass=p4ss"),
    ("queue", "none", "queue: None"),
    ("namespace", "orders", "namespace: \"orders\""),
    ("allow_eviction", "true", "allow_eviction: true"),
    ("request_timeout", "250ms", "request_timeout: 250ms"),
    ("cluster", "other", "cluster: \"other\""),
    ("name", "c", "own name c"),
    ("members", "a,x", "\"x\""),
    ("size", "17", "Sized(17)"),
    ("peers", "a@127.0.0.1:7001,x@127.0.0.1:7009", "\"127.0.0.1:7009\""),
    ("insecure", "true", "insecure: true"),
    ("heartbeat", "20ms", "heartbeat: 20ms"),
    ("election_timeout", "700ms..900ms", "election_timeout: (700ms, 900ms)"),
    ("outside_max", "7s", "outside_max: Some(7s)"),
];

/// What is opened with, as text.
fn opened_with(url: &str) -> String {
    match parse(url).unwrap_or_else(|error| panic!("{url}: {error}")) {
        Target::Local | Target::Noop => String::new(),
        Target::Redis(redis) => {
            let url = redis.server.0.clone();
            format!("{url} {:?}", super::redis_options(redis))
        }
        Target::Member(member) => {
            let channel = match &member.link {
                Link::Memory => String::new(),
                Link::Redis { server } => {
                    format!("{:?}", super::member::channel_options(&member, server))
                }
                Link::Tcp { listen, peers, insecure } => {
                    format!(
                        "{:?}",
                        super::member::tcp_options(&member.name, *listen, peers, *insecure)
                    )
                }
            };
            let name = member.name.clone();
            format!("own name {name} {channel} {:?}", super::member::member_options(member))
        }
    }
}

/// The example of the scheme with this option, and without those that it excludes.
fn with(scheme: &Scheme, option: &str, value: &str) -> String {
    let mut url = Url::parse(scheme.example).unwrap();
    let mut options: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
    if option == "size" {
        options.remove("members");
    }
    options.insert(option.into(), value.into());
    url.query_pairs_mut().clear().extend_pairs(options);
    url.into()
}

#[test]
fn every_option_reaches_what_it_is_for() {
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
