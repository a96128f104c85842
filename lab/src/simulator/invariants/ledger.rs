//! One live lease, rising tokens, no grant for an ended nonce.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gaggle_strategies::{
    lock::Nonce,
    lock_table::{
        ClusterTime, Command, Effect, Grant, LockRequest, PriorState, ProcessId, Refusal, Seen,
    },
};

use super::Acquisition;
use crate::simulator::coverage::Coverage;

/// The promises of the committed log, checked grant by grant: one live lease per key in cluster
/// time (contract, rule 1), rising tokens (5), nothing for a nonce that has ended (6), cluster time
/// that never goes back (3).
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    now: ClusterTime,
    holders: BTreeMap<Arc<str>, Held>,
    /// When each nonce ended; not forgotten by age, unlike in the table's own memory.
    ended: BTreeMap<Nonce, ClusterTime>,
    waiting: BTreeMap<Nonce, u64>,
    /// Every nonce whose LOCK was committed.
    asked: BTreeSet<Nonce>,
    /// The waiters of each key, first come, first served.
    queues: BTreeMap<Arc<str>, Vec<Nonce>>,
    /// The process of the last LOCK of each nonce that was granted or queued.
    requesters: BTreeMap<Nonce, ProcessId>,
    /// Acquisitions that an unlock found held, until they are taken.
    unlocked: Vec<Acquisition>,
    /// A key may be free for a moment while the waiter at its head may be alive, as in Redis.
    keeps_heads: bool,
    /// Before this time a group grants nothing.
    opens_at: ClusterTime,
}

#[derive(Clone, Debug)]
struct Held {
    nonce: Nonce,
    token: u64,
    expires_at: ClusterTime,
}

impl Ledger {
    /// That of a new group: it waits for leases of at most `outside_max_ms` that are held outside
    /// its members, and for the drift of clocks over them (1 %).
    pub(super) fn of_group(outside_max_ms: u64) -> Self {
        let opens_at = ClusterTime(outside_max_ms + outside_max_ms.div_ceil(100));
        Self { opens_at, ..Self::default() }
    }

    /// That of the scripts in Redis.
    pub(super) fn of_scripts() -> Self {
        Self { keeps_heads: true, ..Self::default() }
    }

    /// Takes the effects of one committed entry. `last_tokens` are those of all groups there ever
    /// were; `heads` are the waiters that were next before this entry.
    pub(super) fn check(
        &mut self,
        term: u64,
        (stamp, command): (ClusterTime, &Command),
        effects: &[Effect],
        last_tokens: &mut BTreeMap<Arc<str>, u64>,
        head: impl Fn(&str) -> Option<Nonce>,
        coverage: &mut Coverage,
    ) {
        assert!(stamp >= self.now, "cluster time fell from {:?} to {stamp:?}", self.now);
        self.now = stamp;
        let mut is_repeated = false;
        if let Command::Lock(request) = command {
            self.check_lock(request, effects);
            is_repeated = !self.asked.insert(request.nonce);
        }
        for (place, effect) in effects.iter().enumerate() {
            // A LOCK takes effect after the leases and waits that end before it.
            if let Command::Lock(request) = command
                && (place + 1 == effects.len() || self.keeps_heads)
            {
                self.requested(request, effect, coverage);
            }
            match effect {
                Effect::Granted(grant) => self.granted(term, grant, last_tokens, coverage),
                Effect::Queued { key, nonce, .. } => {
                    let behind =
                        self.holders.contains_key(key) || (self.keeps_heads && head(key).is_some());
                    assert!(behind, "a waiter stands behind a holder or another waiter");
                    if self.waiting.insert(*nonce, term).is_some() {
                        coverage.reach("repeated nonce while it waits");
                    } else {
                        self.queues.entry(key.clone()).or_default().push(*nonce);
                    }
                }
                Effect::Unlocked { key, nonce, was, .. } => {
                    self.unlocked(key, *nonce, *was, coverage);
                }
                Effect::Extended { nonce, held: Some((token, end)), .. } => {
                    let held = self.holders.values_mut().find(|held| held.nonce == *nonce);
                    let held = held.expect("only a holder is extended");
                    assert_eq!(*token, held.token, "an extend changes no token");
                    assert!(*end >= held.expires_at, "an extend shortened a lease");
                    held.expires_at = *end;
                    coverage.reach("lease extended");
                }
                Effect::Extended { held: None, .. } => {
                    coverage.reach("extend of a lost lock refused");
                }
                Effect::Expired { key, nonce, .. } => {
                    let held = self.holders.remove(key).expect("what expires was held");
                    assert_eq!(held.nonce, *nonce, "a lease ends in its holder's name");
                    assert!(held.expires_at <= self.now, "a lease ended before its time");
                    self.ended.insert(*nonce, self.now);
                    let waited = head(key).is_some();
                    coverage.reach(match waited {
                        true => "lease expired with a waiter",
                        false => "lease expired with none",
                    });
                }
                Effect::Dropped { key, nonce, process } => {
                    self.waiting.remove(nonce);
                    self.dequeued(key, *nonce);
                    let requester = self.requesters.get(nonce);
                    assert_eq!(requester, Some(process), "a waiter is its last LOCK's process's");
                    let drops = matches!(command, Command::DropWaiters { .. });
                    if drops {
                        coverage.reach("waiter dropped with its process");
                    } else if head(key) == Some(*nonce) {
                        coverage.reach("waiter expired at the head");
                    }
                }
                Effect::Refused { reason, .. } => {
                    self.refused(command, reason);
                    coverage.refused(reason, is_repeated);
                }
            }
        }
        for (key, held) in &self.holders {
            assert!(held.expires_at > self.now, "the lease on {key} outlived its end");
        }
    }

