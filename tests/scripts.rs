//! Goal: scripts name files that exist. Method: each slice of `scripts/mutants` checks its own.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{fs, path::Path, process::Command};

#[test]
fn each_mutation_slice_has_its_files_and_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = fs::read_to_string(root.join("scripts/mutants")).unwrap();
    let cases = script.split("case \"$slice\" in").nth(1).unwrap();
    let cases = cases.split("\nesac").next().unwrap();
    let labels = cases.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(')'));
    let is_name = |label: &&str| label.chars().all(|letter| letter.is_ascii_lowercase());
    let slices: Vec<_> = labels.map(|(label, _)| label).filter(is_name).collect();
    assert!(slices.contains(&"client"), "{slices:?}");
    for slice in slices {
        let mut check = Command::new("bash");
        let output = check.arg("scripts/mutants").args([slice, "--check"]).current_dir(root);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn judged_mutants_are_of_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let judged = fs::read_to_string(root.join("scripts/mutants.judged")).unwrap();
    for line in judged.lines().filter(|line| !line.starts_with('#')) {
        let file = line.split(':').next().unwrap();
        assert!(root.join(file).is_file(), "{line}");
    }
}
