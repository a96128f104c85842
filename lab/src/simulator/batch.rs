//! Totals over many runs.

use std::{fmt, time::Duration};

use super::{
    claims,
    coverage::{FAULTS, OUTSIDE, SERVER_FAULTS, SERVER_SOMETIMES, SOMETIMES, STANDSTILL},
    run::Run,
    totals::Totals,
};

/// The sum of many runs.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Whether the processes were clients of one Redis.
    pub redis: bool,
    /// Whether the processes were servers of claims and their clients.
    pub claims: bool,
    /// Seeds run.
    pub seeds: u64,
    /// Seeds in which an invariant broke.
    pub violations_found: u64,
    /// The first thousand of them, with the broken invariants.
    pub violations: Vec<(u64, String)>,
    /// The longest time from the end of the faults until all followed one leader.
    pub settled_after_max: Duration,
    /// Seeds with an undecided search, the first thousand.
    pub undecided_seeds: Vec<u64>,
    /// The totals of all seeds.
    pub totals: Totals,
}

/// A batch of this size reaches everything that needs locks held outside the members.
const OUTSIDE_MIN: u64 = 1_000;
/// Violations, and undecided seeds, kept by name.
const VIOLATIONS_MAX: usize = 1_000;

impl Batch {
    /// Adds one run.
    pub fn add(&mut self, run: &Run) {
        (self.redis, self.claims) = (run.redis, run.claims);
        self.seeds += 1;
        self.violations_found += u64::from(run.violation.is_some());
        if let Some(violation) = &run.violation
            && self.violations.len() < VIOLATIONS_MAX
        {
            self.violations.push((run.seed, violation.clone()));
        }
        self.settled_after_max = self.settled_after_max.max(run.settled_after);
        if run.totals.undecided > 0 && self.undecided_seeds.len() < VIOLATIONS_MAX {
            self.undecided_seeds.push(run.seed);
        }
        self.totals.add(&run.totals);
    }

    /// The faults and the rare events that a batch must have.
    const fn expected(&self) -> [&'static [&'static str]; 2] {
        match (self.redis, self.claims) {
            (true, _) => [&SERVER_FAULTS, &SERVER_SOMETIMES],
            (_, true) => [&claims::FAULTS, &claims::SOMETIMES],
            _ => [&FAULTS, &SOMETIMES],
        }
    }

    /// Which faults were never injected and which rare events never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let mut missing = self.totals.coverage.missing(self.expected());
        if self.totals.searches == 0 && !self.claims {
            missing.push("a search of the history checker");
        }
        if self.seeds >= OUTSIDE_MIN && !self.redis && !self.claims {
            missing
                .extend(OUTSIDE.into_iter().filter(|what| self.totals.coverage.count(what) == 0));
        }
        missing
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.totals.virtual_time.as_secs_f64() / 3600.0;
        let share = 100.0 * self.totals.unknown as f64 / self.totals.operations.max(1) as f64;
        writeln!(f, "seeds            {:>14}", self.seeds)?;
        writeln!(f, "virtual hours    {hours:>14.1}")?;
        writeln!(f, "events           {:>14}", self.totals.events)?;
        writeln!(f, "entries committed{:>14}", self.totals.committed)?;
        writeln!(
            f,
            "calls            {:>14}   {share:.1} % with an outcome unknown",
            self.totals.operations
        )?;
        writeln!(f, "locks granted    {:>14}", self.totals.granted)?;
        writeln!(f, "healed within    {:>14}", format!("{:.2?}", self.settled_after_max))?;
        writeln!(
            f,
            "searches         {:>14}   {} undecided",
            self.totals.searches, self.totals.undecided
        )?;
        if self.totals.two_believed > 0 {
            writeln!(f, "two believed     {:>14}", self.totals.two_believed)?;
        }
        writeln!(f, "violations       {:>14}", self.violations_found)?;
        writeln!(f, "\nfaults injected")?;
        let [faults, rare] = self.expected();
        for what in faults {
            writeln!(f, "  {what:<42}{:>12}", self.totals.coverage.count(what))?;
        }
        if self.totals.coverage.count(STANDSTILL) > 0 {
            writeln!(f, "  {STANDSTILL:<42}{:>12}", self.totals.coverage.count(STANDSTILL))?;
        }
        writeln!(f, "\nrare events")?;
        let outside: &[_] = if self.redis || self.claims { &[] } else { &OUTSIDE };
        for what in rare.iter().chain(outside) {
            writeln!(f, "  {what:<42}{:>12}", self.totals.coverage.count(what))?;
        }
        Ok(())
    }
}
