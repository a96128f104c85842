//! Goal: requests have the argument order that the scripts expect.
//! Method: examples.

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

fn words(request: &Request) -> Vec<String> {
    let cmd = encoder().encode(request, at(500), SEEN);
    let words = cmd.args_iter().map(|arg| match arg {
        Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        _ => panic!("no cursor here"),
    });
    words.collect()
}

/// What follows the keys, the process and the options; those are compared here.
fn arguments(request: &Request, script: &Script, keys: &[&str]) -> Vec<String> {
    let words = words(request);
    assert_eq!(words[..2], ["EVALSHA", script.hash()]);
    let count: usize = words[2].parse().unwrap();
    assert_eq!(count, 2 + 4 * keys.len());
    let names = &words[3..3 + count];
    let bucket = keys::bucket(keys[0]);
    assert_eq!(names[..2], [format!("ns:{{b{bucket}}}:t"), format!("ns:{{b{bucket}}}:x")]);
    for (key, parts) in keys.iter().zip(names[2..].chunks(4)) {
        let expected = ["l", "f", "a", "g"].map(|part| format!("ns:{{b{bucket}}}:{part}:{key}"));
        assert_eq!(parts, expected);
    }
    let rest = &words[3 + count..];
    let process = format!("{:032x}", 0xb);
    assert_eq!(rest[..2], [process, format!("30000 {bucket} 3000 65536 65536 ns:p:")]);
    rest[2..].to_vec()
}

fn nonce(number: u128) -> (Nonce, String) {
    (Nonce::from_u128(number), format!("{number:032x}"))
}

fn lock(until: Until, label: Option<&str>, copies: bool) -> Request {
    Request::Command(Command::Lock {
        nonce: nonce(7).0,
        key: "k".into(),
        lease: Duration::from_millis(1500),
        until,
        owner: Arc::new(Owner { host: "any".into(), pid: 1, label: label.map(str::to_owned) }),
        copies,
    })
}

#[test]
fn lock_carries_its_wait_its_copies_and_its_owner() {
    let this = Owner::this_process(None);
    let cases = [
        (Until::Now, None, false, ["0", "-", "-"]),
        (Until::Forever, Some("a b"), true, ["-1", "c", "+a b"]),
        (Until::At(at(700)), Some(""), false, ["200", "-", "+"]),
        // It queues, so it waits for a millisecond at least.
        (Until::At(at(0)), None, false, ["1", "-", "-"]),
    ];
    for (until, label, copies, [wait, flag, end]) in cases {
        let arguments = arguments(&lock(until, label, copies), &script::LOCK, &["k"]);
        let too_late = (SEEN + 30_000_000).to_string();
        assert_eq!(arguments[..5], [&too_late, &nonce(7).1, "1500", wait, flag]);
        assert_eq!(arguments.len(), 6);
        let owner = &arguments[5];
        assert!(owner.starts_with(&format!("{} ", this.pid)), "{owner}");
        assert!(owner.ends_with(&format!(" {end}")), "{owner}");
    }
}

#[test]
fn unlock_extend_and_inspect_name_the_acquisition() {
    let key: Arc<str> = "k".into();
    for (copies, flag) in [(false, "-"), (true, "c")] {
        let unlock = Command::Unlock { nonce: nonce(7).0, key: key.clone(), copies, ours: true };
        let arguments = arguments(&Request::Command(unlock), &script::UNLOCK, &["k"]);
        assert_eq!(arguments, [&nonce(7).1, flag]);
    }
    let (lease, token) = (Duration::from_millis(20), 9);
    let extend = Command::Extend { id: 1, nonce: nonce(7).0, key: key.clone(), token, lease };
    let extended = arguments(&Request::Command(extend), &script::EXTEND, &["k"]);
    assert_eq!(extended, [&nonce(7).1, "20", "9"]);
    let inspect = Request::Command(Command::Inspect { id: 1, key });
    assert!(arguments(&inspect, &script::INSPECT, &["k"]).is_empty());
}

#[test]
fn poll_lists_the_nonces_of_each_key() {
    let bucket = |key: &String| keys::bucket(key) == keys::bucket("k");
    let other = (0..).map(|number| format!("k{number}")).find(bucket).unwrap();
    let poll = Request::Poll(Poll {
        keys: vec!["k".into(), (&*other).into()],
        nonces: vec![vec![nonce(1).0, nonce(2).0], vec![nonce(3).0]],
        holds: vec![None, Some(9), None],
    });
    let arguments = arguments(&poll, &script::POLL, &["k", &other]);
    assert_eq!(arguments, ["2", &nonce(1).1, &nonce(2).1, "1", &nonce(3).1]);
}

#[test]
fn ping_is_no_script() {
    assert_eq!(words(&Request::Ping), ["PING"]);
}
