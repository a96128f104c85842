//! A reference model of the lock table without shared code.
//!
//! Tests and the fuzzer compare the two at every step.

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{
    Inspection,
    limits::DURATION_MAX,
    lock::Nonce,
    lock_table::{
        Bound, ClusterTime, Command, Effect, FORGOTTEN_PER_STEP, Grant, Known, LockRequest,
        LockTable, PriorState, ProcessId, Refusal, Seen, Sizes, TableConfig, Wait,
    },
};

/// The rules of [`lock_table`](gaggle_strategies::lock_table) on lists that are scanned: slow and simple.
///
/// It takes the table's commands and returns its effects. It has no snapshots and forgets all
/// nonces at once, so it agrees with a table only while fewer than [`FORGOTTEN_PER_STEP`] nonces
/// end at a time.
#[derive(Clone, Debug)]
pub struct ReferenceTable {
    config: TableConfig,
    now: u64,
    last_token: u64,
    arrivals: u64,
    acquisitions: Vec<Acquisition>,
    ended: Vec<(u64, Nonce)>,
    floor: Option<u64>,
}

/// A LOCK that was accepted, in order of arrival; it holds if it has a token.
#[derive(Clone, Debug)]
struct Acquisition {
    arrival: u64,
    request: LockRequest,
    asked_at: u64,
    /// The end of the wait, `None` if unbounded; unused once granted.
    deadline: Option<u64>,
    /// Token, time of the grant, end of the lease.
    granted: Option<(u64, u64, u64)>,
}

impl ReferenceTable {
    /// An empty table at time zero; `config` as for [`LockTable::new`].
    #[must_use]
    pub fn new(mut config: TableConfig) -> Self {
        config.first_token = config.first_token.clamp(1, 1 << 63);
        Self {
            now: 0,
            last_token: config.first_token - 1,
            arrivals: 0,
            acquisitions: Vec::new(),
            ended: Vec::new(),
            floor: None,
            config,
        }
    }

    /// Applies one command stamped `stamp`, and returns what happened, in order.
    pub fn apply(&mut self, stamp: ClusterTime, command: &Command) -> Vec<Effect> {
        if stamp.0 > self.now {
            self.now = if stamp.0 > 1 << 63 { 1 << 63 } else { stamp.0 };
        }
        let mut out = Vec::new();
        self.advance(&mut out);
        match command {
            Command::Noop => {}
            Command::Lock(request) => {
                let effect = self.lock(request);
                out.push(effect);
            }
            Command::Unlock { key, nonce, forget } => self.unlock(key, *nonce, *forget, &mut out),
            Command::Extend { key, nonce, process, request, duration_ms } => {
                let end = self.now.saturating_add(lease(*duration_ms));
                let mut held = None;
                for a in &mut self.acquisitions {
                    if a.request.nonce == *nonce
                        && a.request.key == *key
                        && let Some((token, _, expiry)) = &mut a.granted
                    {
                        *expiry = end.max(*expiry);
                        a.request.process = *process;
                        held = Some((*token, ClusterTime(*expiry)));
                    }
                }
                let (nonce, process, request) = (*nonce, *process, *request);
                out.push(Effect::Extended { nonce, process, request, held });
            }
            Command::DropWaiters { process } => {
                let process = *process;
                self.drop_all(|a| a.request.process == process, |a| Some(a.arrival), &mut out);
            }
        }
        out
    }

    /// Compares the table by queries of these keys and nonces. Returns the difference, if any.
    ///
    /// # Panics
    ///
    /// When [`LockTable::check`] finds the table broken.
    #[must_use]
    pub fn disagreement(
        &self,
        table: &LockTable,
        keys: &[&str],
        nonces: impl IntoIterator<Item = Nonce>,
    ) -> Option<String> {
        fn differ<T: PartialEq + std::fmt::Debug>(what: &str, table: T, we: T) -> Option<String> {
            (table != we).then(|| format!("{what}: the table {table:?}, the reference {we:?}"))
        }
        table.check();
        let waiting: Vec<_> = table.processes_waiting().collect();
        let of_keys = || {
            keys.iter().find_map(|key| {
                let text = Arc::from(*key);
                differ(&format!("holder of {key:?}"), table.holder(&text), self.holder(key))
                    .or_else(|| differ("inspection", table.inspect(&text), self.inspect(key)))
                    .or_else(|| {
                        differ("head of a queue", table.next_waiter(&text), self.next_waiter(key))
                    })
            })
        };
        let of_nonce = |nonce| differ("a nonce", table.knows(nonce), self.knows(nonce));
        differ("time", table.now().0, self.now)
            .or_else(|| differ("last token", table.last_token(), self.last_token))
            .or_else(|| differ("sizes", table.sizes(), self.sizes()))
            .or_else(|| differ("leases", table.has_leases(), self.sizes().keys > 0))
            .or_else(|| differ("due", table.next_due(), self.next_due()))
            .or_else(|| differ("forget", table.next_forget(), self.next_forget()))
            .or_else(|| differ("processes", waiting, self.processes_waiting()))
            .or_else(of_keys)
            .or_else(|| nonces.into_iter().find_map(of_nonce))
    }

