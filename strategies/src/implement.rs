//! For implementors of [`KeyedMutex`](crate::KeyedMutex) and
//! [`Operator`](crate::operator::Operator): the
//! checks of input, the arithmetic of leases and waits, and the loss signal.

pub use crate::{
    deadline::{extended, extended_deadline, granted_deadline, not_held},
    forced::{check_reason, forced_note, log_forced},
    losses::{LossRegistry, LossWatch},
    options::{check_duration, check_key, check_request},
    wait::{lasts, wait_until, whole_ms},
};
