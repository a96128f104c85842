//! The plan of a benchmark: workloads, setups and durations.

use std::{fmt, time::Duration};

use gaggle::Nonce;
use gaggle_workloads::{Until, Workload};

use super::{
    args::{Args, IncrementArgs, SetupArgs},
    row::Row,
    workload_name::WorkloadName,
};
use crate::{cluster::Setup, output::count};

/// About how long a group takes to form and to close.
const GROUP: Duration = Duration::from_millis(400);

/// The cases of a benchmark, and the setups that each runs on.
pub(super) struct Plan<'a> {
    pub(super) args: &'a SetupArgs,
    pub(super) setups: Vec<Setup>,
    pub(super) cases: Vec<Case>,
    /// The work of one task without a lock, which the Gaggle 1.x benchmark compares with.
    pub(super) baseline: Option<Workload>,
    pub(super) rounds: u32,
    /// Whether each critical section increments a counter in a store.
    pub(super) counts: bool,
    /// Names this benchmark in its keys.
    run: Nonce,
}

/// A workload of the plan.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: WorkloadName,
    workload: Workload,
}

impl<'a> Plan<'a> {
    /// The plan of `gaggle bench`.
    pub(super) fn bench(args: &'a Args) -> Self {
        let cases: Vec<_> =
            args.workloads().into_iter().map(|name| Case::new(name, args)).collect();
        let gaggle1 = cases.iter().find(|case| case.name.is_gaggle1());
        let baseline = gaggle1.map(|case| {
            let sequential = Workload::sequential(case.workload.tasks);
            match args.duration {
                Some(duration) => lasting(sequential, duration),
                None => sequential,
            }
        });
        let (setups, rounds) = (args.setups(), args.rounds());
        let run = Nonce::random();
        Self { args: &args.setup, setups, cases, baseline, rounds, counts: false, run }
    }

    /// The plan of `gaggle increment`.
    pub(super) fn increment(args: &'a IncrementArgs) -> Self {
        let members = args.setup.members;
        let workload = Workload::increments(members, args.keys, args.increments, args.work);
        Self {
            args: &args.setup,
            setups: args.setups(),
            cases: vec![Case { name: WorkloadName::Increment, workload }],
            baseline: None,
            rounds: 1,
            counts: true,
            run: Nonce::random(),
        }
    }

    /// The estimated time of the whole plan.
    pub(super) fn expected(&self) -> Duration {
        let baseline = self.baseline.as_ref().map_or(Duration::ZERO, Workload::expected);
        let setups = self.setups.iter().map(|setup| {
            let cases = self.cases.iter().map(|case| {
                let parts = case.parts(*setup, self.args.members as usize);
                parts.map(|(_, parts)| case.workload(parts).expected()).sum::<Duration>()
            });
            opening(*setup) + cases.sum::<Duration>()
        });
        (baseline + setups.sum::<Duration>()) * self.rounds
    }

    /// The longest critical section of a case.
    pub(super) fn longest_section(&self) -> Duration {
        self.cases.iter().map(|case| case.workload.inside()).max().unwrap_or_default()
    }

    /// The prefix of the keys of one run. No other run has it. A counter has the key of its lock,
    /// below the namespace of the locks, whose rights the user of a Redis has.
    pub(super) fn prefix(&self, setup: Setup, case: &Case, round: u32, part: usize) -> String {
        let (case, run) = (case.name.as_str(), self.run);
        format!("gaggle:{case}:{run}:{setup}:{round}:{part}")
    }

    /// The keys of all counters.
    pub(super) fn counters(&self) -> Vec<String> {
        let case = self.cases.iter().filter(|_| self.counts);
        let of_case = |case: &Case| {
            let keys = |setup: &Setup| case.keys(&self.prefix(*setup, case, 0, 0));
            self.setups.iter().flat_map(keys).collect::<Vec<_>>()
        };
        case.flat_map(of_case).collect()
    }