    /// The greatest stamp seen.
    #[must_use]
    pub fn now(&self) -> ClusterTime {
        ClusterTime(self.now)
    }

    fn advance(&mut self, out: &mut Vec<Effect>) {
        let now = self.now;
        self.drop_all(|a| a.deadline.is_some_and(|end| end <= now), |a| a.deadline, out);
        let mut over = self.acquisitions.clone();
        over.retain(|a| a.granted.is_some_and(|(_, _, expiry)| expiry <= now));
        over.sort_by_key(|a| (a.granted.map(|granted| granted.2), a.arrival));
        for a in over {
            let key = a.request.key.clone();
            let LockRequest { nonce, process, .. } = a.request;
            let token = a.granted.expect("only holders are over").0;
            out.push(Effect::Expired { key: key.clone(), nonce, process, token });
            self.acquisitions.retain(|b| b.arrival != a.arrival);
            self.ended.push((now, nonce));
            self.promote(&key, out);
        }
        let memory = self.config.nonce_memory_ms;
        let young = |at: u64| at.saturating_add(memory) >= now;
        let forgotten = self.ended.iter().filter(|ended| !young(ended.0)).count();
        assert!(forgotten <= FORGOTTEN_PER_STEP, "the reference forgets all at once");
        self.ended.retain(|ended| young(ended.0));
        self.floor = self.floor.filter(|at| young(*at));
    }

    fn drop_all(
        &mut self,
        dead: impl Fn(&Acquisition) -> bool,
        order: impl Fn(&Acquisition) -> Option<u64>,
        out: &mut Vec<Effect>,
    ) {
        let mut dropped = self.acquisitions.clone();
        dropped.retain(|a| a.granted.is_none() && dead(a));
        dropped.sort_by_key(|a| (order(a), a.arrival));
        for a in dropped {
            self.acquisitions.retain(|b| b.arrival != a.arrival);
            let LockRequest { key, nonce, process, .. } = a.request;
            out.push(Effect::Dropped { key, nonce, process });
        }
    }

    fn promote(&mut self, key: &str, out: &mut Vec<Effect>) {
        let (now, token) = (self.now, self.last_token + 1);
        if let Some(a) = self.acquisitions.iter_mut().find(|a| *a.request.key == *key) {
            a.granted = Some((token, now, now.saturating_add(lease(a.request.duration_ms))));
            self.last_token = token;
            out.push(Effect::Granted(a.grant()));
        }
    }

    fn lock(&mut self, request: &LockRequest) -> Effect {
        let (nonce, process, key) = (request.nonce, request.process, &request.key);
        let refuse = |reason| Effect::Refused { nonce, process, reason };
        if self.has_ended(nonce) {
            return refuse(Refusal::Spent);
        }
        let asked = match request.wait {
            Wait::No => Some(self.now),
            Wait::Ms(ms) => Some(self.now.saturating_add(ms)),
            Wait::Forever => None,
        };
        if let Some(a) = self.acquisitions.iter_mut().find(|a| a.request.nonce == nonce) {
            if a.request.key != *key {
                return refuse(Refusal::Spent);
            }
            a.request.process = process;
            a.asked_at = self.now;
            a.deadline = match (a.deadline, asked) {
                (Some(one), Some(other)) => Some(one.max(other)),
                _ => None,
            };
            return match a.granted {
                Some(_) => Effect::Granted(a.grant()),
                None => Effect::Queued { key: key.clone(), nonce, process },
            };
        }
        let TableConfig { group, nonce_memory_ms, .. } = self.config;
        let fresh = match request.seen {
            Seen::Now => true,
            Seen::At { group: theirs, time } => {
                let above = self.floor.is_none_or(|floor| time.0 > floor);
                theirs == group && time.0.saturating_add(nonce_memory_ms) >= self.now && above
            }
        };
        if !fresh {
            return refuse(Refusal::Stale);
        }
        let limit = |what, limit| refuse(Refusal::Limit { what, limit });
        if self.full() {
            return limit(Bound::Nonces, self.config.nonces_max);
        }
        let ahead = self.acquisitions.iter().filter(|a| a.request.key == *key).count() as u64;
        let keys = self.acquisitions.iter().filter(|a| a.granted.is_some()).count() as u64;
        if ahead == 0 && keys >= self.config.keys_max {
            return limit(Bound::Keys, self.config.keys_max);
        }
        if ahead > 0 && matches!(request.wait, Wait::No | Wait::Ms(0)) {
            return refuse(Refusal::Held);
        }
        if ahead > self.config.waiters_per_key_max {
            return limit(Bound::WaitersPerKey, self.config.waiters_per_key_max);
        }
        self.arrivals += 1;
        self.acquisitions.push(Acquisition {
            arrival: self.arrivals,
            request: request.clone(),
            asked_at: self.now,
            deadline: asked,
            granted: None,
        });
        if ahead > 0 {
            return Effect::Queued { key: key.clone(), nonce, process };
        }
        let mut out = Vec::new();
        self.promote(key, &mut out);
        out.remove(0)
    }

