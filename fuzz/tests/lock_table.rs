//! Goal: the lock table and its reference agree on the committed corpus and on random schedules.
//! Method: the fuzz target's own function, without the fuzzing engine.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod replay;

#[test]
fn the_table_does_what_its_reference_does() {
    replay::replay("lock_table", gaggle_fuzz::lock_table, 3_000, 2_048);
}
