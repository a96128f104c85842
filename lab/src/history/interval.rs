//! The interval check: rules that hold for every order of the operations, without a search.
//!
//! It costs a sort, whatever the contention and however many calls never got a reply. It sees
//! certain intervals only: from when a grant was *known* to when it may first have ended.

mod holds;
mod nonce;
mod queue;
mod tokens;

use super::{
    ModelKind, Operation, Rule, Violation,
    acquisition::{Acquisition, Acquisitions},
    report::VIOLATIONS_KEPT,
};

/// Which rules apply, by the models asked for. The rules about a nonce alone always do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    /// Tokens rise: fenced.
    tokens: bool,
    /// A hold lasts at least to its deadline: leased and queued.
    leases: bool,
    /// First come, first served: queued.
    fifo: bool,
}

/// The violations found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) total: u64,
    pub(super) kept: Vec<Violation>,
}

/// One key's acquisitions under the check.
struct Key<'a, 'h> {
    acquisitions: &'a Acquisitions<'h>,
    of_key: &'a [Acquisition],
}

impl Rules {
    pub(super) fn of(models: &[ModelKind]) -> Self {
        let mut rules = Self::default();
        for model in models {
            match model {
                ModelKind::Fenced => rules.tokens = true,
                ModelKind::Leased => rules.leases = true,
                ModelKind::Queued => (rules.leases, rules.fifo) = (true, true),
            }
        }
        rules
    }
}

/// Checks the key at `place`.
pub(super) fn check(acquisitions: &Acquisitions<'_>, place: usize, rules: Rules) -> Found {
    let of_key = &acquisitions.all[acquisitions.keys[place].clone()];
    let key = Key { acquisitions, of_key };
    let mut found = Found::default();
    for acquisition in of_key {
        nonce::check(&key, acquisition, rules, &mut found);
    }
    holds::check(&key, rules, &mut found);
    if rules.tokens {
        tokens::check(&key, &mut found);
    }
    if rules.fifo {
        queue::check(&key, &mut found);
    }
    found
}

impl<'h> Key<'_, 'h> {
    fn operation(&self, number: u32) -> &'h Operation {
        self.acquisitions.operation(number)
    }
}

impl Found {
    /// Notes a breach of `rule` by these operations.
    fn note(&mut self, key: &Key<'_, '_>, rule: Rule, operations: &[u32]) {
        self.total += 1;
        if self.kept.len() < VIOLATIONS_KEPT {
            let mut numbers = operations.to_vec();
            numbers.sort_unstable();
            numbers.dedup();
            let operations: Vec<Operation> =
                numbers.iter().map(|&number| key.operation(number).clone()).collect();
            self.kept.push(Violation { rule, key: operations[0].key.clone(), operations });
        }
    }
}
