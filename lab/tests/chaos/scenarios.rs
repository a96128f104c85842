//! The scenarios, by backend.

pub(crate) mod members;
pub(crate) mod planted;
pub(crate) mod redis;
