//! The real lock table, replayed from a committed log. States keep the log; the table is looked up.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use gaggle_strategies::{
    Nonce, Owner,
    lock_table::{ClusterTime, Command, Effect, LockRequest, LockTable, ProcessId, Seen},
};

use super::{
    account::{Account, CLIENTS_MAX, broken, seen},
    bounds::{Bounds, KEY, LEASE_TICKS, TICK_MS},
    client::Granted,
    raft::{Cmd, Entry, Log},
};

/// What a committed log comes to.
#[derive(Clone, Debug)]
pub(crate) struct Replayed {
    table: LockTable,
    pub(crate) account: Account,
    /// The different replies to LOCKs. Each may arrive at any later moment.
    pub(crate) grants: Vec<Granted>,
    /// Which clients' EXTEND was answered with a lease.
    pub(crate) extended: [bool; CLIENTS_MAX],
}

/// All replays so far, by log.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    by_log: Mutex<BTreeMap<Log, Arc<Replayed>>>,
}

pub(crate) fn nonce_of(client: u8) -> Nonce {
    Nonce::from_u128(u128::from(client) + 1)
}

pub(crate) fn client_of(nonce: Nonce) -> u8 {
    u8::try_from(nonce.as_u128() - 1).unwrap()
}

fn process_of(client: u8) -> ProcessId {
    ProcessId(u64::from(client) + 1)
}

fn time(ticks: u8) -> ClusterTime {
    ClusterTime(u64::from(ticks) * TICK_MS)
}

pub(crate) fn command(cmd: Cmd, bounds: &Bounds) -> Command {
    let duration_ms = LEASE_TICKS * TICK_MS;
    let key: Arc<str> = KEY.into();
    match cmd {
        Cmd::Noop => Command::Noop,
        Cmd::Lock { client, seen } => Command::Lock(LockRequest {
            request: 0,
            key,
            nonce: nonce_of(client),
            process: process_of(client),
            duration_ms,
            wait: bounds.waits[usize::from(client)],
            seen: Seen::At { group: 0, time: time(seen) },
            owner: Arc::new(Owner::default()),
        }),
        Cmd::Unlock(client) => Command::Unlock { key, nonce: nonce_of(client), forget: false },
        Cmd::Extend(client) => Command::Extend {
            key,
            nonce: nonce_of(client),
            process: process_of(client),
            request: 0,
            duration_ms,
        },
        Cmd::Gone(client) => Command::Gone { process: process_of(client) },
    }
}

impl Replays {
    /// The replay of `log`, remembered.
    pub(crate) fn of(&self, log: &Log, bounds: &Bounds) -> Arc<Replayed> {
        if let Some(found) = self.by_log.lock().unwrap().get(log) {
            return found.clone();
        }
        let replayed = match log.entries().split_last() {
            None => Replayed::empty(bounds),
            Some((last, _)) => {
                let before = self.of(&log.prefix(log.len() - 1), bounds);
                before.then(*last, bounds)
            }
        };
        let replayed = Arc::new(replayed);
        self.by_log.lock().unwrap().insert(*log, replayed.clone());
        replayed
    }

    /// The committed logs; of logs that differ only by the names of the first two
    /// clients, one.
    pub(crate) fn logs_by_any_name(&self) -> BTreeSet<Log> {
        let renamed = |log: &Log| {
            let mut renamed = *log;
            renamed.rename([1, 0, 2]);
            renamed
        };
        self.by_log.lock().unwrap().keys().map(|log| renamed(log).min(*log)).collect()
    }

    /// How many different logs were committed.
    pub(crate) fn len(&self) -> usize {
        self.by_log.lock().unwrap().len()
    }
}

impl Replayed {
    fn empty(bounds: &Bounds) -> Self {
        Self {
            table: LockTable::new(bounds.table()),
            account: Account::new(bounds),
            grants: Vec::new(),
            extended: [false; CLIENTS_MAX],
        }
    }

    fn then(&self, entry: Entry, bounds: &Bounds) -> Self {
        let command = command(entry.cmd, bounds);
        let stamp = time(entry.stamp);
        let mut next = self.clone();
        let applied = catch_unwind(AssertUnwindSafe(|| {
            let effects = next.apply(stamp, &command);
            let agrees = self.restored_agrees(stamp, &command, &effects, &next.table);
            (effects, agrees)
        }));
        // A table that panics is a finding, not the end of the search.
        let Ok((effects, agrees)) = applied else {
            let mut next = self.clone();
            next.account.broken |= broken::REFERENCE;
            return next;
        };
        let remembered = |table: &LockTable| table.sizes().nonces_remembered;
        if remembered(&next.table) < remembered(&self.table) {
            next.account.seen |= seen::NONCE_FORGOTTEN;
        }
        if next.table.now() < self.table.now() || next.table.now() < stamp {
            next.account.broken |= broken::TIME_FELL;
        }
        if !agrees {
            next.account.broken |= broken::SNAPSHOT;
        }
        next.account.step(entry.term, stamp, &command, &effects, &next.table);
        for effect in effects {
            next.note_reply(&effect);
        }
        next
    }

    fn apply(&mut self, stamp: ClusterTime, command: &Command) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.table.apply(stamp, command, &mut effects);
        self.table.check();
        effects
    }

    /// Another member, which restored the snapshot taken before this entry, comes to the same.
    fn restored_agrees(
        &self,
        stamp: ClusterTime,
        command: &Command,
        effects: &[Effect],
        after: &LockTable,
    ) -> bool {
        let Ok(mut restored) = LockTable::restore(&self.table.snapshot()) else { return false };
        let mut again = Vec::new();
        restored.apply(stamp, command, &mut again);
        again == effects && restored.snapshot() == after.snapshot()
    }

    fn note_reply(&mut self, effect: &Effect) {
        match effect {
            Effect::Granted(grant) => {
                let granted = Granted {
                    client: client_of(grant.nonce),
                    token: u8::try_from(grant.token).unwrap_or(u8::MAX),
                    asked_at: grant.asked_at,
                    granted_at: grant.granted_at,
                };
                if !self.grants.contains(&granted) {
                    self.grants.push(granted);
                }
            }
            Effect::Extended { nonce, held: Some(_), .. } => {
                self.extended[usize::from(client_of(*nonce))] = true;
            }
            _ => {}
        }
    }

    /// Cluster time, in ticks.
    pub(crate) fn now(&self) -> u8 {
        u8::try_from(self.table.now().0 / TICK_MS).unwrap()
    }

    /// When a stamp would next change anything, in ticks.
    pub(crate) fn due(&self) -> Option<u8> {
        let due = self.table.next_sweep()?;
        Some(u8::try_from(due.0.div_ceil(TICK_MS)).unwrap_or(u8::MAX))
    }

    /// Whether a process has a waiter.
    pub(crate) fn waits(&self, client: u8) -> bool {
        self.table.processes_waiting().any(|process| process == process_of(client))
    }
}
