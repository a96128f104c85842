//! The commands that are drawn, and what the reference table makes of them.

use std::{collections::BTreeMap, sync::Arc};

use gaggle_strategies::{
    Nonce, Owner,
    lock_table::{
        ClusterTime, Command as Step, Effect, Known, LockRequest, ProcessId, Seen, TableConfig,
        Wait,
    },
    testing::ReferenceTable,
};
use proptest::prelude::*;

/// An acquisition, by its number. It belongs to key `n % 2`, and asks with the same words whenever
/// it asks.
pub(super) type N = u8;

const NONCES: N = 24;
/// How long ended nonces are remembered (ms). Commands come at multiples of 100 s, and nothing ends
/// within 10 s of one: what the machine takes decides nothing.
pub(super) const MEMORY_MS: u64 = 160_000;
pub(super) const SLACK_MS: u64 = 40_000;

#[derive(Clone, Debug)]
pub(super) enum Command {
    /// The first LOCK of a nonce, or a copy of it.
    Lock {
        nonce: N,
        copies: bool,
    },
    Unlock {
        nonce: N,
        copies: bool,
    },
    Extend {
        nonce: N,
    },
    Poll {
        nonce: N,
    },
    /// Time passes.
    Pass {
        hundreds: u64,
    },
}

pub(super) fn commands() -> impl Strategy<Value = Vec<Command>> {
    let nonce = || 0..NONCES;
    let command = prop_oneof![
        8 => (nonce(), any::<bool>()).prop_map(|(nonce, copies)| Command::Lock { nonce, copies }),
        4 => (nonce(), any::<bool>()).prop_map(|(nonce, copies)| Command::Unlock { nonce, copies }),
        1 => nonce().prop_map(|nonce| Command::Extend { nonce }),
        2 => nonce().prop_map(|nonce| Command::Poll { nonce }),
        3 => (1..5_u64).prop_map(|hundreds| Command::Pass { hundreds }),
    ];
    proptest::collection::vec(command, 1..60)
}

pub(super) const fn lease_ms(nonce: N) -> u64 {
    50_000 + 100_000 * (nonce as u64 / 2 % 3)
}

pub(super) const fn wait(nonce: N) -> Wait {
    match nonce / 2 % 4 {
        0 => Wait::No,
        1 => Wait::Forever,
        2 => Wait::Ms(130_000),
        _ => Wait::Ms(330_000),
    }
}

/// Three processes, of which the first has most nonces.
pub(super) const fn process_of(nonce: N) -> u64 {
    match nonce % 7 {
        0..4 => 0,
        4..6 => 1,
        _ => 2,
    }
}

/// The reference table, and what the clients have sent.
pub(super) struct Model {
    pub(super) table: ReferenceTable,
    pub(super) now_ms: u64,
    /// Whether copies of its LOCK may be in flight, as the scripts know it.
    pub(super) sent: BTreeMap<N, bool>,
    /// When a nonce ended whose end must be remembered.
    pub(super) remembered: BTreeMap<N, u64>,
    /// All past and present waiters in order of arrival, and the end of each lease.
    waited: Vec<N>,
    leases: BTreeMap<N, u64>,
}

impl Model {
    pub(super) fn new() -> Self {
        let config = TableConfig { nonce_memory_ms: 1 << 40, ..TableConfig::default() };
        let now_ms = 1_000_000;
        Self {
            table: ReferenceTable::new(config),
            now_ms,
            sent: BTreeMap::new(),
            remembered: BTreeMap::new(),
            waited: Vec::new(),
            leases: BTreeMap::new(),
        }
    }

    /// Whether a client could send this now.
    pub(super) fn is_legal(&self, command: &Command) -> bool {
        match *command {
            Command::Lock { nonce, copies } => match self.sent.get(&nonce) {
                None => true,
                // A copy of a LOCK that has not ended or is certainly remembered.
                Some(_) => {
                    copies
                        && match self.table.knows(of(nonce)) {
                            Some(Known::Ended(_)) => self
                                .remembered
                                .get(&nonce)
                                .is_some_and(|at| self.now_ms < at + MEMORY_MS - SLACK_MS),
                            known => known.is_some(),
                        }
                }
            },
            _ => true,
        }
    }

