//! The operations of a history, grouped by nonce.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use gaggle_strategies::Drift;

use super::{Call, History, Operation, Outcome, Refusal};

/// The part of a history that concerns one nonce, which is one acquisition of one key.
#[derive(Clone, Debug)]
pub(super) struct Acquisition {
    /// Its operations, in [`Acquisitions::order`].
    pub(super) operations: Range<usize>,
    /// The earliest invocation of a LOCK that may have taken effect.
    pub(super) asked: Option<Duration>,
    /// How many LOCKs may have taken effect.
    pub(super) locks: u32,
    /// The grant that was known first.
    pub(super) grant: Option<Granted>,
    /// The latest deadline of its holder.
    pub(super) until: Duration,
    /// The earliest two calls that may have ended it, with the invocations: unlocks, and LOCKs of
    /// the same nonce that failed, which withdraw it.
    pub(super) endings: [Option<(Duration, u32)>; 2],
    /// The unlock that succeeded and was known first: it ended by then.
    pub(super) done: Option<(Duration, u32)>,
    /// The latest invocation of a call that found it holding (an unlock or extend with success).
    pub(super) found: Option<(Duration, u32)>,
}

/// A grant that its caller has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    /// The operation.
    pub(super) operation: u32,
    /// When it was known.
    pub(super) completed: Duration,
    /// Its token.
    pub(super) token: u64,
    /// The first deadline of a grant of this nonce.
    pub(super) until: Duration,
}

/// All acquisitions of a history, key by key.
pub(super) struct Acquisitions<'h> {
    pub(super) history: &'h History,
    /// [`History::by_nonce`].
    pub(super) order: &'h [u32],
    /// All acquisitions, those of one key together.
    pub(super) all: Vec<Acquisition>,
    /// Of each key, its acquisitions.
    pub(super) keys: Vec<Range<usize>>,
}

impl<'h> Acquisitions<'h> {
    /// Groups the operations. Deadlines count as certain only less `drift` over the time from the
    /// reply to the deadline.
    pub(super) fn of(history: &'h History, drift: Drift) -> Self {
        let operations = history.operations();
        let operation = |number: u32| &operations[number as usize];
        // Each nonce's operations, and the number of its key in order of appearance.
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        let mut groups: Vec<(u32, Range<usize>)> = Vec::new();
        let mut start = 0;
        let order = history.by_nonce();
        for group in order.chunk_by(|one, other| operation(*one).nonce == operation(*other).nonce) {
            let end = start + group.len();
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            let key = *numbers.entry(&*operation(group[0]).key).or_insert(next);
            groups.push((key, start..end));
            start = end;
        }
        groups.sort_by_key(|(key, _)| *key);

        let mut keys: Vec<Range<usize>> = Vec::with_capacity(numbers.len());
        let mut all: Vec<Acquisition> = Vec::with_capacity(groups.len());
        for of_key in groups.chunk_by(|one, other| one.0 == other.0) {
            let start = all.len();
            for (_, group) in of_key {
                let mut acquisition = Acquisition::new(group.clone());
                for &number in &order[group.clone()] {
                    acquisition.take_in(number, operation(number), drift);
                }
                all.push(acquisition);
            }
            keys.push(start..all.len());
        }
        Self { history, order, all, keys }
    }

    /// The key at `place`.
    pub(super) fn key(&self, place: usize) -> Arc<str> {
        let first = &self.all[self.keys[place].start];
        Arc::clone(&self.operation(self.order[first.operations.start]).key)
    }

    /// An operation by its number.
    pub(super) fn operation(&self, number: u32) -> &'h Operation {
        &self.history.operations()[number as usize]
    }

    /// The operations of one acquisition, with numbers, in order of invocation.
    pub(super) fn operations(
        &self,
        acquisition: &Acquisition,
    ) -> impl Iterator<Item = (u32, &'h Operation)> + use<'_, 'h> {
        self.order[acquisition.operations.clone()]
            .iter()
            .map(|&number| (number, self.operation(number)))
    }
}

impl Acquisition {
    fn new(operations: Range<usize>) -> Self {
        Self {
            operations,
            asked: None,
            locks: 0,
            grant: None,
            until: Duration::ZERO,
            endings: [None; 2],
            done: None,
            found: None,
        }
    }

    /// Takes in the operation with this number; in order of invocation.
    fn take_in(&mut self, number: u32, operation: &Operation, drift: Drift) {
        let invoked = operation.invoked;
        let completed = operation.completed.unwrap_or(Duration::MAX);
        match (operation.call, operation.outcome) {
            (Call::Lock { .. }, Outcome::Granted { token, until }) => {
                let until = certain(completed, until, drift);
                self.asked.get_or_insert(invoked);
                self.locks += 1;
                self.until = self.until.max(until);
                let least = self.grant.map_or(until, |grant| grant.until.min(until));
                if self.grant.is_none_or(|grant| completed < grant.completed) {
                    self.grant =
                        Some(Granted { operation: number, completed, token, until: least });
                } else if let Some(grant) = &mut self.grant {
                    grant.until = least;
                }
            }
            (
                Call::Lock { .. },
                Outcome::Unknown | Outcome::Refused(Refusal::TimedOut | Refusal::Withdrawn),
            ) => {
                self.asked.get_or_insert(invoked);
                self.locks += 1;
                self.may_end(invoked, number);
            }
            (Call::Unlock, Outcome::Done) => {
                self.may_end(invoked, number);
                self.found = self.found.max(Some((invoked, number)));
                if self.done.is_none_or(|(done, _)| completed < done) {
                    self.done = Some((completed, number));
                }
            }
            (Call::Unlock, outcome) if outcome != Outcome::Refused(Refusal::NoEffect) => {
                self.may_end(invoked, number);
            }
            (Call::Extend { .. }, Outcome::Extended { until }) => {
                self.found = self.found.max(Some((invoked, number)));
                self.until = self.until.max(certain(completed, until, drift));
            }
            _ => {}
        }
    }

    fn may_end(&mut self, invoked: Duration, number: u32) {
        if let Some(place) = self.endings.iter_mut().find(|place| place.is_none()) {
            *place = Some((invoked, number));
        }
    }

    /// The first invocation of a call that may have ended it.
    pub(super) fn ending(&self) -> Duration {
        self.endings[0].map_or(Duration::MAX, |(invoked, _)| invoked)
    }

    /// The same, the operation `number` left aside.
    pub(super) fn ending_but(&self, number: u32) -> Duration {
        let other = self.endings.iter().flatten().find(|(_, ending)| *ending != number);
        other.map_or(Duration::MAX, |(invoked, _)| *invoked)
    }
}

/// How much of a lease that ends at `until`, known at `completed`, is certain if the clock of the
/// history and that of the holder drift apart.
pub(super) fn certain(completed: Duration, until: Duration, drift: Drift) -> Duration {
    until.saturating_sub(drift.over(until.saturating_sub(completed)))
}
