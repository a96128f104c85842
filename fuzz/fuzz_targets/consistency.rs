//! `cargo +nightly fuzz run consistency`: see [`gaggle_fuzz::consistency`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gaggle_fuzz::consistency(data));
