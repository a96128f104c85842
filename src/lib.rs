//! A keyed mutex whose strategy you choose.

mod guard;
mod keepalive;
mod locker;
mod open;
mod section;

pub use gaggle_channels as channels;
pub use gaggle_strategies::{
    self as strategies, BootClock, Capabilities, Clock, Error, Exclusion, Inspection, KeyedMutex,
    Lock, LockOptions, MaxWait, Nonce, Order, Owner, Survives,
};

pub use crate::{
    guard::Guard,
    locker::{Acquire, Locker},
    open::{OpenError, open},
    section::SectionError,
};
