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

/// An acquisition, by its number. It belongs to key `n % 2`, and asks with the same words whenever it asks.
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
    /// So many hundred seconds pass.
    Pass {
        hundreds: u64,
    },
    /// The process is not heard of any more; another takes its number.
    Silence {
        process: u8,
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
        1 => (0..3_u8).prop_map(|process| Command::Silence { process }),
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
pub(super) const fn process_of(nonce: N) -> u8 {
    match nonce % 7 {
        0..4 => 0,
        4..6 => 1,
        _ => 2,
    }
}

/// What the sender of a nonce knows of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    /// Copies of its LOCK may be in flight, as Redis was told.
    pub(super) repeated: bool,
    /// Which start of its process it belongs to.
    pub(super) start: u8,
}

/// The reference table, with what it does not keep: who has sent what.
pub(super) struct Model {
    pub(super) table: ReferenceTable,
    pub(super) now_ms: u64,
    pub(super) sent: BTreeMap<N, Sent>,
    /// When a nonce ended whose end must be remembered.
    pub(super) remembered: BTreeMap<N, u64>,
    starts: [u8; 3],
    /// Those that have waited, in the order in which they came, and when each lease ends.
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
            starts: [0; 3],
            waited: Vec::new(),
            leases: BTreeMap::new(),
        }
    }

    /// Whether a client could send this now.
    pub(super) fn is_legal(&self, command: &Command) -> bool {
        match *command {
            Command::Lock { nonce, copies } => match self.sent.get(&nonce) {
                None => true,
                // A copy, by the process that sent it, of what has not ended or is surely remembered.
                Some(sent) => {
                    copies
                        && sent.start == self.starts[usize::from(process_of(nonce))]
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
                let start = self.starts[usize::from(process_of(nonce))];
                let sent = self.sent.entry(nonce).or_insert(Sent { repeated: false, start });
                sent.repeated |= copies;
                let step = Step::Lock(LockRequest {
                    key: key(nonce),
                    nonce: of(nonce),
                    process: ProcessId(self.process(process_of(nonce))),
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
                let repeated = self.sent.get(&nonce).is_some_and(|sent| sent.repeated);
                let held = self.table.knows(of(nonce)) == Some(Known::Holds);
                let forget = !(copies || repeated && held);
                let known = self.table.knows(of(nonce));
                self.step(&Step::Unlock { key: key(nonce), nonce: of(nonce), forget });
                if !forget {
                    self.remembered.insert(nonce, self.now_ms);
                }
                self.sent.entry(nonce).or_default().repeated |= copies;
                match known {
                    Some(Known::Holds) => &["held"],
                    Some(Known::Waits) => &["waited"],
                    // Its wait was over, or its process silent: it may stand in the queue.
                    _ => &["gone", "waited"],
                }
            }
            Command::Extend { nonce } => {
                let process = ProcessId(self.process(process_of(nonce)));
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
            Command::Silence { process } => {
                let gone = ProcessId(self.process(process));
                self.starts[usize::from(process)] += 1;
                self.step(&Step::Gone { process: gone });
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
                    let repeated = self.sent.get(&nonce).is_some_and(|sent| sent.repeated);
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

    /// The number by which a process runs now.
    pub(super) fn process(&self, process: u8) -> u64 {
        u64::from(process) + 10 * u64::from(self.starts[usize::from(process)])
    }

    pub(super) fn is_waiting(&self, nonce: N) -> bool {
        self.table.knows(of(nonce)) == Some(Known::Waits)
    }

    /// Those that wait for a key, in order.
    pub(super) fn waiting(&self, of_key: N) -> Vec<N> {
        let of_key = self.waited.iter().copied().filter(|nonce| nonce % 2 == of_key);
        of_key.filter(|nonce| self.is_waiting(*nonce)).collect()
    }

    /// Whether Redis may still remember it: not for longer than the memory after its end.
    pub(super) fn may_be_remembered(&self, nonce: N) -> bool {
        let holds = self.table.knows(of(nonce)) == Some(Known::Holds);
        holds && self.sent[&nonce].repeated
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
