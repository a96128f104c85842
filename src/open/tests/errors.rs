//! Goal: an invalid URL gets an error that says what was expected, with an example of the scheme
//! that was meant. Method: a table of URLs with the beginning of each error.

use super::Url;

#[test]
fn invalid_urls_get_an_error_that_says_why() {
    let long = format!("gaggle+memory://d?name={0}&members={0}", "x".repeat(200));
    let table = [
        ("", "invalid URL: the text is empty; for example: redis://"),
        ("nonsense", "invalid URL: the scheme is missing; for example: redis://"),
        ("127.0.0.1:6379", "invalid URL: the scheme is missing; for example: redis://"),
        ("localhost:6379", "invalid URL: the scheme is missing; for example: redis://"),
        ("amqp://h", "unknown scheme, known are redis, rediss,"),
        ("http://h/v1/", "invalid URL: only options may follow the address"),
        ("http://:", "invalid URL: "),
        ("http://u:p@h", "invalid URL: a token has no user: write :TOKEN@host"),
        ("https://u@h", "invalid URL: a token has no user: write :TOKEN@host"),
        ("http://:%FF@h", "invalid URL: the token is not valid UTF-8"),
        ("http://:t@h?token_file=x", "option token_file: the URL has a token already"),
        ("http://h?token_file=", "option token_file: expected a text that is not empty"),
        ("http://h?tls_ca=x", "unknown option tls_ca: http has token_file, request_timeout; "),
        ("http://a,b:x", "invalid URL: a node must be host or host:port"),
        ("http://a,", "invalid URL: a node must be host or host:port"),
        ("http://a,:t@b", "invalid URL: a login stands once, before the first host"),
        ("http://0.0.0.0:7080", "invalid URL: 0.0.0.0 and :: are not addresses to connect to"),
        ("https://a,[::]", "invalid URL: 0.0.0.0 and :: are not addresses to connect to"),
        ("http+unix:///", "invalid URL: the path of the socket is missing"),
        ("http+unix://run/s", "invalid URL: only the path of a socket may follow //"),
        ("https+unix:///s", "unknown scheme, known are redis, rediss,"),
        ("gaggle://demo", "unknown scheme, known are redis, rediss,"),
        ("raft+rediss://h?cluster=c", "invalid URL: TLS to the Redis of a channel (rediss) is not"),
        ("rediss+unix:///r.sock", "invalid URL: a Unix socket has no TLS: write redis+unix"),
        ("redisss://h", "unknown scheme, known are redis, rediss,"),
        ("redis://a,b", "invalid URL: expected one host"),
        ("redis://u@h", "invalid URL: a user needs a password: user:password@host; "),
        ("redis://u:@h", "invalid URL: a user needs a password"),
        ("rediss+sentinel://u@a,b/m", "invalid URL: a user needs a password"),
        ("redis+cluster://u@a,b", "invalid URL: a user needs a password"),
        ("gaggle+redis://u@h?cluster=c&name=a&members=a", "invalid URL: a user needs a password"),
        ("redis+unix:///s?user=u", "option user: a user needs a password: give pass"),
        ("redis://0.0.0.0", "invalid URL: 0.0.0.0 and :: are not addresses to connect to"),
        ("redis://[0::0]:6379", "invalid URL: 0.0.0.0 and :: are not addresses to connect to"),
        ("raft+redis://[::]?cluster=c", "invalid URL: 0.0.0.0 and :: are not addresses"),
        ("redis://u:%FF@h", "invalid URL: the user or the password is not valid UTF-8"),
        ("rediss://%FF:p@h", "invalid URL: the user or the password is not valid UTF-8"),
        ("redis://%FF@h", "invalid URL: the user or the password is not valid UTF-8"),
        ("redis+sentinel://a,b", "invalid URL: the path must be /MASTER or"),
        ("redis+sentinel://a,,b/m", "invalid URL: a Sentinel must be host or host:port"),
        ("redis+sentinel://a,b:x/m", "invalid URL: a Sentinel must be host or host:port"),
        ("redis+sentinel://a/m/x", "invalid URL: the path must be a database number"),
        ("redis+sentinel://a/m?sentinel_user=u", "redis+sentinel needs the option sentinel_pass"),
        ("redis+cluster://", "invalid URL: "),
        ("redis+cluster://a,", "invalid URL: a node of the Cluster must be host or"),
        ("redis+cluster://a,\n", "invalid URL: a node of the Cluster must be host or"),
        ("redis+cluster://a,b/m", "invalid URL: the path must be a database number"),
        ("redis+cluster://a,b/1", "invalid URL: a Cluster has only the database 0"),
        ("redis+cluster://u:p@a,u:p@b", "invalid URL: a login stands once, before the first host"),
        ("rediss+sentinel://u:p@a,u:p@b/m", "invalid URL: a login stands once, before the first"),
        ("redis+sentinel://a:1,u:p@b/m", "invalid URL: a login stands once, before the first"),
        ("redis+cluster://a?db=0", "unknown option db: redis+cluster has queue, "),
        ("redis://h?tls_ca=x", "unknown option tls_ca: redis has queue, "),
        (
            "rediss://h?tls_name=https://h",
            "option tls_name: expected a DNS name or an IP address; ",
        ),
        ("rediss://h?tls_cert=x", "option tls_key: tls_cert needs this option"),
        ("rediss://h?tls_key=x", "option tls_cert: tls_key needs this option"),
        ("local://h", "invalid URL: nothing may follow the colon"),
        ("local:x", "invalid URL: nothing may follow the colon"),
        ("local:#x", "invalid URL: a fragment (#) has no meaning here"),
        ("local:?a=1", "invalid URL: nothing may follow the colon"),
        ("redis:", "invalid URL: the host of the Redis is missing"),
        ("redis:///1", "invalid URL: the host of the Redis is missing"),
        ("redis://h?db=1", "unknown option db: redis has queue, "),
        ("redis+unix:", "invalid URL: the path of the socket is missing"),
        ("redis+unix:///", "invalid URL: the path of the socket is missing"),
        ("redis+unix:r.sock", "invalid URL: the path of the socket is missing"),
        ("redis+unix://run/r.sock", "invalid URL: only the path of a socket may follow //"),
        ("redis+unix:///r.sock?db=x", "option db: expected a database number, not \"x\""),
        ("redis://h/x", "invalid URL: the path must be a database number"),
        ("redis://h:99999", "invalid URL: invalid port number"),
        ("redis://h?que=fifo", "unknown option que: redis has queue, namespace, "),
        ("redis://h?password=x&y=z", "unknown option password: redis has queue, namespace, "),
        ("redis://u:p@h?timeout=1", "unknown option timeout: redis has queue, "),
        ("redis://h?queue=none&que@=x", "invalid URL: an @ stands behind the first"),
        ("redis://h?queue=none&q+=x", "unknown option number 2 of the URL: redis has queue, "),
        ("redis://h?queue=lifo", "option queue: expected fifo or none, not \"lifo\""),
        ("redis://h?queue=fifo&queue=none", "option queue: given twice"),
        ("redis://h?namespace=", "option namespace: expected a text that is not empty"),
        ("redis://h?namespace=%FF", "option namespace: not valid UTF-8"),
        (
            "redis://h?allow_eviction=yes",
            "option allow_eviction: expected false or true, not \"yes\"",
        ),
        ("gaggle+memory:", "invalid URL: the cluster's name is missing"),
        ("gaggle+memory://d:1", "invalid URL: only a cluster name may follow //"),
        ("gaggle+memory://d/x", "invalid URL: only a cluster name may follow //"),
        ("gaggle+memory://d", "gaggle+memory needs the option members"),
        ("gaggle+memory://d?members=a", "gaggle+memory needs the option name"),
        ("gaggle+memory://d?name=a&members=b,c", "option name: must be one of the members"),
        ("gaggle+memory://d?name=a&members=a,a", "option members: a name is given twice"),
        ("gaggle+memory://d?name=a&members=a, a", "option members: a name is given twice"),
        ("gaggle+memory://d?name=a&members=a,,b", "option members: one of the names is empty"),
        ("gaggle+memory://d?name=a&members=a, ,b", "option members: one of the names is empty"),
        ("gaggle+memory://d?name=%20&members=a", "option name: node name is 0 bytes long"),
        (
            "gaggle+memory://d?name=a&members=a&cluster=c",
            "unknown option cluster: gaggle+memory has name, ",
        ),
        (
            "gaggle+memory://d?name=a&members=a&heartbeat=50",
            "option heartbeat: expected a duration of more than 0, such as",
        ),
        (
            "redis://h?request_timeout=0ms",
            "option request_timeout: expected a duration of more than 0, such as 500ms",
        ),
        (
            "redis://h?request_timeout=2x",
            "option request_timeout: expected a duration of more than 0, such as 500ms, 2s or 5m, \
             not \"2x\"; for",
        ),
        (
            "gaggle+memory://d?name=a&members=a&election_timeout=1s",
            "option election_timeout: expected a range",
        ),
        (
            "gaggle+memory://d?name=a&members=a&election_timeout=2s..1s",
            "option election_timeout: expected a range of durations such as 150ms..300ms, not \
             \"2s..1s",
        ),
        (&long, "option name: node name is 200 bytes long"),
        ("raft+redis://h?name=a&members=a", "raft+redis needs the option cluster"),
        (
            "raft+redis://h?cluster=&name=a&members=a",
            "option cluster: expected a text that is not empty",
        ),
        ("gaggle+tcp:", "invalid URL: the address:port to listen on is missing"),
        (
            "gaggle+tcp://127.0.0.1?cluster=c",
            "invalid URL: the address:port to listen on is missing",
        ),
        (
            "gaggle+tcp://db.example:1?cluster=c",
            "invalid URL: the address to listen on must be an IP address or localhost",
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
            "option peers: entry 1 must be name@host:port",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=a@h",
            "option peers: entry 1 must be name@host:port",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=a@h:1,b@h h:2",
            "option peers: entry 2 must be name@host:port",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=a@h:1,b@h:0",
            "option peers: entry 2 must be name@host:port",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=a@h:1,a@h:2",
            "option peers: a name is given twice",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=d&peers=a@h:1,b@h:2",
            "option name: must be one of the peers",
        ),
        (
            "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&members=a",
            "unknown option members: gaggle+tcp has cluster, ",
        ),
    ];
    for (url, expected) in table {
        let error = Url::parse(url).expect_err(url).to_string();
        assert!(error.starts_with(expected), "{url}: {error}");
        assert!(error.contains("; for example: "), "{url}: {error}");
    }
}

