//! The workloads of `gaggle bench`, for the benches and the comparison with other locks.
//!
//! The command line is the binary of this package. This library has no stable API.

pub mod workloads;

/// The version of this package, with its commit where that is known.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("GAGGLE_COMMIT"));
