//! The fuzz targets: one function each, from bytes to a verdict, where a panic is a find.
//!
//! | target | decodes | compares |
//! |---|---|---|
//! | [`frames`](fn@frames) | bytes for decoders, members or a client | decoded values, re-encoded |
//! | [`lock_table`](fn@lock_table) | commands with stamps | the lock table with its reference |
//!
//! `cargo +nightly fuzz run lock_table` searches; `cargo test` in this folder replays the
//! committed `corpus/` and some random inputs on any toolchain, without the fuzzing engine.
//!
//! Every target is a function of its bytes alone: no clock and no randomness.

pub mod frames;
pub mod lock_table;

/// Feeds decoders, the members of a group, or a client of Redis. See the [module](mod@frames).
///
/// # Panics
///
/// When a decoder panics, allocates out of proportion, or does not give back what its own encoding
/// holds; when a member or a client panics, or a member's table is broken.
pub fn frames(data: &[u8]) {
    frames::Input::decode(data).run();
}

/// Runs a schedule of commands on the lock table and on its reference, and compares them at every
/// step. See the [module](mod@lock_table).
///
/// # Panics
///
/// When they differ.
pub fn lock_table(data: &[u8]) {
    if let Ok(schedule) = lock_table::Schedule::decode(data) {
        schedule.run();
    }
}
