//! What the benches run on, here too.
pub(crate) use self::common::{Cluster, Over, redis};

#[path = "../../../cli/benches/common/mod.rs"]
mod common;
