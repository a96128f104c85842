//! The granting side of the plain strategy, with the faults of its side.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::{Fault, Handle};
use crate::{Clock, Inspection, Instant, Nonce, Owner, TokioClock};

/// [`Fault::ExpiresLate`].
const LATE: Duration = Duration::from_secs(5);

/// The granting side: a table behind a mutex, which can be stopped and lose its memory.
///
/// Clones are the same server. Its time is the runtime's, so it can be paused.
#[derive(Clone, Debug)]
pub struct Server {
    pub(super) fault: Option<Fault>,
    pub(super) clock: Arc<TokioClock>,
    pub(super) up: watch::Sender<bool>,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<String, Row>,
    token: u64,
    grants: u64,
}

#[derive(Debug, Default)]
pub(super) struct Row {
    holder: Option<Holder>,
    waiters: Vec<Waiter>,
    granted: u64,
    /// [`Fault::GrantsTwo`] lets this one in beside the holder.
    intruder: Option<Nonce>,
}

#[derive(Clone, Debug)]
struct Holder {
    nonce: Nonce,
    process: u64,
    token: u64,
    waited: Duration,
    expires: Instant,
    label: Option<String>,
}

#[derive(Debug)]
struct Waiter {
    nonce: Nonce,
    process: u64,
    label: Option<String>,
    duration: Duration,
    since: Instant,
    until: Option<Instant>,
    notify: Arc<Notify>,
}

/// A request, as the server sees it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) key: String,
    pub(super) nonce: Nonce,
    pub(super) process: u64,
    pub(super) label: Option<String>,
    pub(super) duration: Duration,
    /// Whether it queues where the key is held.
    pub(super) waits: bool,
    pub(super) until: Option<Instant>,
    pub(super) notify: Arc<Notify>,
}

/// The reply to a request.
#[derive(Debug)]
pub(super) enum Answer {
    Granted {
        token: u64,
        waited: Duration,
    },
    /// Wait for a notification, or until the present lease ends.
    Wait {
        expires: Option<Instant>,
    },
    Held,
}

impl Server {
    /// A server with nothing wrong.
    #[must_use]
    pub fn sound() -> Self {
        Self::new(None)
    }

    /// A server, and with it all its handles, with one thing wrong.
    #[must_use]
    pub fn with(fault: Fault) -> Self {
        Self::new(Some(fault))
    }

    fn new(fault: Option<Fault>) -> Self {
        let (up, _) = watch::channel(true);
        Self { fault, clock: Arc::new(TokioClock::new()), up, table: Arc::default() }
    }

    /// Another process' handle.
    #[must_use]
    pub fn open(&self) -> Handle {
        Handle::new(self.clone())
    }

    /// No call is answered from now on.
    pub fn stop(&self) {
        self.up.send_replace(false);
    }

    /// Calls are answered again.
    pub fn start(&self) {
        self.up.send_replace(true);
    }

    /// The memory is lost, but for the greatest token.
    pub fn restart(&self) {
        let mut table = self.table();
        let token = if self.is(Fault::TokensRestart) { 0 } else { table.token };
        *table = Table { token, ..Table::default() };
    }

    /// Another leader takes over the memory.
    pub fn change_leader(&self) {
        if self.is(Fault::TokensRestartWithLeader) {
            self.table().token = 0;
        }
    }

    /// How many holders and waiters (and rows, were they to leak) are in the table.
    #[must_use]
    pub fn residue(&self) -> u64 {
        let now = self.clock.now();
        let mut table = self.table();
        for key in table.rows.keys().cloned().collect::<Vec<_>>() {
            self.settle(&mut table, &key, now);
        }
        let rows = table.rows.values();
        rows.map(|row| 1 + u64::from(row.holder.is_some()) + row.waiters.len() as u64).sum()
    }

    pub(super) fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn row_of(&self, key: &str) -> String {
        match self.fault {
            Some(Fault::OneLockForAll) => String::new(),
            Some(Fault::FoldsKeys) => key.trim().to_lowercase(),
            _ => key.to_owned(),
        }
    }

    /// Grants or queues a request; called again after each notification.
    pub(super) fn lock(&self, request: &Request) -> Answer {
        let now = self.clock.now();
        let key = self.row_of(&request.key);
        let mut table = self.table();
        self.settle(&mut table, &key, now);
        let row = table.rows.entry(key.clone()).or_default();
        if let Some(holder) = row.holder.as_ref().filter(|holder| {
            holder.nonce == request.nonce
                || row.intruder == Some(request.nonce)
                || self.is(Fault::Reentrant) && holder.process == request.process
        }) {
            return Answer::Granted { token: holder.token, waited: holder.waited };
        }
        if row.holder.is_some() && !request.waits {
            return Answer::Held;
        }
        if !row.waiters.iter().any(|waiter| waiter.nonce == request.nonce) {
            row.waiters.push(Waiter {
                nonce: request.nonce,
                process: request.process,
                label: request.label.clone(),
                duration: request.duration,
                since: now,
                until: request.until,
                notify: request.notify.clone(),
            });
        }
        self.settle(&mut table, &key, now);
        let holder = table.rows.get(&key).and_then(|row| row.holder.clone());
        match holder {
            Some(holder) if holder.nonce == request.nonce => {
                Answer::Granted { token: holder.token, waited: holder.waited }
            }
            holder => Answer::Wait { expires: holder.map(|holder| holder.expires) },
        }
    }

