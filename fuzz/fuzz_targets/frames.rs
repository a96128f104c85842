//! `cargo +nightly fuzz run frames`: see [`gaggle_fuzz::frames`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gaggle_fuzz::frames(data));