#[test]
fn example_is_of_the_scheme_that_was_meant() {
    let table = [
        ("redis://h:99999", "redis://"),
        ("redsi://h", "redis://"),
        ("rediss://h?x", "rediss://"),
        ("redis://h?tls_ca=x", "rediss://"),
        ("redis+sentinel://a/m?tls_name=x", "rediss+sentinel://"),
        ("redis+cluster://a?tls_key=x", "rediss+cluster://"),
        ("redis+unix:relative", "redis+unix://"),
        ("gaggle+tcp://h:x", "gaggle+tcp://"),
        ("raft+tcp://1:2:3", "raft+tcp://"),
        ("gaggel+tcp://h", "gaggle+tcp://"),
        ("gaggle+udp://h", "gaggle+tcp://"),
        ("raft://h", "raft+memory://"),
        ("raft+redis://h:x", "raft+redis://"),
        ("lokal:", "local:"),
        ("", "redis://"),
        ("localhost:6379", "redis://"),
        ("amqp://h", "redis://"),
        ("http://h?x", "http://"),
        ("http://h?tls_name=x", "https://"),
        ("htp+unix:///s", "http+unix://"),
    ];
    for (url, expected) in table {
        let error = Url::parse(url).expect_err(url).to_string();
        let (_, example) = error.split_once("; for example: ").expect("there is one");
        assert!(example.starts_with(expected), "{url}: {error}");
    }
}

#[test]
fn errors_of_tls_options_show_a_url_with_tls() {
    let peers = "cluster=c&name=a&peers=a@10.0.0.1:1";
    for (rest, problem) in [
        ("127.0.0.1:1?tls_ca=ca", "needs the option tls_cert"),
        ("127.0.0.1:1?tls_cert=c&tls_key=", "needs the option tls_ca"),
        ("127.0.0.1:1?secret_file=", "option secret_file: expected a text that is not"),
        ("127.0.0.1:1?secret_file=s&tls_ca=ca", "option secret_file: give either"),
        ("127.0.0.1:1?tls_ca=a&tls_ca=a", "option tls_ca: given twice"),
        ("10.0.0.1:1?heartbeat=50ms", "is beyond loopback"),
    ] {
        for strategy in ["gaggle", "raft"] {
            let url = format!("{strategy}+tcp://{rest}&{peers}");
            let error = Url::parse(&url).expect_err(&url).to_string();
            let (text, example) = error.split_once("; for example: ").expect("there is one");
            assert!(text.contains(problem), "{url}: {error}");
            let shown = example.starts_with(&format!("{strategy}+tcp://10.0.0.1:7001?"));
            assert!(shown && example.contains("&tls_key="), "{url}: {error}");
        }
    }
}
