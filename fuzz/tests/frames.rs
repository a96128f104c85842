//! Goal: no bytes make a decoder or a live node panic, allocate out of proportion, or misread.
//! Method: the fuzz target's own function, without the fuzzing engine, on the committed corpus and
//! on random inputs.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod replay;

#[test]
fn no_input_panics() {
    replay::replay("frames", gaggle_fuzz::frames, 2_000, 1_024);
}
