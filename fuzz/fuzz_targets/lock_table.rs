//! `cargo +nightly fuzz run lock_table`: see [`gaggle_fuzz::lock_table`].
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gaggle_fuzz::lock_table(data));

// A plain build has no fuzzing engine: the tests of this package replay the corpus.
#[cfg(not(fuzzing))]
fn main() {}
