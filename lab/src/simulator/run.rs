//! Runs one plan and checks it.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use super::{calls, plan::Plan, totals::Totals, world::World};
use crate::history::Report;

/// Which records of a run are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Keep the trace as text, a line for each event.
    pub trace: bool,
}

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The seed of its plan.
    pub seed: u64,
    /// Whether the processes were clients of one Redis.
    pub redis: bool,
    /// Whether the processes were servers of claims and their clients.
    pub claims: bool,
    /// The plan, as text.
    pub plan: String,
    /// The invariant that broke, if one did.
    pub violation: Option<String>,
    /// From the end of the faults until all followed one leader.
    pub settled_after: Duration,
    /// The totals of the run.
    pub totals: Totals,
    /// The digest of the trace: equal for two runs of one seed.
    pub digest: u64,
    /// The trace, if it was wanted.
    pub trace: Option<String>,
}

/// Runs one plan: faults, then healing, with every invariant checked after every event.
///
/// A broken invariant is returned, not thrown.
#[must_use]
pub fn simulate(plan: Plan, settings: &Settings) -> Run {
    let (seed, text) = (plan.seed, plan.to_string());
    let redis = plan.redis.is_some();
    let mut world = World::new(plan, settings.trace);
    let mut settled_after = Duration::ZERO;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        world.run_until(world.plan.chaos, |_| false);
        settled_after = world.heal();
    }));
    let violation = outcome.err().map(message);
    let recorded = std::mem::take(&mut world.calls);
    let invariants = &world.invariants;
    let history = recorded.history(invariants.granted());
    // The history of a run that an invariant stopped half-way is not checked.
    let (violation, report) = match (violation, history) {
        (Some(violation), _) => (Some(violation), Report::default()),
        (None, Err(malformed)) => {
            (Some(format!("malformed history: {malformed}")), Report::default())
        }
        (None, Ok(history)) => {
            match catch_unwind(AssertUnwindSafe(|| calls::check(&history, &world.plan))) {
                Err(panic) => {
                    (Some(format!("the history checker: {}", message(panic))), Report::default())
                }
                Ok(report) if report.violations_found == 0 => (None, report),
                Ok(report) => (Some(format!("history: {report}")), report),
            }
        }
    };
    Run {
        seed,
        redis,
        claims: false,
        plan: text,
        violation,
        settled_after,
        totals: Totals {
            virtual_time: Duration::from_nanos(world.now()),
            unknown: report.unknown,
            searches: report.searches,
            undecided: report.undecided.len() as u64,
            committed: world.invariants.committed,
            coverage: world.invariants.coverage.clone(),
            ..world.totals
        },
        digest: world.trace.digest(),
        trace: world.trace.into_text(),
    }
}

/// The message of a panic.
fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = &self.totals;
        writeln!(f, "{}", self.plan)?;
        writeln!(
            f,
            "  {} events in {:?}, {} calls, {} granted, {} unknown, settled after {:?}",
            totals.events,
            totals.virtual_time,
            totals.operations,
            totals.granted,
            totals.unknown,
            self.settled_after
        )?;
        match &self.violation {
            None => write!(f, "  no violation, digest {:016x}", self.digest),
            Some(violation) => write!(f, "  VIOLATION: {violation}"),
        }
    }
}
