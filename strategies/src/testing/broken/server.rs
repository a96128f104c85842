//! The granting side of the plain strategy, with the faults of its side.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::FutureExt;
use tokio::{
    sync::{Notify, watch},
    task::unconstrained,
};

use super::Fault;
use crate::{
    clock::{Clock, TokioClock},
    local::Local,
    lock::Inspection,
    losses::LossRegistry,
    mutex::KeyedMutex,
};

/// The granting side: a [`Local`] that can be stopped and lose its memory.
///
/// Clones are the same server. Its time is the runtime's, so it can be paused.
#[derive(Clone, Debug)]
pub struct Server {
    pub(super) fault: Option<Fault>,
    pub(super) clock: Arc<TokioClock>,
    pub(super) up: watch::Sender<bool>,
    /// Notified when [`Fault::GrantsTwo`] grants a held key to a waiter.
    pub(super) intrusions: Arc<Notify>,
    /// The watched locks of every handle.
    watched: Arc<Mutex<Vec<LossRegistry>>>,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Debug)]
struct Memory {
    local: Arc<Local>,
    /// Subtracted from every token.
    tokens_before: u64,
    /// How often each key was granted, or when.
    rows: BTreeMap<String, u64>,
    grants: u64,
    /// The keys of callers that poll, in the order in which the callers came.
    polling: BTreeMap<u64, String>,
    polls: u64,
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
        let (clock, (up, _)) = (Arc::new(TokioClock::new()), watch::channel(true));
        let memory = Memory {
            local: Arc::new(Local::with_clock(clock.clone())),
            tokens_before: 0,
            rows: BTreeMap::new(),
            grants: 0,
            polling: BTreeMap::new(),
            polls: 0,
        };
        let memory = Arc::new(Mutex::new(memory));
        let (intrusions, watched) = (Arc::default(), Arc::default());
        Self { fault, clock, up, intrusions, watched, memory }
    }

    pub(super) fn watched(&self) -> MutexGuard<'_, Vec<LossRegistry>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No call gets a reply from now on.
    pub fn stop(&self) {
        self.up.send_replace(false);
    }

    /// Calls get replies again.
    pub fn start(&self) {
        self.up.send_replace(true);
    }

    /// The memory is lost, but for the greatest token.
    pub fn restart(&self) {
        self.memory().local = Arc::new(Local::with_clock(self.clock.clone()));
        if self.is(Fault::TokensRestart) {
            self.restart_tokens();
        }
    }

    /// Another leader takes over the memory.
    pub fn change_leader(&self) {
        if self.is(Fault::TokensRestartWithLeader) {
            self.restart_tokens();
        }
    }

    fn restart_tokens(&self) {
        self.memory().tokens_before = self.clock.wall_nanos();
    }

    /// How many holders and waiters (and rows, were they to leak) are in the table.
    #[must_use]
    pub fn residue(&self) -> u64 {
        let memory = self.memory();
        let sizes = memory.local.sizes();
        let leaked = if self.is(Fault::LeaksKeys) { memory.rows.len() } else { 0 };
        sizes.keys + sizes.waiters + leaked as u64
    }

    pub(super) fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn local(&self) -> Arc<Local> {
        self.memory().local.clone()
    }

    /// The key under which the table has it.
    pub(super) fn row_of(&self, key: &str) -> String {
        match self.fault {
            Some(Fault::OneLockForAll) => "all".to_owned(),
            Some(Fault::FoldsKeys) => key.trim().to_lowercase(),
            Some(Fault::ChecksNothing) if key.is_empty() => "empty".to_owned(),
            Some(Fault::ChecksNothing) => {
                key.chars().take(crate::limits::KEY_BYTES_MAX / 4).collect()
            }
            _ => key.to_owned(),
        }
    }

    /// The holder of a row, with the table's own token.
    pub(super) fn holder(&self, row: &str) -> Option<Inspection> {
        let inspected = unconstrained(self.local().inspect(row)).now_or_never();
        inspected.expect("a Local replies at once").ok().flatten()
    }

    /// A row is about to be asked for.
    pub(super) fn begin(&self, row: &str) {
        if self.is(Fault::TokensPerTableRow) && self.holder(row).is_none() {
            self.memory().rows.remove(row);
        }
    }

    pub(super) fn note_grant(&self, row: &str) {
        let mut memory = self.memory();
        let noted = memory.rows.entry(row.to_owned()).or_default();
        let is_time = self.is(Fault::TokensFromClock);
        *noted = if is_time { self.clock.wall_nanos() } else { *noted + 1 };
        memory.grants += 1;
        let tenth = memory.grants.is_multiple_of(10);
        drop(memory);
        let is_awaited = || self.holder(row).is_some_and(|holder| holder.waiters > 0);
        if tenth && self.is(Fault::GrantsTwo) && is_awaited() {
            self.intrusions.notify_one();
        }
    }

    /// The token as clients see it.
    pub(super) fn token(&self, row: &str, token: u64) -> u64 {
        let memory = self.memory();
        match self.fault {
            Some(Fault::ConstantTokens) => 1,
            Some(Fault::TokensPerTableRow | Fault::TokensFromClock) => {
                memory.rows.get(row).copied().unwrap_or(1)
            }
            _ => token.saturating_sub(memory.tokens_before).max(1),
        }
    }

    /// How many callers poll for a row.
    pub(super) fn polling(&self, row: &str) -> u64 {
        self.memory().polling.values().filter(|polled| *polled == row).count() as u64
    }

    pub(super) fn poll(&self, row: &str) -> Poll<'_> {
        let mut memory = self.memory();
        memory.polls += 1;
        let number = memory.polls;
        memory.polling.insert(number, row.to_owned());
        Poll { server: self, number }
    }
}

/// A caller that polls, until it is dropped.
pub(super) struct Poll<'a> {
    server: &'a Server,
    number: u64,
}

impl Poll<'_> {
    /// Whether no caller for the same row came later.
    pub(super) fn is_last(&self) -> bool {
        let memory = self.server.memory();
        let row = &memory.polling[&self.number];
        memory.polling.range(self.number + 1..).all(|(_, other)| other != row)
    }
}

impl Drop for Poll<'_> {
    fn drop(&mut self) {
        self.server.memory().polling.remove(&self.number);
    }
}
