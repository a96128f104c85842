//! What a replay must show, judged from the effects alone by a second, plainer account of the key:
//! one lease, a list of waiters, and what became of each nonce.

use gaggle_strategies::lock_table::{
    ClusterTime, Command, Effect, Ended, Grant, LockTable, Refusal,
};

use super::{
    bounds::{KEY, LEASE_TICKS, TICK_MS},
    replay::client_of,
};

/// The most clients of any configuration.
pub(crate) const CLIENTS_MAX: usize = 3;

/// Rules that a replay can break, as bits.
pub(crate) mod broken {
    pub(crate) const TWO_LEASES: u16 = 1;
    pub(crate) const TOKEN_FELL: u16 = 1 << 1;
    pub(crate) const WITHDRAWN_GRANTED: u16 = 1 << 2;
    pub(crate) const GRANTED_TWICE: u16 = 1 << 3;
    pub(crate) const FREED_OTHER: u16 = 1 << 4;
    pub(crate) const PAST_LEASE: u16 = 1 << 5;
    pub(crate) const QUEUE: u16 = 1 << 6;
    pub(crate) const TIME_FELL: u16 = 1 << 7;
    pub(crate) const SNAPSHOT: u16 = 1 << 8;
    pub(crate) const INCONSISTENT: u16 = 1 << 9;
}

/// Rare things that a search must have come upon, as bits: or it showed nothing about them.
pub(crate) mod seen {
    pub(crate) const GRANT_ACROSS_TERMS: u32 = 1;
    pub(crate) const EXPIRED_WITH_WAITER: u32 = 1 << 1;
    pub(crate) const LATE_LOCK_REFUSED: u32 = 1 << 2;
    pub(crate) const UNLOCK_BEFORE_LOCK: u32 = 1 << 3;
    pub(crate) const STALE_REFUSED: u32 = 1 << 4;
    pub(crate) const GRANT_REPEATED: u32 = 1 << 5;
    pub(crate) const EXTENDED: u32 = 1 << 6;
    pub(crate) const EXTENDED_TOO_LATE: u32 = 1 << 7;
    pub(crate) const WAITER_RAN_OUT: u32 = 1 << 8;
    pub(crate) const WAITER_GONE: u32 = 1 << 9;
    pub(crate) const HANDED_BY_UNLOCK: u32 = 1 << 10;
    pub(crate) const WAITER_WITHDRAWN: u32 = 1 << 11;
    pub(crate) const NONCE_FORGOTTEN: u32 = 1 << 12;
    // Those of the group, not of the table.
    pub(crate) const ENTRY_OVERWRITTEN: u32 = 1 << 16;
    pub(crate) const TWO_LEADERS: u32 = 1 << 17;
    pub(crate) const LATE_WRITE_REFUSED: u32 = 1 << 18;
    pub(crate) const HOLDER_GAVE_UP_FIRST: u32 = 1 << 19;
    pub(crate) const OLD_ENTRY_COMMITTED: u32 = 1 << 20;
}

/// Whose lease lives, by the effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) client: u8,
    token: u64,
    expires_at: ClusterTime,
}

/// The second account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) lease: Option<Lease>,
    /// In the order of arrival, with the term of the entry that queued them.
    queue: Vec<(u8, u8)>,
    last_token: u64,
    granted: [bool; CLIENTS_MAX],
    /// Unlocked, withdrawn or run out.
    ended: [bool; CLIENTS_MAX],
    pub(crate) broken: u16,
    pub(crate) seen: u32,
}

impl Ledger {
    /// Checks one step: `table` is the table after it.
    pub(crate) fn step(
        &mut self,
        term: u8,
        command: &Command,
        effects: &[Effect],
        table: &LockTable,
    ) {
        let (before, now) = (self.lease, table.now());
        let unlocks = match command {
            Command::Unlock { nonce, .. } => Some(client_of(*nonce)),
            _ => None,
        };
        let mut expired = false;
        for effect in effects {
            match effect {
                Effect::Granted(grant) => self.granted(grant, term, expired, table),
                Effect::Queued { nonce, .. } => {
                    let client = client_of(*nonce);
                    self.require(self.lease.is_some(), broken::QUEUE);
                    if !self.queue.iter().any(|(waiter, _)| *waiter == client) {
                        self.require(!self.ended[usize::from(client)], broken::WITHDRAWN_GRANTED);
                        self.queue.push((client, term));
                    }
                }
                Effect::Dropped { nonce, .. } => {
                    let gone = matches!(command, Command::Gone { .. });
                    self.seen |= if gone { seen::WAITER_GONE } else { seen::WAITER_RAN_OUT };
                    let left = self.leave_queue(client_of(*nonce));
                    self.require(left, broken::QUEUE);
                }
                Effect::Expired { nonce, .. } => {
                    expired = true;
                    let ours = self.lease.take().filter(|l| l.client == client_of(*nonce));
                    self.require(ours.is_some_and(|l| l.expires_at <= now), broken::FREED_OTHER);
                    self.ended[usize::from(client_of(*nonce))] = true;
                }
                Effect::Unlocked { nonce, was, .. } => self.unlocked(client_of(*nonce), *was),
                Effect::Extended { nonce, held, .. } => {
                    self.extended(client_of(*nonce), held.map(|(_, end)| end), now);
                }
                Effect::Refused { reason, .. } => {
                    self.seen |= match reason {
                        Refusal::Spent(Ended::Unlocked) => seen::LATE_LOCK_REFUSED,
                        Refusal::Spent(Ended::Withdrawn) => seen::UNLOCK_BEFORE_LOCK,
                        Refusal::Stale { .. } => seen::STALE_REFUSED,
                        _ => 0,
                    }
                }
            }
        }
        // Whoever holds and whose lease lasts, holds on: only its own unlock ends it.
        if let Some(lease) = before.filter(|l| l.expires_at > now && unlocks != Some(l.client)) {
            let holds = self.lease.is_some_and(|after| after.client == lease.client);
            self.require(holds, broken::FREED_OTHER);
        }
        self.require(self.lease.is_none_or(|l| l.expires_at > now), broken::PAST_LEASE);
        self.compare(table);
    }

