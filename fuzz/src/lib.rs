//! What the fuzzer runs: one function for each target, from bytes to a verdict. A panic is a find.
//!
//! | target | decodes | compares |
//! |---|---|---|
//! | [`lock_table`](fn@lock_table) | commands with stamps | the lock table with its reference |
//!
//! `cargo +nightly fuzz run lock_table` searches; `cargo test` in this folder replays what is
//! committed in `corpus/` and some random inputs on any toolchain, without the fuzzing engine.
//!
//! Every target is a function of its bytes alone: no clock, no randomness of its own.

pub mod lock_table;

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
