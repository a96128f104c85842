//! For implementors of [`KeyedMutex`](crate::KeyedMutex) and
//! [`Operator`](crate::operator::Operator): the
//! checks of input, the arithmetic of leases and waits, and the loss signal.

pub use crate::{
    deadline::{extended, extended_deadline, granted_deadline, not_held},
    deadline::{lasts, wait_until, whole_ms},
    losses::{LossRegistry, LossWatch},
    operator::{check_reason, forced_note, log_forced},
    options::{check_duration, check_key, check_request},
};
