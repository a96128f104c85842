//! Writes bytes that decoders take into a folder, for a fuzzer to begin with:
//! `cargo run --example seeds -- corpus/frames`.

use std::{env, fs, path::PathBuf};

const URLS: [&str; 5] = [
    "local:",
    "redis://u:p@127.0.0.1:6379/0?queue=fifo&namespace=gaggle&request_timeout=5s",
    "gaggle+memory://demo?name=a&members=a,b,c&election_timeout=150ms..300ms",
    "raft+redis://127.0.0.1:6379/0?cluster=demo&name=a&members=a,b,c&heartbeat=50ms",
    "raft+tcp://127.0.0.1:7001?cluster=d%20&name=a&peers=a@127.0.0.1:7001,b@host:7002&insecure=true",
];

fn main() -> std::io::Result<()> {
    let folder: PathBuf = env::args_os().nth(1).map_or_else(|| "corpus/frames".into(), Into::into);
    fs::create_dir_all(&folder)?;
    let seeds = [
        br#"{"key":"k","nonce":"00000000-0000-0000-0000-0000000000aa","fencing_token":7}"#.to_vec(),
        [&b"\x01k\x10"[..], &[7; 16], &[9]].concat(),
    ];
    let decoders = seeds.into_iter().map(|seed| [vec![0], seed].concat());
    let urls = URLS.iter().map(|url| [b"\x02", url.as_bytes()].concat());
    // Nothing is nearer to a hostile act than any other: bytes that repeat begin everywhere.
    let clusters =
        (0..16_u8).map(|n| (0..400_u32).map(|at| (at * 37 + 1) as u8 ^ (n * 16)).collect());
    let clusters = clusters.map(|acts: Vec<u8>| [vec![1], acts].concat());
    for (number, seed) in decoders.chain(urls).chain(clusters).enumerate() {
        fs::write(folder.join(format!("seed-{number:03}")), seed)?;
    }
    Ok(())
}