    /// Frees the acquisition, or takes it out of the queue. Says whether it held.
    pub(super) fn unlock(&self, key: &str, nonce: Nonce) -> bool {
        let now = self.clock.now();
        let key = self.row_of(key);
        let mut table = self.table();
        self.settle(&mut table, &key, now);
        let Some(row) = table.rows.get_mut(&key) else { return false };
        row.waiters.retain(|waiter| waiter.nonce != nonce);
        let any = self.is(Fault::UnlockIgnoresNonce);
        let held = row.holder.as_ref().is_some_and(|holder| any || holder.nonce == nonce);
        if held {
            row.holder = None;
        }
        if !(held && self.is(Fault::UnlockWakesNoWaiter)) {
            self.settle(&mut table, &key, now);
        }
        held
    }

    /// Withdraws a call that was dropped or has timed out.
    pub(super) fn withdraw(&self, key: &str, nonce: Nonce) {
        match self.fault {
            Some(Fault::GhostWaiters) => {}
            Some(Fault::GhostGrants) => {
                let key = self.row_of(key);
                if let Some(row) = self.table().rows.get_mut(&key) {
                    row.waiters.retain(|waiter| waiter.nonce != nonce);
                }
            }
            _ => {
                self.unlock(key, nonce);
            }
        }
    }

    /// Lengthens the lease. Says whether the nonce holds.
    pub(super) fn extend(&self, key: &str, nonce: Nonce, duration: Duration, token: u64) -> bool {
        let now = self.clock.now();
        let key = self.row_of(key);
        let mut table = self.table();
        self.settle(&mut table, &key, now);
        if self.is(Fault::ExtendCreates) {
            let row = table.rows.entry(key.clone()).or_default();
            let holder = Holder {
                nonce,
                process: 0,
                token,
                waited: Duration::ZERO,
                expires: now,
                label: None,
            };
            row.holder.get_or_insert(holder);
        }
        let holder = table.rows.get_mut(&key).and_then(|row| row.holder.as_mut());
        let Some(holder) = holder else { return false };
        let ours = holder.nonce == nonce;
        if ours || self.is(Fault::ExtendIgnoresNonce) {
            let end = now.after(duration);
            let shortens = self.is(Fault::ExtendShortens);
            holder.expires = if shortens { end } else { end.max(holder.expires) };
        }
        ours
    }

    /// Who holds the key.
    pub(super) fn inspect(&self, key: &str) -> Option<Inspection> {
        let now = self.clock.now();
        let key = self.row_of(key);
        let mut table = self.table();
        self.settle(&mut table, &key, now);
        let row = table.rows.get(&key)?;
        let holder = row.holder.as_ref()?;
        Some(Inspection {
            fencing_token: holder.token,
            nonce: holder.nonce,
            owner: Owner::this_process(holder.label.clone()),
            remaining: holder.expires.since(now),
            waiters: row.waiters.len() as u64,
        })
    }

    /// Ends an expired lease and grants the key to the next live waiter.
    fn settle(&self, table: &mut Table, key: &str, now: Instant) {
        let Table { rows, token, grants } = table;
        let Some(row) = rows.get_mut(key) else { return };
        if row.holder.as_ref().is_some_and(|holder| now >= self.end_of(holder)) {
            row.holder = None;
        }
        row.waiters.retain(|waiter| waiter.until.is_none_or(|until| now <= until));
        if row.holder.is_none() && !row.waiters.is_empty() {
            let lifo = self.is(Fault::LastComeFirstServed) || self.is(Fault::Starves);
            let next = if lifo { row.waiters.len() - 1 } else { 0 };
            let next = row.waiters.remove(next);
            *token += 1;
            *grants += 1;
            row.granted += 1;
            let token = match self.fault {
                Some(Fault::ConstantTokens) => 1,
                Some(Fault::TokensPerTableRow) => row.granted,
                _ => *token,
            };
            let lease =
                if self.is(Fault::ExpiresEarly) { next.duration / 2 } else { next.duration };
            row.holder = Some(Holder {
                nonce: next.nonce,
                process: next.process,
                label: next.label,
                token,
                waited: now.since(next.since),
                expires: now.after(lease),
            });
            next.notify.notify_waiters();
            if self.is(Fault::GrantsTwo) && grants.is_multiple_of(10) {
                row.intruder = row.waiters.first().map(|waiter| waiter.nonce);
                row.waiters.iter().take(1).for_each(|waiter| waiter.notify.notify_waiters());
            }
        }
        if row.holder.is_none() && row.waiters.is_empty() && !self.is(Fault::LeaksKeys) {
            rows.remove(key);
        }
    }

    fn end_of(&self, holder: &Holder) -> Instant {
        match self.fault {
            Some(Fault::NeverExpires) => holder.expires.after(Duration::MAX),
            Some(Fault::ExpiresLate) => holder.expires.after(LATE),
            _ => holder.expires,
        }
    }
}
