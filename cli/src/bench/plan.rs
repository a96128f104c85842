//! What is run, where, and for how long.

use std::time::Duration;

use gaggle::Nonce;
use gaggle_cli::workloads::{Until, Workload};

use super::{args::Args, row::Row, workload_name::WorkloadName};
use crate::cluster::Setup;

/// What is run, and where.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) setups: Vec<Setup>,
    pub(super) cases: Vec<Case>,
    /// Beside the seed's workloads stands what one task does without a lock.
    pub(super) baseline: Option<Workload>,
    /// Names this benchmark in its keys.
    pub(super) run: Nonce,
    members: u32,
    rounds: u32,
}

/// One workload of the plan.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: WorkloadName,
    workload: Workload,
}

impl Plan {
    pub(super) fn new(args: &Args) -> Self {
        let cases: Vec<_> =
            args.workloads().into_iter().map(|name| Case::new(name, args)).collect();
        let seeds = cases.iter().find(|case| case.name.is_the_seeds());
        let baseline = seeds.map(|case| {
            let sequential = Workload::sequential(case.workload.tasks);
            match args.duration {
                Some(duration) => about(sequential, duration),
                None => sequential,
            }
        });
        let (members, rounds) = (args.members, args.rounds());
        let run = Nonce::random();
        Self { setups: args.setups(), cases, baseline, run, members, rounds }
    }

    /// About how long all of it takes.
    pub(super) fn expected(&self) -> Duration {
        let baseline = self.baseline.as_ref().map_or(Duration::ZERO, Workload::expected);
        let cases = self.setups.iter().flat_map(|setup| {
            self.cases.iter().map(|case| {
                let parts = case.parts(*setup, self.members as usize);
                parts.map(|(_, parts)| case.workload(parts).expected()).sum::<Duration>()
            })
        });
        (baseline + cases.sum::<Duration>()) * self.rounds
    }

    /// Where a row stands in the table: by workload, then in the order of the setups.
    pub(super) fn place(&self, row: &Row) -> (usize, usize) {
        let begins = |case: &Case| row.workload.starts_with(case.name.as_str());
        let case = self.cases.iter().position(begins);
        let setup = self.setups.iter().position(|setup| Some(*setup) == row.setup);
        // The baseline first.
        (case.map_or(0, |case| case + 1), setup.unwrap_or(0))
    }
}

impl Case {
    fn new(name: WorkloadName, args: &Args) -> Self {
        let tasks = |default| args.tasks.unwrap_or(default);
        let mut workload = match name {
            WorkloadName::Worst => Workload::worst(tasks(args.members)),
            WorkloadName::Best => Workload::best(tasks(args.members)),
            WorkloadName::Uncontended => Workload::uncontended(),
            WorkloadName::Fan => Workload::fan(tasks(64)),
            WorkloadName::Handoff => Workload::handoff(tasks(8)),
            WorkloadName::Busy => Workload::busy(tasks(8)),
        };
        if let Some(duration) = args.duration {
            workload = about(workload, duration);
        }
        Self { name, workload }
    }

    /// The runs that one case consists of: at which member it begins, and how many share its time.
    /// What has no channel answers alike from everywhere.
    pub(super) fn parts(
        &self,
        setup: Setup,
        members: usize,
    ) -> impl Iterator<Item = (usize, usize)> {
        let alike = setup.channel.is_none() || self.name != WorkloadName::Uncontended;
        let parts = if alike { 1 } else { members };
        (0..parts).map(move |part| (part, parts))
    }

    /// The workload of one of so many parts.
    pub(super) fn workload(&self, parts: usize) -> Workload {
        let workload = self.workload.clone();
        let parts = u32::try_from(parts).expect("31 members at most");
        match workload.until {
            Until::For(duration) => workload.lasting(duration / parts),
            Until::Each(_) => workload,
        }
    }
}

/// The same for about this long. Of the seed's few and long operations a count is made of it, because
/// those that a window cuts in two would show in the figures.
fn about(workload: Workload, duration: Duration) -> Workload {
    if workload.inside() < Duration::from_millis(50) {
        return workload.lasting(duration);
    }
    let one = workload.clone().each(1).expected();
    let each = duration.as_nanos().div_ceil(one.as_nanos());
    workload.each(u32::try_from(each).unwrap_or(u32::MAX))
}