    /// What the verb answers; several words where Redis need not have looked yet.
    pub(super) fn apply(&mut self, command: &Command) -> &'static [&'static str] {
        match *command {
            Command::Lock { nonce, copies } => {
                *self.sent.entry(nonce).or_default() |= copies;
                let step = Step::Lock(LockRequest {
                    key: key(nonce),
                    nonce: of(nonce),
                    process: ProcessId(process_of(nonce)),
                    request: 0,
                    duration_ms: lease_ms(nonce),
                    wait: wait(nonce),
                    seen: Seen::Now,
                    owner: Arc::new(Owner::this_process(None)),
                });
                let before = self.table.knows(of(nonce));
                self.step(&step);
                match (before, self.table.knows(of(nonce))) {
                    (Some(Known::Holds), Some(Known::Holds)) => &["again"],
                    (Some(Known::Waits), Some(Known::Holds)) => &["again"],
                    (_, Some(Known::Holds)) => &["granted"],
                    (_, Some(Known::Waits)) => &["queued"],
                    (_, Some(Known::Ended(_))) => &["spent"],
                    (_, None) => &["held"],
                }
            }
            Command::Unlock { nonce, copies } => {
                let repeated = self.sent.get(&nonce).copied().unwrap_or_default();
                let held = self.table.knows(of(nonce)) == Some(Known::Holds);
                let forget = !(copies || repeated && held);
                let known = self.table.knows(of(nonce));
                self.step(&Step::Unlock { key: key(nonce), nonce: of(nonce), forget });
                if !forget {
                    self.remembered.insert(nonce, self.now_ms);
                }
                *self.sent.entry(nonce).or_default() |= copies;
                match known {
                    Some(Known::Holds) => &["held"],
                    Some(Known::Waits) => &["waited"],
                    // Its wait was over, or its process silent: it may stand in the queue.
                    _ => &["gone", "waited"],
                }
            }
            Command::Extend { nonce } => {
                let process = ProcessId(process_of(nonce));
                let duration_ms = lease_ms(nonce);
                let (key, nonce) = (key(nonce), of(nonce));
                let step = Step::Extend { key, nonce, process, request: 0, duration_ms };
                self.step(&step);
                let holds = self.table.knows(nonce) == Some(Known::Holds);
                if holds { &["held"] } else { &["gone"] }
            }
            Command::Poll { nonce } => match self.table.knows(of(nonce)) {
                Some(Known::Holds) => &["granted"],
                Some(Known::Waits) => &["waits"],
                _ => &["spent", "unknown", "waits"],
            },
            Command::Pass { hundreds } => {
                self.now_ms += 100_000 * hundreds;
                self.step(&Step::Noop);
                &[""]
            }
        }
    }

    fn step(&mut self, step: &Step) {
        for effect in self.table.apply(ClusterTime(self.now_ms), step) {
            match effect {
                Effect::Queued { nonce, .. } => {
                    let nonce = number(nonce);
                    if !self.waited.contains(&nonce) {
                        self.waited.push(nonce);
                    }
                }
                // Its end is remembered if it had waited, or copies may be in flight.
                Effect::Expired { nonce, .. } => {
                    let nonce = number(nonce);
                    let repeated = self.sent.get(&nonce).copied().unwrap_or_default();
                    if repeated || self.waited.contains(&nonce) {
                        self.remembered.insert(nonce, self.leases[&nonce]);
                    }
                }
                _ => {}
            }
        }
        for key in ["k0", "k1"] {
            if let Some(held) = self.table.holder(key) {
                self.leases.insert(number(held.nonce), held.expires_at.0);
            }
        }
    }

    pub(super) fn is_waiting(&self, nonce: N) -> bool {
        self.table.knows(of(nonce)) == Some(Known::Waits)
    }

    /// The waiters of a key in order.
    pub(super) fn waiting(&self, of_key: N) -> Vec<N> {
        let of_key = self.waited.iter().copied().filter(|nonce| nonce % 2 == of_key);
        of_key.filter(|nonce| self.is_waiting(*nonce)).collect()
    }

    /// Whether Redis may still remember it: not for longer than the memory after its end.
    pub(super) fn may_be_remembered(&self, nonce: N) -> bool {
        let holds = self.table.knows(of(nonce)) == Some(Known::Holds);
        holds && self.sent[&nonce]
            || self.remembered.get(&nonce).is_some_and(|at| self.now_ms < at + MEMORY_MS + SLACK_MS)
    }
}

pub(super) fn of(nonce: N) -> Nonce {
    Nonce::from_u128(u128::from(nonce) + 100)
}

pub(super) fn number(nonce: Nonce) -> N {
    N::try_from(nonce.as_u128() - 100).unwrap()
}

pub(super) fn key(nonce: N) -> Arc<str> {
    format!("k{}", nonce % 2).into()
}
