//! The laboratory of Gaggle: what the product crates are proven with.
//!
//! - [`simulator`]: whole deployments of the code that ships, in virtual time, under faults.
//! - [`redis_server`]: a Redis in this process that runs the scripts that ship.
//! - [`history`]: the checker of recorded histories.
//! - [`ReferenceTable`]: the lock table written a second time, slow and simple.
//!
//! The laboratory is a user of public interfaces: no product crate knows of it.

pub mod history;
pub mod redis_server;
mod reference_table;
pub mod simulator;

pub use self::{redis_server::SimulatedRedis, reference_table::ReferenceTable};