    fn has_ended(&self, nonce: Nonce) -> bool {
        self.ended.iter().any(|(_, ended)| *ended == nonce)
    }

    fn unlock(&mut self, key: &Arc<str>, nonce: Nonce, forget: bool, out: &mut Vec<Effect>) {
        let mine = self.acquisitions.iter().position(|a| a.request.nonce == nonce);
        let has_ended = self.has_ended(nonce);
        let unlocked = |was, process| Effect::Unlocked { key: key.clone(), nonce, process, was };
        match mine {
            Some(at) if self.acquisitions[at].request.key == *key => {
                let ended = self.acquisitions.remove(at);
                let held = ended.granted.is_some();
                let was = if held { PriorState::Held } else { PriorState::Waited };
                out.push(unlocked(was, Some(ended.request.process)));
                if !forget {
                    self.ended.push((self.now, nonce));
                }
                if held {
                    self.promote(key, out);
                }
            }
            Some(_) => out.push(unlocked(PriorState::Unknown, None)),
            None => {
                out.push(unlocked(
                    if has_ended { PriorState::Ended } else { PriorState::Unknown },
                    None,
                ));
                if !has_ended && !forget && self.full() {
                    self.floor = Some(self.now);
                } else if !has_ended && !forget {
                    self.ended.push((self.now, nonce));
                }
            }
        }
    }

    fn full(&self) -> bool {
        (self.acquisitions.len() + self.ended.len()) as u64 >= self.config.nonces_max
    }

    /// Like [`LockTable::holder`].
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Grant> {
        let mut of_key = self.acquisitions.iter().filter(|a| *a.request.key == *key);
        let a = of_key.clone().find(|a| a.granted.is_some())?;
        assert!(of_key.next().is_some_and(|first| first.arrival == a.arrival));
        Some(a.grant())
    }

    /// Like [`LockTable::inspect`].
    #[must_use]
    pub fn inspect(&self, key: &str) -> Option<Inspection> {
        let mut of_key = self.acquisitions.iter().filter(|a| *a.request.key == *key);
        let a = of_key.next()?;
        let (token, at, end) = a.granted?;
        Some(Inspection {
            fencing_token: token,
            nonce: a.request.nonce,
            owner: (*a.request.owner).clone(),
            held_for: Duration::from_millis(self.now - at),
            remaining: Duration::from_millis(end - self.now),
            waiters: of_key.count() as u64,
        })
    }

    /// Like [`LockTable::next_waiter`].
    #[must_use]
    pub fn next_waiter(&self, key: &str) -> Option<(Nonce, ClusterTime)> {
        let mut of_key = self.acquisitions.iter().filter(|a| *a.request.key == *key);
        let head = of_key.find(|a| a.granted.is_none())?;
        Some((head.request.nonce, self.holder(key)?.expires_at))
    }

    /// Like [`LockTable::knows`].
    #[must_use]
    pub fn knows(&self, nonce: Nonce) -> Option<Known> {
        let live = self.acquisitions.iter().find(|a| a.request.nonce == nonce);
        match live {
            Some(a) if a.granted.is_some() => Some(Known::Holds),
            Some(a) => Some(Known::Waits { position: a.arrival }),
            None => self.has_ended(nonce).then_some(Known::Ended),
        }
    }

    /// Like [`LockTable::processes_waiting`].
    #[must_use]
    pub fn processes_waiting(&self) -> Vec<ProcessId> {
        let waiting = self.acquisitions.iter().filter(|a| a.granted.is_none());
        let mut processes: Vec<_> = waiting.map(|a| a.request.process).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// Like [`LockTable::next_due`].
    #[must_use]
    pub fn next_due(&self) -> Option<ClusterTime> {
        let ends = self.acquisitions.iter().filter_map(|a| a.granted);
        ends.map(|granted| ClusterTime(granted.2)).min()
    }

    /// Like [`LockTable::next_forget`].
    #[must_use]
    pub fn next_forget(&self) -> Option<ClusterTime> {
        let oldest = self.ended.first()?.0;
        Some(ClusterTime(oldest.saturating_add(self.config.nonce_memory_ms).saturating_add(1)))
    }

    /// Like [`LockTable::sizes`].
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let keys = self.acquisitions.iter().filter(|a| a.granted.is_some()).count() as u64;
        let waiters = self.acquisitions.len() as u64 - keys;
        Sizes { keys, waiters, nonces_remembered: self.ended.len() as u64 }
    }
}

/// The lease asked for, within 1 ms and the longest.
fn lease(asked_ms: u64) -> u64 {
    let longest = u64::try_from(DURATION_MAX.as_millis()).expect("a day");
    if asked_ms == 0 { 1 } else { asked_ms.min(longest) }
}

impl Acquisition {
    fn grant(&self) -> Grant {
        let (token, granted_at, expires_at) = self.granted.expect("granted");
        Grant {
            key: self.request.key.clone(),
            nonce: self.request.nonce,
            process: self.request.process,
            token,
            asked_at: ClusterTime(self.asked_at),
            granted_at: ClusterTime(granted_at),
            expires_at: ClusterTime(expires_at),
        }
    }
}
