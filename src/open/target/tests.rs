//! Goal: every URL means what the table says, or is answered with what is wrong.
//! Method: a table of URLs with the expected target or error.

use super::*;

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn names(names: &[&str]) -> Vec<NodeName> {
    names.iter().map(|each| name(each)).collect()
}

fn redis(server: &str) -> Redis {
    let server = Secret(server.into());
    Redis { server, fifo: true, namespace: None, allow_eviction: false, request_timeout: None }
}

fn member(policy: Policy, cluster: &str, me: &str, group: Group, link: Link) -> Member {
    Member {
        policy,
        cluster: cluster.into(),
        name: name(me),
        group,
        link,
        heartbeat: None,
        election_timeout: None,
        request_timeout: None,
        outside_max: None,
    }
}

fn memory(me: &str, members: &[&str]) -> Member {
    member(Policy::Gaggle, "demo", me, Group::Named(names(members)), Link::Memory)
}

#[test]
fn right_urls_mean_what_the_table_says() {
    let server = || Secret("redis://127.0.0.1:6379/2".into());
    let peers = || {
        BTreeMap::from([(name("a"), "127.0.0.1:7001".to_owned()), (name("b"), "db:9".to_owned())])
    };
    let tcp = |insecure| Link::Tcp {
        listen: "127.0.0.1:7001".parse().unwrap(),
        peers: peers(),
        insecure,
    };
    let table = [
        ("local:", Target::Local),
        ("noop:", Target::Noop),
        ("redis://localhost", Target::Redis(redis("redis://localhost"))),
        ("redis://u:p%40ss@[::1]:6380/3", Target::Redis(redis("redis://u:p%40ss@[::1]:6380/3"))),
        (
            "redis://h?queue=none&namespace=my%20app&allow_eviction=true&request_timeout=200ms",
            Target::Redis(Redis {
                fifo: false,
                namespace: Some("my app".into()),
                allow_eviction: true,
                request_timeout: Some(Duration::from_millis(200)),
                ..redis("redis://h")
            }),
        ),
        ("redis+unix:///run/r.sock", Target::Redis(redis("redis+unix:///run/r.sock?db=0"))),
        (
            "redis+unix:///run/my%20r.sock?pass=p%26s&namespace=n&user=u&db=3",
            Target::Redis(Redis {
                namespace: Some("n".into()),
                ..redis("redis+unix:///run/my%20r.sock?db=3&user=u&pass=p%26s")
            }),
        ),
        (
            "gaggle+memory://demo?name=a&members=a,b,c",
            Target::Member(memory("a", &["a", "b", "c"])),
        ),
        ("gaggle+memory://demo/?members=a&name=a", Target::Member(memory("a", &["a"]))),
        (
            "gaggle+memory://demo?name=%D1%8F&members=%D1%8F,b+c",
            Target::Member(memory("я", &["я", "b+c"])),
        ),
        (
            "gaggle+memory://my%20demo?name=x&size=5",
            Target::Member(member(Policy::Gaggle, "my demo", "x", Group::Sized(5), Link::Memory)),
        ),
        (
            "raft+redis://127.0.0.1:6379/2?cluster=c/1&name=a&members=a,b",
            Target::Member(Member {
                ..member(
                    Policy::Raft,
                    "c/1",
                    "a",
                    Group::Named(names(&["a", "b"])),
                    Link::Redis { server: server() },
                )
            }),
        ),
        (
            "gaggle+tcp://127.0.0.1:7001?cluster=c&name=a&peers=a@127.0.0.1:7001,b@db:9\
             &heartbeat=20ms&election_timeout=100ms..1s&request_timeout=2s&outside_max=10s",
            Target::Member(Member {
                heartbeat: Some(Duration::from_millis(20)),
                election_timeout: Some((Duration::from_millis(100), Duration::from_secs(1))),
                request_timeout: Some(Duration::from_secs(2)),
                outside_max: Some(Duration::from_secs(10)),
                ..member(Policy::Gaggle, "c", "a", Group::Named(names(&["a", "b"])), tcp(false))
            }),
        ),
        (
            "raft+tcp://localhost:7001?cluster=c&name=b&peers=a@127.0.0.1:7001,b@db:9&insecure=true",
            Target::Member(member(
                Policy::Raft,
                "c",
                "b",
                Group::Named(names(&["a", "b"])),
                tcp(true),
            )),
        ),
    ];
    for (url, expected) in table {
        match parse(url) {
            Ok(target) => assert_eq!(target, expected, "{url}"),
            Err(error) => panic!("{url}: {error}"),
        }
    }
}

