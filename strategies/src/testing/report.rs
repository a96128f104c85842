use std::{fmt, time::Duration};

use super::{CASE_VARIABLE, Case};

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The strategy did what the contract says.
    Passed,
    /// It did not; says what was seen.
    Failed(String),
    /// The contract asks nothing of this strategy here, by its capabilities; says why.
    NotApplicable(&'static str),
    /// The fixture lacks a power that the case needs; says which.
    Untried(&'static str),
}

impl Outcome {
    /// Whether the case passed.
    #[must_use]
    pub const fn is_passed(&self) -> bool {
        matches!(self, Self::Passed)
    }
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

/// One case, and how it ended.
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
    /// The cases in the order of their numbers.
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

    /// As [`assert_passed`](Self::assert_passed), where exactly these cases may stay untried.
    ///
    /// # Panics
    ///
    /// As [`assert_passed`](Self::assert_passed); also when one of these was tried after all, so
    /// that the list does not outlive its reason.
    pub fn assert_passed_but_untried(&self, untried: &[u8]) {
        let failed = self.failed();
        let untried_ones = self.untried();
        let replay = failed.iter().chain(&untried_ones).next().copied().unwrap_or(0);
        let chosen = |n: &&u8| self.cases.iter().any(|report| report.case.number == **n);
        let expected: Vec<u8> = untried.iter().filter(chosen).copied().collect();
        assert!(
            failed.is_empty() && untried_ones == expected,
            "{self}\nreplay with {CASE_VARIABLE}={replay} and the same test command"
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