    /// A LOCK whose sender cannot have known the end of its nonce gets nothing.
    fn check_lock(&mut self, request: &LockRequest, effects: &[Effect]) {
        let nonce = request.nonce;
        let accepted = effects.iter().any(|effect| match effect {
            Effect::Granted(grant) => grant.nonce == nonce,
            Effect::Queued { nonce: queued, .. } => *queued == nonce,
            _ => false,
        });
        if !accepted {
            return;
        }
        if let Some(ended) = self.ended.remove(&nonce) {
            let knew = matches!(request.seen, Seen::At { time, .. } if time > ended);
            assert!(knew, "a nonce was granted that had ended at {ended:?}: {request:?}");
        }
    }

    /// The process of a LOCK that is granted or queued gets what the nonce is granted.
    fn requested(&mut self, request: &LockRequest, effect: &Effect, coverage: &mut Coverage) {
        let LockRequest { nonce, process, .. } = *request;
        let repeated = match effect {
            Effect::Granted(grant) if grant.nonce == nonce => {
                "repeated nonce of another process while it holds"
            }
            Effect::Queued { nonce: queued, .. } if *queued == nonce => {
                "repeated nonce of another process while it waits"
            }
            _ => return,
        };
        let before = self.requesters.insert(nonce, process);
        if before.is_some_and(|before| before != process) {
            coverage.reach(repeated);
        }
    }

    /// A LOCK is refused as held only while the key is held, and as spent only where its nonce
    /// ended.
    fn refused(&self, command: &Command, reason: &Refusal) {
        let Command::Lock(request) = command else { panic!("only a LOCK is refused") };
        match reason {
            Refusal::Held => {
                let held = self.holders.contains_key(&request.key);
                assert!(held, "refused as held, though the key is free: {request:?}");
            }
            Refusal::Spent => {
                let known = self.ended.contains_key(&request.nonce);
                assert!(known, "refused as ended, though it never ended: {request:?}");
            }
            Refusal::Stale | Refusal::Limit { .. } => {}
        }
    }

