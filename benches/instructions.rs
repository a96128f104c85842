//! How many instructions the pure paths take, against what they took before: a guard that no load
//! on the machine disturbs.
//!
//! ```text
//! cargo run --example instructions -- check
//! cargo run --example instructions -- renew
//! ```
//!
//! Each path runs in a process of its own under valgrind's callgrind, which counts what happens
//! within `measured` alone. The counts stand in `benches/instructions.txt`. They are those of the
//! profile that the tests are built with, and of one compiler: renew them when it changes.
#![allow(clippy::unwrap_used, reason = "a figure that cannot be taken must not be compared")]

mod table;

use std::{
    collections::BTreeMap, fmt::Write, fs, hint::black_box, process::Command, sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use gaggle::{
    Capabilities, Clock, Error, Inspection, KeyedMutex, Lock, LockOptions, Locker,
    strategies::{clock::TokioClock, implement::LossWatch},
};
use metrics_util::debugging::DebuggingRecorder;
use table::Path;

/// How much more, or less, is a change: allocators and hashes of addresses differ by less.
const TOLERANCE: f64 = 0.05;
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
/// The build directory's own name.
const FUNCTION: &str = "*instructions*measured*";

/// Prepares a path.
type Prepare = fn() -> Path;

const PATHS: [(&str, Prepare); 8] = [
    ("table: lock and unlock", || table::pairs(0)),
    ("table: lock and unlock beside 10,000 keys", || table::pairs(10_000)),
    ("table: queue behind a holder", || table::queue(1000)),
    ("table: unlock and hand-off", || table::hand_off(1000)),
    ("table: snapshot and restore, a key", || table::snapshot(500)),
    ("table: end leases, a key", || table::expire(500)),
    ("url: parse", url),
    ("metrics: a grant and an unlock", metrics),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["check"] => check(),
        ["renew"] => fs::write(BASELINE, shown(&count_all())).unwrap(),
        ["count", path] => {
            let (_, prepare) = PATHS.iter().find(|(name, _)| name == path).unwrap();
            let (mut path, steps) = prepare();
            measured(&mut *path);
            println!("{steps}");
        }
        _ => {
            eprintln!("say check or renew");
            std::process::exit(2);
        }
    }
}

/// The function whose instructions callgrind counts.
#[inline(never)]
fn measured(path: &mut dyn FnMut()) {
    path();
}

fn check() {
    let stored = fs::read_to_string(BASELINE).unwrap();
    let stored: BTreeMap<&str, f64> = stored
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, count)| (name.trim(), count.parse().unwrap()))
        .collect();
    let mut changed = Vec::new();
    for (name, count) in count_all() {
        let before = stored.get(name).copied().unwrap_or(0.0);
        let ratio = count / before;
        println!("{name:<44} {before:>10.0} {count:>10.0} {:>+7.1} %", (ratio - 1.0) * 100.0);
        if !((1.0 - TOLERANCE)..=(1.0 + TOLERANCE)).contains(&ratio) {
            changed.push(name);
        }
    }
    if !changed.is_empty() {
        eprintln!(
            "{}: more than {:.0} % from benches/instructions.txt. Fewer, or more for a reason? Then \
             renew it, and say why in the commit:\n  \
             cargo run --example instructions -- renew",
            changed.join("; "),
            TOLERANCE * 100.0,
        );
        std::process::exit(1);
    }
}

fn shown(counts: &[(&str, f64)]) -> String {
    let mut text = String::new();
    for (name, count) in counts {
        writeln!(text, "{name:<44} {count:>10.0}").unwrap();
    }
    text
}

/// Instructions a step of every path; two at a time, as most machines have two cores.
fn count_all() -> Vec<(&'static str, f64)> {
    let halves = PATHS.chunks(PATHS.len().div_ceil(2));
    std::thread::scope(|scope| {
        let count = |part: &'static [(&'static str, Prepare)]| {
            scope.spawn(|| part.iter().map(|(name, _)| (*name, count(name))).collect::<Vec<_>>())
        };
        let running: Vec<_> = halves.map(count).collect();
        running.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

fn count(path: &str) -> f64 {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={FUNCTION}"))
        .arg(program)
        .args(["count", path])
        .output()
        .unwrap_or_else(|error| panic!("valgrind: {error}; ./test installs it"));
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected :")).map(|(_, n)| n);
    let collected: f64 = collected.unwrap_or_else(|| panic!("{said}")).trim().parse().unwrap();
    assert!(collected > 0.0, "{path}: callgrind did not see {FUNCTION}");
    let steps: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    collected / steps
}

fn url() -> Path {
    let path = || {
        for url in [
            "redis://user:password@127.0.0.1:6379/0?queue=fifo&namespace=orders",
            "gaggle+tcp://127.0.0.1:7001?cluster=orders&name=a&heartbeat=50ms\
             &peers=a@127.0.0.1:7001,b@127.0.0.1:7002,c@127.0.0.1:7003",
        ] {
            black_box(gaggle::Url::parse(black_box(url))).unwrap();
        }
    };
    (Box::new(path), 2)
}

/// A strategy that does nothing: the steps are those of a `Locker`, which counts and measures.
///
/// Random nonces and `BootClock` read the time through the vDSO, which valgrind unmaps.
struct Idle(Arc<TokioClock>);

#[async_trait]
impl KeyedMutex for Idle {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        let deadline = self.0.now().after(options.get_duration());
        Ok(Lock::new(key, table::spread(0), 1, Some(deadline)))
    }

    async fn unlock(&self, _: &Lock) -> Result<(), Error> {
        Ok(())
    }

    async fn extend(&self, lock: &Lock, _: Duration) -> Result<Lock, Error> {
        Ok(lock.clone())
    }

    async fn inspect(&self, _: &str) -> Result<Option<Inspection>, Error> {
        Ok(None)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none("idle")
    }

    async fn close(&self) {}

    fn release(&self, _: &Lock) {}

    fn watch(&self, _: &Lock) -> LossWatch {
        LossWatch::never()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clone()
    }
}

fn metrics() -> Path {
    const PAIRS: u64 = 500;
    DebuggingRecorder::new().install().expect("no other recorder is installed");
    let locker = Locker::new(Idle(Arc::new(TokioClock::new())));
    let path = move || {
        for _ in 0..PAIRS {
            let guard = locker.lock("orders/42").into_future().now_or_never();
            let guard = guard.expect("it does not wait").expect("it grants every key");
            guard.unlock().now_or_never().expect("it does not wait").expect("it holds the key");
        }
    };
    (Box::new(path), PAIRS)
}
