//! Goal: all strategies give the same replies one call after another, and what they may at once.
//! Method: the fuzz target's own function, without the fuzzing engine.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod replay;

#[test]
fn strategies_agree() {
    replay::replay("consistency", gaggle_fuzz::consistency, 200, 400);
}