    fn granted(&mut self, grant: &Grant, term: u8, expired: bool, table: &LockTable) {
        let client = client_of(grant.nonce);
        let lease = Lease { client, token: grant.token, expires_at: grant.expires_at };
        if let Some(present) = self.lease {
            self.require(present.client == client, broken::TWO_LEASES);
            self.require(present == lease, broken::GRANTED_TWICE);
            self.seen |= seen::GRANT_REPEATED;
            return;
        }
        self.require(grant.token > self.last_token, broken::TOKEN_FELL);
        self.require(!self.ended[usize::from(client)], broken::WITHDRAWN_GRANTED);
        self.require(!self.granted[usize::from(client)], broken::GRANTED_TWICE);
        let expires_at = table.now().after(LEASE_TICKS * TICK_MS);
        self.require(grant.granted_at == table.now(), broken::PAST_LEASE);
        self.require(grant.expires_at == expires_at, broken::PAST_LEASE);
        if let Some((first, queued_in)) = self.queue.first().copied() {
            self.require(first == client, broken::QUEUE);
            self.leave_queue(client);
            self.seen |= if expired { seen::EXPIRED_WITH_WAITER } else { seen::HANDED_BY_UNLOCK };
            if queued_in < term {
                self.seen |= seen::GRANT_ACROSS_TERMS;
            }
        }
        self.last_token = grant.token;
        self.granted[usize::from(client)] = true;
        self.lease = Some(lease);
    }

    fn unlocked(&mut self, client: u8, was: Ended) {
        self.ended[usize::from(client)] = true;
        match was {
            Ended::Held => {
                let ours = self.lease.take().is_some_and(|lease| lease.client == client);
                self.require(ours, broken::FREED_OTHER);
            }
            Ended::Waited => {
                self.seen |= seen::WAITER_WITHDRAWN;
                let left = self.leave_queue(client);
                self.require(left, broken::QUEUE);
            }
            _ => {}
        }
    }

    fn extended(&mut self, client: u8, expires_at: Option<ClusterTime>, now: ClusterTime) {
        let Some(expires_at) = expires_at else {
            self.seen |= seen::EXTENDED_TOO_LATE;
            return;
        };
        self.seen |= seen::EXTENDED;
        let asked = now.after(LEASE_TICKS * TICK_MS);
        match &mut self.lease {
            Some(lease) if lease.client == client => {
                let expected = lease.expires_at.max(asked);
                lease.expires_at = expires_at;
                self.require(expires_at == expected, broken::PAST_LEASE);
            }
            _ => self.require(false, broken::TWO_LEASES),
        }
    }

    /// The table says of the key what its effects said.
    fn compare(&mut self, table: &LockTable) {
        let holder = table.holder(KEY);
        let lease = holder.as_ref().map(|view| Lease {
            client: client_of(view.nonce),
            token: view.token,
            expires_at: view.expires_at,
        });
        self.require(lease == self.lease, broken::INCONSISTENT);
        self.require(table.sizes().waiters == self.queue.len() as u64, broken::QUEUE);
        let next = table.next_waiter(KEY).map(client_of);
        self.require(next == self.queue.first().map(|(client, _)| *client), broken::QUEUE);
        self.require(self.queue.is_empty() || self.lease.is_some(), broken::QUEUE);
    }

    fn leave_queue(&mut self, client: u8) -> bool {
        let before = self.queue.len();
        self.queue.retain(|(waiter, _)| *waiter != client);
        self.queue.len() < before
    }

    fn require(&mut self, holds: bool, rule: u16) {
        if !holds {
            self.broken |= rule;
        }
    }
}
