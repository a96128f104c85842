//! Goal: the lock table and its reference agree on the committed corpus and on random schedules.
//! Method: the fuzz target's own function, without the fuzzing engine.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod replay;

#[test]
fn table_agrees_with_its_reference() {
    replay::replay("lock_table", gaggle_fuzz::lock_table, 3_000, 2_048);
}
