//! What a replay must show: the effects of the reference table, and one grant for each nonce. It
//! also notes the rare events that a search must have come upon.

use gaggle_strategies::{
    lock_table::{ClusterTime, Command, Effect, Ended, LockTable, Refusal},
    testing::ReferenceTable,
};

use super::{
    bounds::{Bounds, KEY},
    replay::{client_of, nonce_of},
};

/// The most clients of any configuration.
pub(crate) const CLIENTS_MAX: usize = 3;

/// Rules that a replay can break, as bits.
pub(crate) mod broken {
    pub(crate) const REFERENCE: u16 = 1;
    pub(crate) const ENDED_GRANTED: u16 = 1 << 1;
    pub(crate) const GRANTED_TWICE: u16 = 1 << 2;
    pub(crate) const TIME_FELL: u16 = 1 << 3;
    pub(crate) const SNAPSHOT: u16 = 1 << 4;
}

/// Rare events, as bits.
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
    pub(crate) const GRANTED_BY_UNLOCK: u32 = 1 << 10;
    pub(crate) const WAITER_WITHDRAWN: u32 = 1 << 11;
    pub(crate) const NONCE_FORGOTTEN: u32 = 1 << 12;
    // Those of the group, not of the table.
    pub(crate) const ENTRY_OVERWRITTEN: u32 = 1 << 16;
    pub(crate) const TWO_LEADERS: u32 = 1 << 17;
    pub(crate) const LATE_WRITE_REFUSED: u32 = 1 << 18;
    pub(crate) const HOLDER_GAVE_UP_FIRST: u32 = 1 << 19;
    pub(crate) const OLD_ENTRY_COMMITTED: u32 = 1 << 20;
}

#[derive(Clone, Debug)]
pub(crate) struct Account {
    reference: ReferenceTable,
    /// The client that holds the key.
    pub(crate) holder: Option<u8>,
    /// The term of the entry that queued a client, while it waits.
    queued_in: [Option<u8>; CLIENTS_MAX],
    granted: [bool; CLIENTS_MAX],
    /// Unlocked, withdrawn or expired.
    ended: [bool; CLIENTS_MAX],
    pub(crate) broken: u16,
    pub(crate) seen: u32,
}

impl Account {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self {
            reference: ReferenceTable::new(bounds.table()),
            holder: None,
            queued_in: [None; CLIENTS_MAX],
            granted: [false; CLIENTS_MAX],
            ended: [false; CLIENTS_MAX],
            broken: 0,
            seen: 0,
        }
    }

    /// Checks one entry: `effects` are the table's, and `table` is the table after it.
    pub(crate) fn step(
        &mut self,
        term: u8,
        stamp: ClusterTime,
        command: &Command,
        effects: &[Effect],
        table: &LockTable,
    ) {
        let nonces = (0..CLIENTS_MAX as u8).map(nonce_of);
        let agrees = self.reference.apply(stamp, command) == effects
            && self.reference.disagreement(table, &[KEY], nonces).is_none();
        self.require(agrees, broken::REFERENCE);
        let mut expired = false;
        for effect in effects {
            expired |= matches!(effect, Effect::Expired { .. });
            self.note(effect, term, expired, matches!(command, Command::Gone { .. }));
        }
        self.holder = self.reference.holder(KEY).map(|view| client_of(view.nonce));
    }

    fn note(&mut self, effect: &Effect, term: u8, expired: bool, gone: bool) {
        self.seen |= match effect {
            Effect::Granted(grant) => self.note_grant(client_of(grant.nonce), term, expired),
            Effect::Queued { nonce, .. } => {
                let client = usize::from(client_of(*nonce));
                self.require(!self.ended[client], broken::ENDED_GRANTED);
                self.queued_in[client].get_or_insert(term);
                0
            }
            Effect::Dropped { nonce, .. } => {
                self.queued_in[usize::from(client_of(*nonce))] = None;
                if gone { seen::WAITER_GONE } else { seen::WAITER_RAN_OUT }
            }
            Effect::Expired { nonce, .. } => {
                self.ended[usize::from(client_of(*nonce))] = true;
                0
            }
            Effect::Unlocked { nonce, was, .. } => {
                let client = usize::from(client_of(*nonce));
                self.ended[client] = true;
                self.queued_in[client] = None;
                if *was == Ended::Waited { seen::WAITER_WITHDRAWN } else { 0 }
            }
            Effect::Extended { held: Some(_), .. } => seen::EXTENDED,
            Effect::Extended { held: None, .. } => seen::EXTENDED_TOO_LATE,
            Effect::Refused { reason, .. } => match reason {
                Refusal::Spent(Ended::Unlocked) => seen::LATE_LOCK_REFUSED,
                Refusal::Spent(Ended::Withdrawn) => seen::UNLOCK_BEFORE_LOCK,
                Refusal::Stale { .. } => seen::STALE_REFUSED,
                _ => 0,
            },
        };
    }

    fn note_grant(&mut self, client: u8, term: u8, expired: bool) -> u32 {
        let at = usize::from(client);
        self.require(!self.ended[at], broken::ENDED_GRANTED);
        if self.holder == Some(client) && !self.ended[at] {
            return seen::GRANT_REPEATED;
        }
        self.require(!self.granted[at], broken::GRANTED_TWICE);
        self.granted[at] = true;
        let Some(queued_in) = self.queued_in[at].take() else { return 0 };
        let across = if queued_in < term { seen::GRANT_ACROSS_TERMS } else { 0 };
        across | if expired { seen::EXPIRED_WITH_WAITER } else { seen::GRANTED_BY_UNLOCK }
    }

    fn require(&mut self, holds: bool, rule: u16) {
        if !holds {
            self.broken |= rule;
        }
    }
}

/// The account is no rubber stamp: effects that the table did not have break it.
#[test]
fn forged_effects_break_the_account() {
    use gaggle_strategies::lock_table::Wait;

    use super::{raft::Cmd, replay::command};

    let bounds = Bounds::clients(&[Wait::Forever; 3]);
    let (mut table, mut account) = (LockTable::new(bounds.table()), Account::new(&bounds));
    let mut step = |cmd: Cmd, forged: Option<&[Effect]>| {
        let (command, mut effects) = (command(cmd, &bounds), Vec::new());
        table.apply(ClusterTime(0), &command, &mut effects);
        let mut judged = account.clone();
        judged.step(1, ClusterTime(0), &command, forged.unwrap_or(&effects), &table);
        let broken = judged.broken;
        account = judged;
        (effects, broken)
    };
    let (granted, broken) = step(Cmd::Lock { client: 0, seen: 0 }, None);
    assert_eq!(broken, 0, "what happened breaks no rule");
    step(Cmd::Lock { client: 1, seen: 0 }, None);
    // A lost wake-up, and a nonce that was granted before.
    let (_, broken) = step(Cmd::Unlock(0), Some(&granted));
    assert_ne!(broken & broken::REFERENCE, 0);
    let (_, broken) = step(Cmd::Unlock(1), Some(&granted));
    assert_ne!(broken & broken::GRANTED_TWICE, 0);
}
