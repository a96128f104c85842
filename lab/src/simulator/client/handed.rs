//! Locks on their way from one client to another.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gaggle_strategies::Lock;

use crate::simulator::recorder::Op;

/// Locks on their way from one client to another, as plain values without deadlines.
#[derive(Debug, Default)]
pub(in crate::simulator) struct Handed(Mutex<VecDeque<(Op, Lock)>>);

impl Handed {
    fn locks(&self) -> MutexGuard<'_, VecDeque<(Op, Lock)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, op: Op, lock: &Lock) {
        let lock = Lock::new(lock.key().clone(), lock.nonce(), lock.fencing_token(), None);
        self.locks().push_back((op, lock));
    }

    pub(super) fn take(&self) -> Option<(Op, Lock)> {
        self.locks().pop_front()
    }
}
