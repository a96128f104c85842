//! The workloads that `gaggle bench` runs, for the benches and the comparison with other locks.
//!
//! The command line is the binary of this package; its library has no stable API.

pub mod workloads;
