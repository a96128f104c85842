//! The commands that are drawn, and the keys as they should be after each.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

/// A nonce, by its number; it belongs to key `n % 2` and a process.
pub(super) type N = u8;

const NONCES: N = 14;

/// Three processes, of which the first has most nonces.
pub(super) const fn process_of(nonce: N) -> u8 {
    match nonce {
        0..10 => 0,
        10..12 => 1,
        _ => 2,
    }
}

#[derive(Clone, Debug)]
pub(super) enum Command {
    Lock {
        nonce: N,
        waits: bool,
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
    /// The key's lease ends.
    Expire {
        key: u8,
    },
    /// The process is not heard for too long.
    Silence {
        process: u8,
    },
}

pub(super) fn commands() -> impl Strategy<Value = Vec<Command>> {
    let nonce = || 0..NONCES;
    let command = prop_oneof![
        6 => (nonce(), any::<bool>(), any::<bool>())
            .prop_map(|(nonce, waits, copies)| Command::Lock { nonce, waits, copies }),
        4 => (nonce(), any::<bool>()).prop_map(|(nonce, copies)| Command::Unlock { nonce, copies }),
        1 => nonce().prop_map(|nonce| Command::Extend { nonce }),
        2 => nonce().prop_map(|nonce| Command::Poll { nonce }),
        3 => (0..2_u8).prop_map(|key| Command::Expire { key }),
        1 => (0..3_u8).prop_map(|process| Command::Silence { process }),
    ];
    proptest::collection::vec(command, 1..40)
}

/// One key as it should be.
#[derive(Default)]
pub(super) struct Key {
    pub(super) holder: Option<(N, Flag)>,
    pub(super) queue: VecDeque<(N, Flag)>,
    pub(super) alive: BTreeSet<u8>,
}

/// What is remembered of a grant.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum Flag {
    Nothing,
    Queued,
    Copies,
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) keys: [Key; 2],
    pub(super) remembered: BTreeSet<N>,
    /// Grants to waiters that the last command made.
    pub(super) told: Vec<N>,
}

impl Model {
    /// Gives a key that nobody has to the next.
    pub(super) fn settle(&mut self, key: u8) {
        let Self { keys, remembered, told } = self;
        let key = &mut keys[usize::from(key)];
        while key.holder.is_none() {
            let Some((nonce, flag)) = key.queue.pop_front() else { break };
            if key.alive.contains(&process_of(nonce)) {
                key.holder = Some((nonce, flag));
                remembered.insert(nonce);
                told.push(nonce);
            }
        }
    }

    pub(super) fn apply(&mut self, command: &Command) -> &'static str {
        self.told.clear();
        match *command {
            Command::Lock { nonce, waits, copies } => {
                self.settle(nonce % 2);
                let key = &mut self.keys[usize::from(nonce % 2)];
                if let Some((holder, flag)) = &mut key.holder
                    && *holder == nonce
                {
                    if copies {
                        *flag = Flag::Copies;
                        self.remembered.insert(nonce);
                    }
                    return "again";
                }
                if self.remembered.contains(&nonce) {
                    return "spent";
                }
                if key.holder.is_none() {
                    key.holder = Some((nonce, if copies { Flag::Copies } else { Flag::Nothing }));
                    if copies {
                        self.remembered.insert(nonce);
                    }
                    return "granted";
                }
                if !waits {
                    return "held";
                }
                let flag = if copies { Flag::Copies } else { Flag::Queued };
                match key.queue.iter_mut().find(|(queued, _)| *queued == nonce) {
                    Some((_, present)) if *present < flag => *present = flag,
                    Some(_) => {}
                    None => key.queue.push_back((nonce, flag)),
                }
                key.alive.insert(process_of(nonce));
                "queued"
            }
            Command::Unlock { nonce, mut copies } => {
                let key = &mut self.keys[usize::from(nonce % 2)];
                let was = match key.holder {
                    Some((holder, flag)) if holder == nonce => {
                        key.holder = None;
                        copies |= flag == Flag::Copies;
                        if !copies {
                            self.remembered.remove(&nonce);
                        }
                        "held"
                    }
                    _ => {
                        let before = key.queue.len();
                        key.queue.retain(|(queued, _)| *queued != nonce);
                        if key.queue.len() < before { "waited" } else { "gone" }
                    }
                };
                if copies {
                    self.remembered.insert(nonce);
                }
                self.settle(nonce % 2);
                was
            }
            Command::Extend { nonce } => {
                self.settle(nonce % 2);
                self.state(nonce, ["held", "gone", "gone", "gone"])
            }
            Command::Poll { nonce } => {
                let key = &mut self.keys[usize::from(nonce % 2)];
                if !key.queue.is_empty() {
                    key.alive.insert(process_of(nonce));
                }
                self.settle(nonce % 2);
                self.state(nonce, ["granted", "waits", "spent", "unknown"])
            }
            Command::Expire { key } => {
                self.keys[usize::from(key)].holder = None;
                ""
            }
            Command::Silence { process } => {
                self.keys.iter_mut().for_each(|key| key.alive.retain(|alive| *alive != process));
                ""
            }
        }
    }

    pub(super) fn state(
        &self,
        nonce: N,
        [held, waits, spent, unknown]: [&'static str; 4],
    ) -> &'static str {
        let key = &self.keys[usize::from(nonce % 2)];
        if key.holder.is_some_and(|(holder, _)| holder == nonce) {
            held
        } else if key.queue.iter().any(|(queued, _)| *queued == nonce) {
            waits
        } else if self.remembered.contains(&nonce) {
            spent
        } else {
            unknown
        }
    }
}
