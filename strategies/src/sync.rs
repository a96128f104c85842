//! The mutex and the atomics by which threads decide something between them.
//!
//! They are the standard library's. The crate's own unit tests put others in their place that let
//! `shuttle` decide, around each use, which thread runs next; outside of such a test they are the same.

#[cfg(test)]
mod explored;
#[cfg(test)]
mod interleavings;

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
