//! The options of `gaggle bench`, and what follows from them together.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::workload_name::WorkloadName;
use crate::{
    cluster::{self, ChannelName, RedisUrl, Setup, StrategyName},
    failure::Failure,
};

/// The options of `gaggle bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The strategy; may be given several times [default: gaggle; redis where --redis is given and no
    /// --channel; all with --compare].
    #[arg(long, value_enum)]
    strategy: Vec<StrategyName>,
    /// The channel of raft and gaggle; may be given several times [default: memory; tcp with
    /// --processes; all with --compare].
    #[arg(long, value_enum)]
    channel: Vec<ChannelName>,
    /// A Redis, as redis://[user[:password]@]host[:port][/db].
    #[arg(long, value_name = "URL", value_parser = RedisUrl::parse)]
    #[arg(env = "GAGGLE_REDIS", hide_env_values = true)]
    pub(super) redis: Option<RedisUrl>,
    /// How many members there are, 1 to 31, each with a handle of its own; local and noop have one for
    /// all.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=31))]
    pub(super) members: u32,
    /// What to run; may be given several times [default: worst and best with --compare, else
    /// handoff].
    #[arg(long, value_enum)]
    workload: Vec<WorkloadName>,
    /// How many tasks, 1 to 4096, dealt to the members in turn; uncontended has one whatever is asked for
    /// [default: worst and best one a member, fan 64, handoff and busy 8].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) tasks: Option<u32>,
    /// How long each run counts, after a warm-up of half a second; uncontended shares it among the
    /// members; worst and best make about as many increments as fit; at most 600s [default: 3s; worst and best: 20 increments a member].
    #[arg(long, value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// All strategies and channels in turn, in interleaved rounds; medians are shown.
    #[arg(long)]
    pub(super) compare: bool,
    /// How many rounds the median is taken of [default: 3 with --compare, else 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: Option<u32>,
    /// Run each member in an operating-system process of its own.
    #[arg(long)]
    pub(super) processes: bool,
    /// Write everything as JSON to this file; `-` prints it instead of the table.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<String>,
    /// Draw the bars into this file, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub(super) chart: Option<PathBuf>,
}

impl Args {
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.compare { 3 } else { 1 })
    }

    /// The workloads in the order given, each once.
    pub(super) fn workloads(&self) -> Vec<WorkloadName> {
        use WorkloadName::{Best, Handoff, Worst};
        match (self.workload.is_empty(), self.compare) {
            (true, true) => vec![Worst, Best],
            (true, false) => vec![Handoff],
            (false, _) => once_each(&self.workload),
        }
    }

    /// Every strategy asked for, over every channel asked for.
    pub(super) fn setups(&self) -> Vec<Setup> {
        let channels = self.channels();
        let over = |strategy: StrategyName| {
            let channels = match strategy.has_channel() {
                true => channels.iter().copied().map(Some).collect(),
                false => vec![None],
            };
            channels.into_iter().map(move |channel| Setup { strategy, channel })
        };
        self.strategies().into_iter().flat_map(over).collect()
    }

    /// Refuses what cannot be, before anything runs.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let asked = cluster::Asked {
            strategies: &self.strategies(),
            channels: &self.channels(),
            channel_given: !self.channel.is_empty(),
            redis: self.redis.as_ref(),
            processes: self.processes,
        };
        asked.check()?;
        self.check_files()
    }

    /// What cannot be written is refused before anything is measured.
    fn check_files(&self) -> Result<(), Failure> {
        let json = self.json.as_deref().filter(|path| *path != "-").map(Path::new);
        let chart = self.chart.as_deref();
        if chart.is_some_and(|chart| Some(chart) == json) {
            return Err(Failure::new("--json and --chart name the same file"));
        }
        if chart == Some(Path::new("-")) {
            return Err(Failure::new("--chart -: a chart goes into a file"));
        }
        for (option, path) in [("--json", json), ("--chart", chart)] {
            let Some(path) = path else { continue };
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or_else(|| Path::new("."));
            if path.is_dir() || !folder.is_dir() {
                let why = "is no file in a directory that exists";
                return Err(Failure::new(format!("{option} {}: {why}", path.display())));
            }
        }
        Ok(())
    }

    /// What a comparison of all is without, and why.
    pub(super) fn left_out(&self) -> Option<String> {
        let all = self.compare && self.strategy.is_empty() && self.channel.is_empty();
        let redis =
            self.redis.is_none().then_some("Redis, and members over it, for want of --redis URL");
        let processes = "Local, and members over Memory, which live in one process";
        let left_out = redis.into_iter().chain(self.processes.then_some(processes));
        let left_out = left_out.collect::<Vec<_>>().join("; ");
        (all && !left_out.is_empty()).then(|| format!("left out: {left_out}"))
    }

    fn strategies(&self) -> Vec<StrategyName> {
        use StrategyName::{Gaggle, Local, Raft, Redis};
        match (self.strategy.is_empty(), self.compare) {
            (false, _) => once_each(&self.strategy),
            (true, false) if self.redis.is_some() && self.channel.is_empty() => vec![Redis],
            (true, false) => vec![Gaggle],
            // What cannot be run here is left out, and the table shows what was run.
            (true, true) => {
                let local = (!self.processes).then_some(Local);
                let redis = self.redis.as_ref().map(|_| Redis);
                local.into_iter().chain(redis).chain([Gaggle, Raft]).collect()
            }
        }
    }

    fn channels(&self) -> Vec<ChannelName> {
        use ChannelName::{Memory, Redis, Tcp};
        match (self.channel.is_empty(), self.compare) {
            (false, _) => once_each(&self.channel),
            (true, false) => vec![if self.processes { Tcp } else { Memory }],
            (true, true) => {
                let memory = (!self.processes).then_some(Memory);
                let redis = self.redis.as_ref().map(|_| Redis);
                memory.into_iter().chain([Tcp]).chain(redis).collect()
            }
        }
    }
}

fn once_each<T: Copy + PartialEq>(given: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for one in given {
        if !once.contains(one) {
            once.push(*one);
        }
    }
    once
}

/// At most ten minutes; something must happen.
fn parse_duration(text: &str) -> Result<Duration, String> {
    match cluster::parse_span(text, Duration::from_secs(600))? {
        Duration::ZERO => Err("say how long as 3s or 500ms, more than 0 and at most 600s".into()),
        duration => Ok(duration),
    }
}
