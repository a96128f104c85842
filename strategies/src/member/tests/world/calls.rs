//! Calls of clients in a test's cluster, and their replies.

use std::{sync::Arc, time::Duration};

use super::{LEASE, World};
use crate::{
    client::calls::{Call, CallId, LockCall, Query, Reply, Until},
    lock::{Lock, Nonce, Owner},
    lock_table::Grant,
};

impl World {
    pub(in crate::member::tests) fn call(
        &mut self,
        name: &str,
        call: impl FnOnce(CallId) -> Call,
    ) -> CallId {
        self.calls += 1;
        let (now, id) = (self.now, self.calls);
        self.nodes.get_mut(name).expect("it runs").core.call(now, call(id));
        id
    }

    /// Asks for `key` under `nonce`, waiting at most `wait_ms`.
    pub(in crate::member::tests) fn lock(
        &mut self,
        name: &str,
        key: &str,
        nonce: u128,
        wait_ms: u64,
    ) -> CallId {
        let until = match wait_ms {
            0 => Until::Now,
            ms => Until::At(self.now.after(Duration::from_millis(ms))),
        };
        self.call(name, |id| {
            Call::Lock(LockCall {
                id,
                key: key.into(),
                nonce: Nonce::from_u128(nonce),
                lease: LEASE,
                until,
                limit: None,
                tries: until == Until::Now,
                owner: Arc::new(Owner::default()),
                unsafe_grant: None,
            })
        })
    }

    pub(in crate::member::tests) fn unlock(
        &mut self,
        name: &str,
        key: &str,
        nonce: u128,
    ) -> CallId {
        let until = self.now.after(Duration::from_secs(10));
        let lock = Lock::new(key, Nonce::from_u128(nonce), 0, None);
        self.call(name, |id| Call::Unlock { caller: Some((id, until)), lock, until, forced: None })
    }

    /// Asks for the lease of `nonce` to last `duration_ms` from now.
    pub(in crate::member::tests) fn extend(
        &mut self,
        name: &str,
        lock: Lock,
        duration_ms: u64,
    ) -> CallId {
        let (lease, limit) = (Duration::from_millis(duration_ms), self.now.after(LEASE));
        self.call(name, |id| Call::Query { id, limit, query: Query::Extend { lock, lease } })
    }

    pub(in crate::member::tests) fn granted(&self, call: CallId) -> Option<&Grant> {
        self.grants.get(&call)
    }

    /// Locks, waiting up to 5 s of virtual time, and returns the grant.
    pub(in crate::member::tests) fn must_lock(
        &mut self,
        name: &str,
        key: &str,
        nonce: u128,
    ) -> Grant {
        let call = self.lock(name, key, nonce, 5_000);
        self.run_until(5_000, "the lock is granted", |world| world.granted(call).is_some());
        self.granted(call).expect("it was just granted").clone()
    }

    pub(in crate::member::tests) fn must_unlock(&mut self, name: &str, key: &str, nonce: u128) {
        let call = self.unlock(name, key, nonce);
        self.run_until(5_000, "the unlock completes", |w| w.replies.contains_key(&call));
        let reply = &self.replies[&call];
        assert!(matches!(reply, Reply::Unlocked), "the unlock ended by {reply:?}");
    }
}
