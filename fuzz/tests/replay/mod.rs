//! Runs one target on its committed corpus and on random inputs.

use std::{fs, io::Write as _, path::Path, time::Instant};

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Runs `target`, called `name`, on every committed input, and on `random` random ones of at most
/// `bytes_max` bytes. `GAGGLE_FUZZ_RUNS` asks for another number of them.
///
/// A panic names its input; a random one is replayed by `GAGGLE_SEED`, which also writes it
/// to `artifacts/`.
pub(crate) fn replay(name: &str, target: fn(&[u8]), random: usize, bytes_max: usize) {
    let began = Instant::now();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(&corpus)
        .expect("every target has a corpus")
        .map(|file| file.expect("it can be listed").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {name} is empty");
    for file in &files {
        let _on_panic =
            OnPanic(format!("input: cargo +nightly fuzz run {name} {}", file.display()));
        target(&fs::read(file).expect("it can be read"));
    }
    let runs = number("GAGGLE_FUZZ_RUNS").map_or(random, |runs| runs as usize);
    let first = number("GAGGLE_SEED");
    let base = first.unwrap_or_else(rand::random);
    // Past the test harness, which keeps what a test that passes has printed to itself.
    let line = format!(
        "{name}: {} committed inputs, {runs} random ones from seed {base}: GAGGLE_SEED={base} and the \
         following, cargo test -p gaggle-fuzz --test {name}\n",
        files.len()
    );
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is writable");
    let runs = if first.is_some() { runs.min(1) } else { runs };
    for seed in (0..runs as u64).map(|run| base.wrapping_add(run)) {
        let _on_panic =
            OnPanic(format!("replay: GAGGLE_SEED={seed} cargo test -p gaggle-fuzz --test {name}"));
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = vec![0; rng.random_range(0..=bytes_max)];
        rng.fill(&mut bytes[..]);
        if first.is_some() {
            // For the corpus, and for `cargo fuzz tmin`.
            let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(name);
            fs::create_dir_all(&kept).expect("a folder can be made");
            fs::write(kept.join(format!("seed-{seed}")), &bytes).expect("a file can be written");
        }
        target(&bytes);
    }
    let (files, took) = (files.len(), began.elapsed());
    println!("{name}: {files} committed inputs and {runs} random ones from seed {base}, {took:?}");
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Says how to see it again, if dropped while panicking.
struct OnPanic(String);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
