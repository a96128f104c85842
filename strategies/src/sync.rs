//! The mutex of what threads share.
//!
//! It is the standard library's. The crate's own unit tests put one in its place that lets
//! `shuttle` decide, around each lock, which thread runs next; outside of such a test it is the same.

#[cfg(test)]
mod explored;
#[cfg(test)]
mod interleavings;

#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(test)]
pub(crate) use explored::{Mutex, MutexGuard, explore, found};
