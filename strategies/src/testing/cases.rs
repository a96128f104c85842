//! The cases, by the headings of the list.

pub(super) mod basic;
pub(super) mod fences;
pub(super) mod identity;
pub(super) mod limits;
pub(super) mod operator;
pub(super) mod queue;
pub(super) mod time;