#[test]
fn nameless_members_draw_a_name_each() {
    let drawn = || match parse("gaggle+memory://demo?size=5").unwrap() {
        Target::Member(member) => member.name,
        other => panic!("{other:?}"),
    };
    assert_ne!(drawn(), drawn());
}

#[test]
fn wrong_urls_are_answered_with_what_is_wrong() {
    let long = format!("gaggle+memory://d?name={0}&members={0}", "x".repeat(200));
    let table = [
        ("", "invalid URL: relative URL without a base"),
        ("nonsense", "invalid URL: relative URL without a base"),
        ("localhost:6379", "unknown scheme, known are local,"),
        ("http://h", "unknown scheme, known are local,"),
        ("gaggle://demo", "unknown scheme, known are local,"),
        ("rediss://h", "invalid URL: TLS to Redis (rediss) is not supported"),
        ("raft+rediss://h?cluster=c", "invalid URL: TLS to Redis (rediss) is not supported"),
        ("local://h", "invalid URL: nothing may follow the colon"),
        ("local:x", "invalid URL: nothing may follow the colon"),
        ("local:#x", "invalid URL: it has a fragment"),
        ("local:?a=1", "unknown option number 1: local has none"),
        ("redis:", "invalid URL: the host of the Redis is missing"),
        ("redis:///1", "invalid URL: the host of the Redis is missing"),
        ("redis://h?db=1", "unknown option db: redis has queue, "),
        ("redis+unix:", "invalid URL: the path of the socket is missing"),
        ("redis+unix:///", "invalid URL: the path of the socket is missing"),
        ("redis+unix:r.sock", "invalid URL: the path of the socket is missing"),
        ("redis+unix://run/r.sock", "invalid URL: only the path of a socket may follow //"),
        ("redis+unix:///r.sock?db=x", "option db: it is no number of a database"),
        ("redis://h/x", "invalid URL: the path is no number of a database"),
        ("redis://h:99999", "invalid URL: invalid port number"),
        ("redis://h?que=fifo", "unknown option number 1: redis has queue, namespace, "),
        ("redis://h?queue=lifo", "option queue: it is not fifo or none"),
        (
            "redis://h?queue=passing",
            "option queue: passing was removed: write queue=fifo, or leave the option out",
        ),
        ("redis://h?queue=fifo&queue=none", "option queue: it is given twice"),
        ("redis://h?namespace=", "option namespace: it is empty"),
        ("redis://h?namespace=%FF", "option namespace: it is no UTF-8"),
        ("redis://h?allow_eviction=yes", "option allow_eviction: it is not false or true"),
        ("gaggle+memory:", "invalid URL: the cluster's name is missing"),
        ("gaggle+memory://d:1", "invalid URL: only a cluster name may follow //"),
        ("gaggle+memory://d/x", "invalid URL: only a cluster name may follow //"),
        ("gaggle+memory://d", "gaggle+memory needs the option members"),
        ("gaggle+memory://d?members=a", "gaggle+memory needs the option name"),
        ("gaggle+memory://d?name=a&members=b,c", "option name: it is not among the members"),
        ("gaggle+memory://d?name=a&members=a,a", "option members: it has a name twice"),
        ("gaggle+memory://d?name=a&members=a,,b", "option members: it has an empty name"),
        ("gaggle+memory://d?name=a&members=a&size=1", "option size: give either members or size"),
        ("gaggle+memory://d?size=0", "option size: it is no whole number from 1 to 31"),
        ("gaggle+memory://d?size=32", "option size: it is no whole number from 1 to 31"),
        ("gaggle+memory://d?size=many", "option size: it is no whole number from 1 to 31"),
        ("gaggle+memory://d?size=1&cluster=c", "unknown option cluster: gaggle+memory has name, "),
        (
            "gaggle+memory://d?size=1&replicate=at-once",
            "option replicate: was removed: leave it out, a leader replicates at once",
        ),
        ("gaggle+memory://d?size=1&heartbeat=50", "option heartbeat: it is no duration"),
        ("gaggle+memory://d?size=1&heartbeat=0ms", "option heartbeat: it is no duration"),
        ("gaggle+memory://d?size=1&election_timeout=1s", "option election_timeout: it is no range"),
        (
            "gaggle+memory://d?size=1&election_timeout=2s..1s",
            "option election_timeout: it is no range",
        ),
        (&long, "option name: node name is 200 bytes long"),
        ("raft+redis://h?name=a&members=a", "raft+redis needs the option cluster"),
        ("raft+redis://h?cluster=&name=a&members=a", "option cluster: it is empty"),
        ("gaggle+tcp:", "invalid URL: the address:port to listen on is missing"),
        (
            "gaggle+tcp://127.0.0.1?cluster=c",
            "invalid URL: the address:port to listen on is missing",
        ),
        (
            "gaggle+tcp://db.example:1?cluster=c",
            "invalid URL: the address to listen on is no IP address",
        ),
        (
            "gaggle+tcp://0.0.0.0:0?cluster=c&name=a&peers=a@h:1",
            "invalid URL: the address to listen on is beyond loopback",
        ),
        ("redis://u:1?x@h", "invalid URL: an @ stands behind the first /, ? or #: "),
        ("redis://u:pa/ss@h", "invalid URL: an @ stands behind the first /, ? or #: "),
        ("gaggle+redis://u:1#x@h", "invalid URL: an @ stands behind the first /, ? or #: "),
        ("gaggle+tcp://127.0.0.1:1", "gaggle+tcp needs the option cluster"),
        ("gaggle+tcp://127.0.0.1:1?cluster=c&name=a", "gaggle+tcp needs the option peers"),
        ("gaggle+tcp://127.0.0.1:1?cluster=c&peers=a@h:1", "gaggle+tcp needs the option name"),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=h:1",
            "option peers: its entry 1 is not name@host:port",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=a@h",
            "option peers: its entry 1 is not name@host:port",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=a@h:1,a@h:2",
            "option peers: it has a name twice",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=d&peers=a@h:1,b@h:2",
            "option name: it is not among the peers",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&size=3",
            "unknown option size: gaggle+tcp has cluster, ",
        ),
    ];
    for (url, expected) in table {
        let error = parse(url).expect_err(url).to_string();
        assert!(error.starts_with(expected), "{url}: {error}");
        assert!(error.contains("; for example: "), "{url}: {error}");
    }
}

#[test]
fn example_is_of_the_scheme_that_was_meant() {
    let table = [
        ("redis://h:99999", "redis://"),
        ("redsi://h", "redis://"),
        ("rediss://h", "redis://"),
        ("redis+unix:relative", "redis+unix://"),
        ("gaggle+tcp://h:x", "gaggle+tcp://"),
        ("raft+tcp://1:2:3", "raft+tcp://"),
        ("gaggel+tcp://h", "gaggle+tcp://"),
        ("gaggle+udp://h", "gaggle+tcp://"),
        ("raft://h", "raft+memory://"),
        ("raft+redis://h:x", "raft+redis://"),
        ("lokal:", "local:"),
        ("", "local:"),
        ("http://h", "local:"),
    ];
    for (url, expected) in table {
        let error = parse(url).expect_err(url).to_string();
        let (_, example) = error.split_once("; for example: ").expect("there is one");
        assert!(example.starts_with(expected), "{url}: {error}");
    }
}
