//! The waiting calls of a locker, which `unlock_all` ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// The waiting calls of a locker and its clones.
#[derive(Default)]
pub(crate) struct Waits {
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    next_id: u64,
    by_id: BTreeMap<u64, Call>,
}

struct Call {
    key: Arc<str>,
    ended: Arc<Notify>,
}

impl Waits {
    /// Completes once [`end`](Self::end) is called with a prefix of `key`. The call is registered
    /// when the future is first polled.
    pub(crate) async fn ended(&self, key: &Arc<str>) {
        let registration = self.register(key);
        registration.ended.notified().await;
    }

    /// Ends the calls whose keys begin with `prefix`.
    pub(crate) fn end(&self, prefix: &str) {
        let calls = self.calls();
        let is_meant = |call: &&Call| call.key.starts_with(prefix);
        let ended: Vec<_> =
            calls.by_id.values().filter(is_meant).map(|it| it.ended.clone()).collect();
        // Wakers run foreign code: they run after the mutex is released.
        drop(calls);
        ended.iter().for_each(|ended| ended.notify_one());
    }

    fn register(&self, key: &Arc<str>) -> Registration<'_> {
        let (key, ended) = (key.clone(), Arc::<Notify>::default());
        let mut calls = self.calls();
        let id = calls.next_id;
        calls.next_id += 1;
        calls.by_id.insert(id, Call { key, ended: ended.clone() });
        Registration { waits: self, id, ended }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Registration<'a> {
    waits: &'a Waits,
    id: u64,
    ended: Arc<Notify>,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.waits.calls().by_id.remove(&self.id);
    }
}
