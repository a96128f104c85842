//! What the benches run on, here too.
pub(crate) use self::common::{Cluster, Over, redis};

#[path = "../../common/mod.rs"]
mod common;