    fn granted(
        &mut self,
        term: u64,
        grant: &Grant,
        last_tokens: &mut BTreeMap<Arc<str>, u64>,
        coverage: &mut Coverage,
    ) {
        if let Some(held) = self.holders.get(&grant.key) {
            assert!(
                held.nonce == grant.nonce && held.token == grant.token,
                "two live leases on {}: token {} while {} holds",
                grant.key,
                grant.token,
                held.token
            );
            coverage.reach("repeated nonce while it holds");
            return;
        }
        let last = last_tokens.entry(grant.key.clone()).or_insert(0);
        assert!(grant.token > *last, "tokens fell on {}: {} after {last}", grant.key, grant.token);
        *last = grant.token;
        let range = if self.keeps_heads { 1..1 << 53 } else { 1 << 53..1 << 63 };
        assert!(range.contains(&grant.token), "token {} is not in {range:?}", grant.token);
        assert!(grant.expires_at > grant.granted_at, "a lease of nothing");
        assert_eq!(grant.granted_at, self.now, "a grant counts from its own stamp");
        assert!(
            self.now >= self.opens_at,
            "a new group grants at {:?}, before {:?}: leases outside may live",
            self.now,
            self.opens_at
        );
        let requester = self.requesters.get(&grant.nonce);
        assert_eq!(requester, Some(&grant.process), "a grant goes to the last LOCK's process");
        let asked_in = self.waiting.remove(&grant.nonce);
        if asked_in.is_some() && !self.keeps_heads {
            let queue = self.queues.get(&grant.key);
            let first = queue.and_then(|queue| queue.first());
            assert_eq!(first, Some(&grant.nonce), "a grant of {} overtook a waiter", grant.key);
        }
        self.dequeued(&grant.key, grant.nonce);
        if asked_in.is_some_and(|asked| asked != term) {
            coverage.reach("grant across a change of leader");
        }
        let held = Held { nonce: grant.nonce, token: grant.token, expires_at: grant.expires_at };
        self.holders.insert(grant.key.clone(), held);
    }

    fn unlocked(&mut self, key: &Arc<str>, nonce: Nonce, was: PriorState, coverage: &mut Coverage) {
        let holds = self.holders.get(key).filter(|held| held.nonce == nonce);
        assert_eq!(holds.is_some(), was == PriorState::Held, "an unlock frees its own nonce alone");
        match was {
            PriorState::Held => {
                let held = self.holders.remove(key).expect("it was just found");
                self.unlocked.push((nonce, held.token));
                self.ended.insert(nonce, self.now);
            }
            PriorState::Waited => {
                self.waiting.remove(&nonce);
                self.dequeued(key, nonce);
                self.ended.insert(nonce, self.now);
            }
            PriorState::Unknown => {
                // Withdrawn before its LOCK arrived, or forgotten long ago: over in both cases.
                self.ended.insert(nonce, self.now);
                if !self.asked.contains(&nonce) {
                    coverage.reach("withdrawal before its LOCK");
                }
            }
            PriorState::Ended => {}
        }
    }

    fn dequeued(&mut self, key: &Arc<str>, nonce: Nonce) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.retain(|waiter| *waiter != nonce);
        }
    }

    /// The acquisitions that were unlocked since the last call.
    pub(super) fn take_unlocked(&mut self) -> Vec<Acquisition> {
        std::mem::take(&mut self.unlocked)
    }

    /// Whether any lease lives.
    pub(super) fn has_leases(&self) -> bool {
        !self.holders.is_empty()
    }
}

impl Coverage {
    fn refused(&mut self, reason: &Refusal, is_repeated: bool) {
        match reason {
            Refusal::Stale => self.reach("stale LOCK refused"),
            Refusal::Spent if is_repeated => self.reach("repeated nonce after its unlock"),
            Refusal::Limit { .. } => self.reach("limit reached"),
            Refusal::Spent => self.reach("LOCK after its withdrawal"),
            Refusal::Held => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use gaggle_strategies::{lock::Owner, lock_table::Wait};

    use super::*;

    /// The ledger's verdict on a LOCK that was refused on a free key.
    fn refused(reason: Refusal) -> Result<(), String> {
        let nonce = Nonce::from_u128(7);
        let command = Command::Lock(LockRequest {
            key: "k".into(),
            nonce,
            process: ProcessId(1),
            duration_ms: 10,
            wait: Wait::No,
            seen: Seen::Now,
            owner: Arc::new(Owner::this_process(None)),
        });
        let ledger = Ledger::default();
        std::panic::catch_unwind(|| ledger.refused(&command, &reason))
            .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
    }

    #[test]
    fn a_refusal_without_a_cause_is_seen() {
        assert!(refused(Refusal::Held).is_err_and(|what| what.contains("the key is free")));
        let spent = refused(Refusal::Spent);
        assert!(spent.is_err_and(|what| what.contains("never ended")));
    }
}
