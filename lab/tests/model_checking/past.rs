//! The result of a log: the real lock table after it, compared with the reference table.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use gaggle_lab::ReferenceTable;
use gaggle_strategies::{
    lock::{Nonce, Owner},
    lock_table::{
        ClusterTime, Command, Effect, LockRequest, LockTable, PriorState, ProcessId, Refusal, Seen,
    },
};

use super::{Bounds, CLIENTS_MAX, LEASE_TICKS, TICK_MS, client::Granted, group::rules};

/// The one key.
const KEY: &str = "k";

/// Rare events.
pub(crate) mod seen {
    pub(crate) const EXPIRED_WITH_WAITER: &str = "a lease expired with a waiter";
    pub(crate) const LATE_LOCK_REFUSED: &str = "a LOCK came after the end of its nonce";
    pub(crate) const UNLOCK_BEFORE_LOCK: &str = "an UNLOCK came before its LOCK";
    pub(crate) const STALE_REFUSED: &str = "a LOCK was too old";
    pub(crate) const GRANT_REPEATED: &str = "a holder's LOCK came again";
    pub(crate) const EXTENDED: &str = "a lease was extended";
    pub(crate) const EXTENDED_TOO_LATE: &str = "an EXTEND came too late";
    pub(crate) const WAITER_EXPIRED: &str = "a wait ended";
    pub(crate) const WAITER_DROPPED: &str = "a waiter's process died";
    pub(crate) const GRANTED_BY_UNLOCK: &str = "an unlock granted the key to a waiter";
    pub(crate) const WAITER_WITHDRAWN: &str = "a waiter withdrew";
    pub(crate) const NONCE_FORGOTTEN: &str = "a nonce was forgotten";
    pub(crate) const HOLDER_GAVE_UP_FIRST: &str = "a holder gave up before its lease ended";
    pub(crate) const LEADER_CLOCK_BEHIND: &str = "a new leader's clock was behind the former's";
}

/// The command of an entry to the lock table, with the client it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cmd {
    Noop,
    /// `seen`: the latest cluster time, in ticks, that the client knew when it sent.
    Lock {
        client: u8,
        seen: u8,
    },
    Unlock(u8),
    Extend(u8),
    DropWaiters(u8),
}

impl Cmd {
    pub(crate) fn client(self) -> Option<u8> {
        match self {
            Self::Noop => None,
            Self::Lock { client, .. }
            | Self::Unlock(client)
            | Self::Extend(client)
            | Self::DropWaiters(client) => Some(client),
        }
    }

    fn command(self, bounds: &Bounds) -> Command {
        let (key, duration_ms) = (Arc::from(KEY), LEASE_TICKS * TICK_MS);
        match self {
            Self::Noop => Command::Noop,
            Self::Lock { client, seen } => Command::Lock(LockRequest {
                key,
                nonce: nonce_of(client),
                process: process_of(client),
                duration_ms,
                wait: bounds.waits[usize::from(client)],
                seen: Seen::At { group: 0, time: time(seen) },
                owner: Arc::new(Owner::default()),
            }),
            Self::Unlock(client) => Command::Unlock { key, nonce: nonce_of(client), forget: false },
            Self::Extend(client) => {
                let (nonce, process) = (nonce_of(client), process_of(client));
                Command::Extend { key, nonce, process, request: 0, duration_ms }
            }
            Self::DropWaiters(client) => Command::DropWaiters { process: process_of(client) },
        }
    }
}

/// A committed entry; its stamp is cluster time in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entry {
    pub(crate) stamp: u8,
    pub(crate) cmd: Cmd,
}

/// A log, and its result.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) log: Vec<Entry>,
    table: LockTable,
    reference: ReferenceTable,
    /// The different replies to LOCKs. Each may arrive at any later moment.
    pub(crate) grants: Vec<Granted>,
    /// Which clients' EXTEND got a lease in reply.
    pub(crate) extended: [bool; CLIENTS_MAX],
    /// Which clients' nonces were unlocked, withdrawn or expired.
    ended: [bool; CLIENTS_MAX],
    broken: Vec<&'static str>,
    /// The rare events of the last entry.
    pub(crate) seen: Vec<&'static str>,
}

fn nonce_of(client: u8) -> Nonce {
    Nonce::from_u128(u128::from(client) + 1)
}

fn client_of(nonce: Nonce) -> u8 {
    u8::try_from(nonce.as_u128() - 1).unwrap()
}

fn process_of(client: u8) -> ProcessId {
    ProcessId(u64::from(client) + 1)
}

fn time(ticks: u8) -> ClusterTime {
    ClusterTime(u64::from(ticks) * TICK_MS)
}

