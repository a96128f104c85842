//! The outcomes of the cases.

use std::{fmt, time::Duration};

/// The environment variable that makes [`run`](super::run) run one case alone: its number.
pub const CASE_VARIABLE: &str = "GAGGLE_CASE";

/// A case of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The case's number, 1 to 43.
    pub number: u8,
    /// The fact that must hold.
    pub name: &'static str,
    /// The place in the contract.
    pub rule: &'static str,
}

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The strategy kept the contract.
    Passed,
    /// The strategy broke the contract; describes the violation.
    Failed(String),
    /// The contract asks nothing of this strategy here, by its capabilities; says why.
    NotApplicable(&'static str),
    /// The fixture lacks a power that the case needs; says which.
    Untried(&'static str),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(what) => write!(f, "FAILED: {what}"),
            Self::NotApplicable(why) => write!(f, "not applicable: {why}"),
            Self::Untried(why) => write!(f, "UNTRIED: {why}"),
        }
    }
}

/// A case, and how it ended.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// Which.
    pub case: Case,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, in the time of the runtime (virtual where that is paused).
    pub took: Duration,
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { number, name, rule } = self.case;
        write!(f, "{number:2} {name} [{rule}] {:.3} s: {}", self.took.as_secs_f64(), self.outcome)
    }
}

/// How all cases ended, on one strategy.
#[derive(Clone, Debug)]
pub struct Report {
    /// The strategy's name, from its capabilities.
    pub strategy: &'static str,
    /// The cases in the order of the numbers.
    pub cases: Vec<CaseReport>,
}

impl Report {
    /// The numbers of the cases that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<u8> {
        self.numbers(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// The numbers of the cases of which the contract asks nothing here.
    #[must_use]
    pub fn not_applicable(&self) -> Vec<u8> {
        self.numbers(|outcome| matches!(outcome, Outcome::NotApplicable(_)))
    }

    /// The numbers of the cases that the fixture could not try.
    #[must_use]
    pub fn untried(&self) -> Vec<u8> {
        self.numbers(|outcome| matches!(outcome, Outcome::Untried(_)))
    }

    /// Checks that no case failed and none was left untried.
    ///
    /// # Panics
    ///
    /// With the whole report and the way to replay one case, where one did not pass.
    pub fn assert_passed(&self) {
        self.assert_passed_but_untried(&[]);
    }

    /// Asserts the same as [`assert_passed`](Self::assert_passed), except that exactly these cases
    /// are untried.
    ///
    /// # Panics
    ///
    /// As [`assert_passed`](Self::assert_passed); also when one of these was tried after all, so
    /// that the list does not outlive its reason.
    pub fn assert_passed_but_untried(&self, untried: &[u8]) {
        self.assert_same("failed", &self.failed(), &[]);
        self.assert_same("untried", &self.untried(), untried);
    }

    /// Checks that the contract asks nothing in exactly these cases.
    ///
    /// # Panics
    ///
    /// With the whole report, where it was not exactly these.
    pub fn assert_not_applicable(&self, not_applicable: &[u8]) {
        self.assert_same("not applicable", &self.not_applicable(), not_applicable);
    }

    /// Compares only the cases that were run, so that one alone can be replayed.
    fn assert_same(&self, what: &str, found: &[u8], expected: &[u8]) {
        let was_run = |number: &u8| self.cases.iter().any(|report| report.case.number == *number);
        let expected: Vec<u8> = expected.iter().copied().filter(was_run).collect();
        let wrong = self.cases.iter().map(|report| report.case.number);
        let wrong = wrong.into_iter().find(|n| found.contains(n) != expected.contains(n));
        assert!(
            wrong.is_none(),
            "{self}\n{what}: cases {found:?}, expected {expected:?}\n\
             replay with {CASE_VARIABLE}={} and the same test command",
            wrong.unwrap_or_default()
        );
    }

    fn numbers(&self, wanted: impl Fn(&Outcome) -> bool) -> Vec<u8> {
        let wanted = self.cases.iter().filter(|report| wanted(&report.outcome));
        wanted.map(|report| report.case.number).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {}:", self.strategy)?;
        self.cases.iter().try_for_each(|case| writeln!(f, "  {case}"))
    }
}
