//! The standard library's mutex and atomics.
//!
//! The crate's unit tests replace them by ones with which `shuttle` chooses the next thread around
//! each use.

#[cfg(test)]
mod explored;

#[cfg(not(test))]
#[allow(unused_imports, reason = "each strategy uses a part")]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8},
};

#[cfg(test)]
pub(crate) use explored::{
    AtomicBool, AtomicU8, Mutex, MutexGuard, explore, explore_times, found, switch,
};
