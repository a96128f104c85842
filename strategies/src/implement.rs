//! For implementors of [`KeyedMutex`](crate::KeyedMutex): the checks of input, the arithmetic of
//! leases and waits, the loss signal, and durations in texts.

pub use crate::{
    deadline::{extended, extended_deadline, granted_deadline, not_held},
    holds::{Holds, LossWatch},
    options::{check_duration, check_key, check_request},
    prose::in_prose,
    wait::{lasts, wait_until, whole_ms},
};
