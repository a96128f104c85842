//! Random numbers that a forked process does not share with its parent.

use std::{cell::Cell, process};

use rand::distr::{Distribution, StandardUniform};

thread_local! {
    /// The process in which the thread's generator was seeded.
    static SEEDED_IN: Cell<u32> = const { Cell::new(0) };
}

/// Generates a number with the thread's generator. A fork copies that generator, so it gets a new
/// seed from the system before the first number in a process.
pub(crate) fn unshared_random<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    let here = process::id();
    if SEEDED_IN.replace(here) != here {
        rand::rng().reseed().expect("the system has random numbers");
    }
    rand::random()
}
