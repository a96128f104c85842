//! The machine, and what its processes use of it.

use std::{fs, path::Path, process::Command};

use tokio::runtime::{Builder, Runtime};

/// Two threads: as many as the machine that the documents speak of has cores.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// When, where, and with which versions.
pub(crate) fn describe() -> Vec<(String, String)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kib = |text: &str| text.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    let memory = line("/proc/meminfo", "MemTotal:").and_then(|line| kib(&line)).unwrap_or(0);
    let model = line("/proc/cpuinfo", "model name")
        .and_then(|line| line.split_once(':').map(|(_, name)| name.trim().to_owned()))
        .unwrap_or_default();
    let all = [
        ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("machine", format!("{cores} cores ({model}), {} GiB", memory.div_ceil(1 << 20))),
        ("kernel", said("uname", &["-sr"])),
        ("load before", fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()),
        ("gaggle", said("git", &["describe", "--always", "--dirty", "--abbrev=10"])),
        ("rustc", said("rustc", &["--version"])),
        ("build", "Cargo's default release profile".into()),
        ("redis", word_with(&said("redis-server", &["--version"]), "v=")),
        ("postgresql", last(&said(&crate::servers::postgres_tool("postgres"), &["--version"]))),
        ("etcd", last(said("etcd", &["--version"]).lines().next().unwrap_or_default())),
        ("crates", crates()),
    ];
    all.map(|(what, value)| (what.to_owned(), value)).to_vec()
}

/// The competitors' versions, from the lock file that was built with.
fn crates() -> String {
    let lock = include_str!("../Cargo.lock");
    // If a dependency uses an older version too, ours comes last.
    let mut found = Vec::new();
    let names = ["rslock", "tokio-postgres", "etcd-client", "dashmap"];
    for name in names {
        let entry = format!("name = \"{name}\"\nversion = \"");
        let version = lock.rsplit_once(&entry).and_then(|(_, rest)| rest.split('"').next());
        found.push(format!("{name} {}", version.unwrap_or("?")));
    }
    found.join(", ")
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| "?".into(), |output| text(&output.stdout))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn word_with(text: &str, prefix: &str) -> String {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix(prefix));
    word.unwrap_or("?").to_owned()
}

fn last(text: &str) -> String {
    let mut words = text.split_whitespace();
    words.find(|word| word.starts_with(|c: char| c.is_ascii_digit())).unwrap_or("?").into()
}

fn line(path: impl AsRef<Path>, start: &str) -> Option<String> {
    let all = fs::read_to_string(path).ok()?;
    all.lines().find(|line| line.starts_with(start)).map(str::to_owned)
}

/// The resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> f64 {
    let line = line("/proc/self/status", "VmRSS:").unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|number| number.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}

/// The CPU time of a process in seconds, by the scheduler's own accounts of its threads.
pub(crate) fn used_s(process: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: fs::DirEntry| {
        // In nanoseconds: ticks of 10 ms are too coarse.
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok())
    };
    threads.filter_map(of_thread).sum::<f64>() / 1e9
}
