//! Goal: a LOCK carries its wait, its copies and its owner. Method: examples; the simulator and the
//! tests on a server run the scripts with all requests.

use std::time::Duration;

use redis::Arg;

use super::*;

const SEEN: u64 = 1_000_000;

fn encoder() -> Encoder {
    let options = RedisOptions::new("redis://here").namespace("ns");
    Encoder::new(&options, Nonce::from_u128(0xb))
}

fn at(ms: u64) -> Instant {
    Instant::from_origin(Duration::from_millis(ms))
}

/// The words of a list.
fn encoded(list: &[Request]) -> Vec<String> {
    let cmd = encoder().encode(list, at(500), SEEN);
    let words = cmd.args_iter().map(|arg| match arg {
        Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        _ => panic!("no cursor here"),
    });
    words.collect()
}

/// What follows the keys and the options.
fn arguments(list: &[Request]) -> Vec<String> {
    let words = encoded(list);
    let keys: usize = words[2].parse().unwrap();
    words[3 + keys + 1..].to_vec()
}

fn lock(until: Until, label: Option<&str>, copies: bool) -> Request {
    Request::Command(Command::Lock {
        nonce: Nonce::from_u128(7),
        key: "k".into(),
        lease: Duration::from_millis(1500),
        until,
        owner: Arc::new(Owner { host: "any".into(), pid: 1, label: label.map(str::to_owned) }),
        copies,
    })
}

/// The server runs the requests of a connection in order.
#[test]
fn wait_for_replicas_delays_signs_of_life_by_a_quarter() {
    for (timeout, ttl, wait) in
        [(1_000, 3_000, "500"), (8_000, 3_000, "750"), (8_000, 100, "25"), (1, 100, "1")]
    {
        let [timeout, ttl] = [timeout, ttl].map(Duration::from_millis);
        let options = RedisOptions::new("redis://here").replicas(2);
        let options = options.request_timeout(timeout).waiter_ttl(ttl);
        let encoder = Encoder::new(&options, Nonce::from_u128(0xb));
        let cmd = encoder.encode(&[Request::Wait], at(0), SEEN);
        let words: Vec<_> = cmd.args_iter().collect();
        let [Arg::Simple(b"WAIT"), Arg::Simple(b"2"), Arg::Simple(time)] = words[..] else {
            panic!("{timeout:?}")
        };
        assert_eq!(time, wait.as_bytes());
    }
}

#[test]
fn lock_carries_wait_copies_and_owner() {
    let this = Owner::this_process(None);
    let cases = [
        (Until::Now, None, false, ["0", "-", "-"]),
        (Until::Forever, Some("a b"), true, ["-1", "c", "+a b"]),
        (Until::At(at(700)), Some(""), false, ["200", "-", "+"]),
        // The LOCK queues, so it waits for a millisecond at least.
        (Until::At(at(0)), None, false, ["1", "-", "-"]),
    ];
    for (until, label, copies, [wait, flag, end]) in cases {
        let arguments = arguments(&[lock(until, label, copies)]);
        let too_late = (SEEN + 30_000_000).to_string();
        assert_eq!(arguments[..5], [&*too_late, &format!("{:032x}", 7), "1500", wait, flag]);
        assert_eq!(arguments.len(), 6);
        let owner = &arguments[5];
        assert!(owner.starts_with(&format!("{} ", this.pid)), "{owner}");
        assert!(owner.ends_with(&format!(" {end}")), "{owner}");
    }
}

#[test]
fn requests_of_a_list_have_a_fixed_stride() {
    let (nonce, key) = (Nonce::from_u128(7), Arc::<str>::from("k"));
    let unlock = |forced: Option<&str>| {
        let (key, forced) = (key.clone(), forced.map(Arc::from));
        Request::Command(Command::Unlock { nonce, key, token: 9, copies: true, forced })
    };
    let extend = Command::Extend {
        id: 1,
        nonce,
        key: key.clone(),
        token: 9,
        lease: Duration::from_millis(1500),
    };
    let poll = |count: u128| {
        let check = |number| Check { nonce: Nonce::from_u128(number), token: None };
        Request::Poll(Poll { key: key.clone(), checks: (0..count).map(check).collect() })
    };
    let lists = [
        (vec![lock(Until::Now, None, false), lock(Until::Forever, Some("a b"), true)], 6),
        (vec![unlock(None), unlock(Some("it hangs"))], 4),
        (vec![Request::Command(extend); 2], 3),
        (vec![poll(0), poll(3)], 1),
        (vec![Request::Command(Command::Inspect { id: 1, key: key.clone() }); 2], 0),
    ];
    for (list, stride) in lists {
        let words = encoded(&list);
        assert_eq!(words[..3], ["EVALSHA", list[0].verb().unwrap().hash(), "12"]);
        assert!(words[3..9].iter().all(|name| name.starts_with("ns:{b")), "{words:?}");
        assert_eq!(words[3..9], words[9..15]);
        assert_eq!(arguments(&list).len(), 2 * stride, "{words:?}");
    }
}
