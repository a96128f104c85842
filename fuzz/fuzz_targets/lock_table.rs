//! `cargo +nightly fuzz run lock_table`: see [`gaggle_fuzz::lock_table`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gaggle_fuzz::lock_table(data));
