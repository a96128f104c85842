//! The result of a check.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{History, ModelKind, Operation, Outcome, Refusal};

/// How many violations are kept with the operations; all are counted.
pub const VIOLATIONS_KEPT: usize = 100;

/// A rule that a history breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A deadline is later than the longest lease asked for, counted from the reply (rule 2).
    DeadlineTooLate,
    /// No order of the operations explains them all by this model.
    Unexplained(ModelKind),
}

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The key.
    pub key: Arc<str>,
    /// The operations that break it, and enough to see it. Where no order explains the key: all
    /// that were invoked by the first reply that breaks it.
    pub operations: Vec<Operation>,
}

/// A search that ended by its budget: neither legal nor illegal, and no pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The key.
    pub key: Arc<str>,
    /// The model.
    pub model: ModelKind,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations in the history.
    pub operations: u64,
    /// Keys in the history.
    pub keys: u64,
    /// Locks granted.
    pub granted: u64,
    /// Unlocks done.
    pub unlocked: u64,
    /// Leases extended.
    pub extended: u64,
    /// Calls refused, by the reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// Calls whose outcome is unknown, those without a reply included.
    pub unknown: u64,
    /// Searches made: one for each key and model.
    pub searches: u64,
    /// Steps of all searches.
    pub steps: u64,
    /// Searches that ended by the budget.
    pub undecided: Vec<Undecided>,
    /// How many violations were found.
    pub violations_found: u64,
    /// The first [`VIOLATIONS_KEPT`] of them.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Counts the operations of a history; nothing is checked yet.
    pub(super) fn new(history: &History) -> Self {
        let mut report = Self { operations: history.operations().len() as u64, ..Self::default() };
        for operation in history.operations() {
            match operation.outcome {
                Outcome::Granted { .. } => report.granted += 1,
                Outcome::Done => report.unlocked += 1,
                Outcome::Extended { .. } => report.extended += 1,
                Outcome::Refused(refusal) => *report.refused.entry(refusal).or_default() += 1,
                Outcome::Unknown => report.unknown += 1,
            }
        }
        report
    }

    /// Counts a violation, and keeps it if it is one of the first.
    pub(super) fn add(&mut self, violation: Violation) {
        self.violations_found += 1;
        if self.violations.len() < VIOLATIONS_KEPT {
            self.violations.push(violation);
        }
    }

    /// Whether everything was decided, and legal.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.violations_found == 0 && self.undecided.is_empty()
    }

    /// The part of the operations whose outcome is unknown, from 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn unknown_share(&self) -> f64 {
        if self.operations == 0 { 0.0 } else { self.unknown as f64 / self.operations as f64 }
    }

    /// Panics with the whole report unless it [passed](Self::passed).
    ///
    /// # Panics
    ///
    /// On a violation, and on a search that was not decided.
    pub fn assert_passed(&self) {
        assert!(self.passed(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, keys, granted, unlocked, extended, unknown, .. } = self;
        write!(f, "{operations} operations on {keys} keys: {granted} granted, ")?;
        write!(f, "{unlocked} unlocked, {extended} extended, ")?;
        for (refusal, count) in &self.refused {
            write!(f, "{count} refused ({refusal}), ")?;
        }
        writeln!(f, "{unknown} unknown ({:.1} %)", self.unknown_share() * 100.0)?;
        let (undecided, found) = (self.undecided.len(), self.violations_found);
        write!(f, "{} searches, {} steps, {undecided} undecided, ", self.searches, self.steps)?;
        writeln!(f, "{found} violations")?;
        for Undecided { key, model } in &self.undecided {
            writeln!(f, "undecided: {key:?} as {model}")?;
        }
        for violation in &self.violations {
            write!(f, "{violation}")?;
        }
        if found > self.violations.len() as u64 {
            writeln!(f, "… and {} more", found - self.violations.len() as u64)?;
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "VIOLATION on {:?}: {}", self.key, self.rule)?;
        self.operations.iter().try_for_each(|operation| writeln!(f, "    {operation}"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadlineTooLate => "a deadline after the end of the lease",
            Self::Unexplained(model) => return write!(f, "no order explains this as {model}"),
        })
    }
}
