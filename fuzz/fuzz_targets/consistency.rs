//! `cargo +nightly fuzz run consistency`: see [`gaggle_fuzz::consistency`].
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gaggle_fuzz::consistency(data));

// A plain build has no fuzzing engine: the tests of this package replay the corpus.
#[cfg(not(fuzzing))]
fn main() {}
