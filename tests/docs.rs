//! Goal: the figures that the README shows are those that the harness wrote.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{fs, path::Path};

#[test]
fn the_readme_shows_what_benches_peers_run_wrote() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let written = fs::read_to_string(root.join("docs/benchmarks/readme.md")).unwrap();
    assert!(written.lines().count() > 20, "{written}");
    assert!(readme.contains(&written), "renew it: gaggle-peers redraw docs/benchmarks");
}
