//! A keyed mutex whose strategy you choose.
pub use gaggle_strategies as strategies;
