//! For implementors of [`KeyedMutex`](crate::KeyedMutex) and [`Operator`](crate::Operator): the
//! checks of input, the arithmetic of leases and waits, the loss signal, and texts for people.

pub use crate::{
    deadline::{extended, extended_deadline, granted_deadline, not_held},
    forced::{check_reason, forced_note, log_forced},
    holds::{Holds, LossWatch},
    options::{check_duration, check_key, check_request},
    prose::in_prose,
    wait::{lasts, wait_until, whole_ms},
};