    /// The case whose table has this row. The baseline belongs to each case of the Gaggle 1.x
    /// benchmark.
    pub(super) fn has(case: &Case, row: &Row) -> bool {
        match row.setup {
            Some(_) => row.workload.split(',').next() == Some(case.name.as_str()),
            None => case.name.is_gaggle1(),
        }
    }

    /// The position of the case of this row; the baseline comes first.
    pub(super) fn position(&self, row: &Row) -> Option<usize> {
        row.setup?;
        self.cases.iter().position(|case| Self::has(case, row))
    }
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cases: Vec<_> = self.cases.iter().map(|case| case.name.as_str()).collect();
        let setups: Vec<_> = self.setups.iter().map(Setup::to_string).collect();
        let (rounds, seconds) = (count(self.rounds, "round"), self.expected().as_secs_f64().ceil());
        writeln!(f, "plan: {rounds} of {}", cases.join(", "))?;
        for (line, setups) in setups.chunks(5).enumerate() {
            writeln!(f, "      {} {}", if line == 0 { "on" } else { "  " }, setups.join(" "))?;
        }
        write!(f, "      about {seconds} s in all")
    }
}

/// The estimated time to open and close the members of a setup.
pub(super) fn opening(setup: Setup) -> Duration {
    if setup.channel.is_some() { GROUP } else { Duration::ZERO }
}

impl Case {
    fn new(name: WorkloadName, args: &Args) -> Self {
        let tasks = |default| args.tasks.unwrap_or(default);
        let mut workload = match name {
            WorkloadName::Increment => unreachable!("no value of --workload"),
            WorkloadName::Handoff => Workload::handoff(tasks(8)),
            WorkloadName::Uncontended => Workload::uncontended(),
            WorkloadName::Fan => Workload::fan(tasks(64)),
            WorkloadName::Busy => Workload::busy(tasks(8)),
            WorkloadName::Gaggle1Contended => {
                Workload::gaggle1_contended(tasks(args.setup.members))
            }
            WorkloadName::Gaggle1Uncontended => {
                Workload::gaggle1_uncontended(tasks(args.setup.members))
            }
        };
        if args.compare && !name.is_gaggle1() {
            workload.warm_up = Duration::from_millis(50);
            workload = workload.lasting(Duration::from_millis(500));
        }
        if let Some(duration) = args.duration {
            workload = lasting(workload, duration);
        }
        Self { name, workload }
    }

    /// How many tasks run at once.
    pub(super) fn tasks(&self) -> u32 {
        self.workload.tasks
    }

    /// The runs of the case: the member of the first task, and how many runs share the time. Every
    /// handle of a strategy without a channel has the same distance to its lock.
    pub(super) fn parts(
        &self,
        setup: Setup,
        members: usize,
    ) -> impl Iterator<Item = (usize, usize)> {
        let is_one = setup.channel.is_none() || self.name != WorkloadName::Uncontended;
        let parts = if is_one { 1 } else { members };
        (0..parts).map(move |part| (part, parts))
    }

    /// The keys of the run with this prefix.
    pub(super) fn keys(&self, prefix: &str) -> Vec<String> {
        self.workload.all_keys(prefix)
    }

    /// The workload of one of this many parts.
    pub(super) fn workload(&self, parts: usize) -> Workload {
        let workload = self.workload.clone();
        let parts = u32::try_from(parts).expect("31 members at most");
        match workload.until {
            Until::For(duration) => workload.lasting(duration / parts),
            Until::Each(_) => workload,
        }
    }
}

/// The workload for about this long. The few long increments of the Gaggle 1.x benchmark are
/// counted instead: the end of a window would cut through some of them.
fn lasting(workload: Workload, duration: Duration) -> Workload {
    if workload.inside() < Duration::from_millis(50) {
        return workload.lasting(duration);
    }
    let one = workload.clone().each(1).expected();
    let each = duration.as_nanos().div_ceil(one.as_nanos());
    workload.each(u32::try_from(each).unwrap_or(u32::MAX))
}