impl Past {
    pub(crate) fn empty(bounds: &Bounds) -> Self {
        Self {
            log: Vec::new(),
            table: LockTable::new(bounds.table()),
            reference: ReferenceTable::new(bounds.table()),
            grants: Vec::new(),
            extended: [false; CLIENTS_MAX],
            ended: [false; CLIENTS_MAX],
            broken: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// The past with one entry more.
    pub(crate) fn then(&self, entry: Entry, bounds: &Bounds) -> Self {
        let (stamp, command) = (time(entry.stamp), entry.cmd.command(bounds));
        let mut next = self.clone();
        next.log.push(entry);
        next.seen.clear();
        let applied = catch_unwind(AssertUnwindSafe(|| {
            let mut effects = Vec::new();
            next.table.apply(stamp, &command, &mut effects);
            let agrees = next.reference.apply(stamp, &command) == effects;
            let nonces = (0..CLIENTS_MAX as u8).map(nonce_of);
            let differs = next.reference.disagreement(&next.table, &[KEY], nonces);
            next.require(agrees && differs.is_none(), rules::REFERENCE);
            next.require(self.restores(stamp, &command, &effects, &next.table), rules::SNAPSHOT);
            effects
        }));
        // A table that panics is a finding, not the end of the search.
        let Ok(effects) = applied else {
            let broken = vec![rules::REFERENCE];
            return Self { log: next.log, broken, ..self.clone() };
        };
        let remembered = |table: &LockTable| table.sizes().nonces_remembered;
        if remembered(&next.table) < remembered(&self.table) {
            next.seen.push(seen::NONCE_FORGOTTEN);
        }
        effects.iter().for_each(|effect| next.note(effect, entry.cmd));
        next
    }

    /// Another member, which restored the snapshot taken before this entry, comes to the same.
    fn restores(
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

    fn note(&mut self, effect: &Effect, cmd: Cmd) {
        let event = match effect {
            Effect::Granted(grant) => {
                let granted = Granted {
                    client: client_of(grant.nonce),
                    token: u8::try_from(grant.token).unwrap_or(u8::MAX),
                    asked_at: grant.asked_at,
                    granted_at: grant.granted_at,
                };
                return self.note_grant(granted, cmd);
            }
            Effect::Queued { nonce, .. } => {
                let ended = self.ended[usize::from(client_of(*nonce))];
                return self.require(!ended, rules::WITHDRAWN);
            }
            Effect::Dropped { .. } if matches!(cmd, Cmd::DropWaiters(_)) => seen::WAITER_DROPPED,
            Effect::Dropped { .. } => seen::WAITER_EXPIRED,
            Effect::Expired { nonce, .. } => {
                self.ended[usize::from(client_of(*nonce))] = true;
                return;
            }
            Effect::Unlocked { nonce, was, .. } => {
                self.ended[usize::from(client_of(*nonce))] = true;
                match was {
                    PriorState::Waited => seen::WAITER_WITHDRAWN,
                    PriorState::Unknown => seen::UNLOCK_BEFORE_LOCK,
                    PriorState::Held | PriorState::Ended => return,
                }
            }
            Effect::Extended { nonce, held: Some(_), .. } => {
                self.extended[usize::from(client_of(*nonce))] = true;
                seen::EXTENDED
            }
            Effect::Extended { held: None, .. } => seen::EXTENDED_TOO_LATE,
            Effect::Refused { reason, .. } => match reason {
                Refusal::Spent => seen::LATE_LOCK_REFUSED,
                Refusal::Stale => seen::STALE_REFUSED,
                _ => return,
            },
        };
        self.seen.push(event);
    }

    fn note_grant(&mut self, granted: Granted, cmd: Cmd) {
        let client = granted.client;
        self.require(!self.ended[usize::from(client)], rules::WITHDRAWN);
        let former = self.grants.iter().find(|reply| reply.client == client);
        let repeated = former.is_some();
        self.require(former.is_none_or(|reply| reply.token == granted.token), rules::ONE_GRANT);
        if !self.grants.contains(&granted) {
            self.grants.push(granted);
        }
        match cmd {
            Cmd::Lock { client: by, .. } if by == client => {
                self.seen.extend(repeated.then_some(seen::GRANT_REPEATED));
            }
            Cmd::Unlock(_) => self.seen.push(seen::GRANTED_BY_UNLOCK),
            _ => self.seen.push(seen::EXPIRED_WITH_WAITER),
        }
    }

    fn require(&mut self, holds: bool, rule: &'static str) {
        if !holds {
            self.broken.push(rule);
        }
    }

    pub(crate) fn keeps(&self, rule: &'static str) -> bool {
        !self.broken.contains(&rule)
    }

    /// Cluster time, in ticks.
    pub(crate) fn now(&self) -> u8 {
        u8::try_from(self.table.now().0 / TICK_MS).unwrap()
    }

    pub(crate) fn last_stamp(&self) -> u8 {
        self.log.last().map_or(0, |entry| entry.stamp)
    }

    /// Whether the client's process has a waiter.
    pub(crate) fn waits(&self, client: u8) -> bool {
        self.table.processes_waiting().any(|process| process == process_of(client))
    }

    /// The client that holds the key.
    pub(crate) fn holder(&self) -> Option<u8> {
        self.table.holder(&KEY.into()).map(|view| client_of(view.nonce))
    }
}
