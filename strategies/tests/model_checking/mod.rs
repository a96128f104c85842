//! The model: three nodes of an abstract Raft, clients with clocks of their own, and the real lock
//! table replayed from the committed log.

pub(crate) mod account;
pub(crate) mod bounds;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod properties;
pub(crate) mod raft;
mod reduction;
pub(crate) mod replay;
