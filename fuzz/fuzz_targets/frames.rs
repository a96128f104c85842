//! `cargo +nightly fuzz run frames`: see [`gaggle_fuzz::frames`].
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gaggle_fuzz::frames(data));

// A plain build has no fuzzing engine: the tests of this package replay the corpus.
#[cfg(not(fuzzing))]
fn main() {}
