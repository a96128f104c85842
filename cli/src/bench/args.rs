//! The options of `gaggle bench`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::workload_name::WorkloadName;
use crate::{
    cluster::{self, ChannelName, RedisUrl, Selection, Setup, StrategyName},
    duration,
    failure::Failure,
    verbosity::Verbosity,
    whole::whole,
};

/// The options of `gaggle bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The strategy; repeatable [default: redis with --redis and without --channel, else gaggle;
    /// all with --compare].
    #[arg(long, value_enum)]
    strategy: Vec<StrategyName>,
    /// The channel of raft and gaggle; repeatable [default: memory; tcp with --processes; all but
    /// tls with --compare].
    #[arg(long, value_enum)]
    channel: Vec<ChannelName>,
    /// A Redis, as redis://[[user]:password@]host[:port][/db]: for the strategy and the channel
    /// redis. For the strategy alone, any other URL of a Redis. A password in an argument is
    /// visible to other users: set GAGGLE_REDIS.
    #[arg(long, value_name = "URL", value_parser = RedisUrl::parse)]
    #[arg(env = "GAGGLE_REDIS", hide_env_values = true)]
    pub(super) redis: Option<RedisUrl>,
    /// How many members there are, 1 to 31, each with its own handle; the members of local and noop
    /// share one.
    #[arg(long, default_value_t = 5, value_parser = whole::<u32>(1..=31))]
    pub(super) members: u32,
    /// The workload; repeatable [default: handoff; with --compare also uncontended].
    #[arg(long, value_enum)]
    workload: Vec<WorkloadName>,
    /// How many tasks, 1 to 4096, assigned to the members in turn; uncontended always has one
    /// [default: one a member for gaggle1-*, 64 for fan, else 8].
    #[arg(long, value_parser = whole::<u32>(1..=4096))]
    pub(super) tasks: Option<u32>,
    /// How long each run counts, as 500ms or 3s, at most 600s [default: 3s; 500ms with --compare;
    /// 20 increments a member for gaggle1-*].
    ///
    /// A warm-up of 500 ms precedes it (50 ms with --compare). The members share the time of
    /// uncontended. gaggle1-* make about as many increments as fit.
    #[arg(long, value_parser = duration::between(Duration::from_micros(1), Duration::from_secs(600)))]
    pub(super) duration: Option<Duration>,
    /// Measure all strategies over all channels, in interleaved rounds, in less than a minute.
    #[arg(long)]
    pub(super) compare: bool,
    /// How many rounds are run, whose median is shown [default: 1; 3 with --compare].
    #[arg(long, value_parser = whole::<u32>(1..=99))]
    rounds: Option<u32>,
    /// Run each member in an operating-system process of its own.
    #[arg(long)]
    pub(super) processes: bool,
    /// Show all percentiles, the fairness and bars too.
    #[arg(long)]
    pub(super) details: bool,
    /// Write all figures as JSON to this file; `-` prints them instead of the table.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<String>,
    /// Write a bar chart as SVG to this file.
    #[arg(long, value_name = "FILE.svg")]
    pub(super) chart: Option<PathBuf>,
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

impl Args {
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.compare { 3 } else { 1 })
    }

    /// The selected workloads, each once.
    pub(super) fn workloads(&self) -> Vec<WorkloadName> {
        use WorkloadName::{Handoff, Uncontended};
        match (self.workload.is_empty(), self.compare) {
            (true, true) => vec![Handoff, Uncontended],
            (true, false) => vec![Handoff],
            (false, _) => cluster::distinct(&self.workload),
        }
    }

    /// Every selected strategy over every selected channel.
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

    /// Refuses an invalid combination of options, and files that cannot be written.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let selection = Selection {
            strategies: &self.strategies(),
            channels: &self.channels(),
            names_channel: !self.channel.is_empty(),
            redis: self.redis.as_ref(),
            counts: false,
            processes: self.processes,
        };
        selection.check()?;
        self.check_files()
    }

    fn check_files(&self) -> Result<(), Failure> {
        let json = self.json.as_deref().filter(|path| *path != "-").map(Path::new);
        let chart = self.chart.as_deref();
        if chart.is_some_and(|chart| Some(chart) == json) {
            return Err(Failure::new("--json and --chart name the same file"));
        }
        if let Some(chart) = chart.filter(|chart| !is_svg(chart)) {
            let why = "a chart is SVG: name a file that ends in .svg";
            return Err(Failure::new(format!("--chart {}: {why}", chart.display())));
        }
        for (option, path) in [("--json", json), ("--chart", chart)] {
            let Some(path) = path else { continue };
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or_else(|| Path::new("."));
            if path.is_dir() || !folder.is_dir() {
                let why = "not a file in an existing directory";
                return Err(Failure::new(format!("{option} {}: {why}", path.display())));
            }
        }
        Ok(())
    }

    /// The strategies that a comparison of all omits, and the reasons.
    pub(super) fn omitted(&self) -> Option<String> {
        let all = self.compare && self.strategy.is_empty() && self.channel.is_empty();
        let redis = match &self.redis {
            None => Some("redis (needs --redis URL)"),
            Some(redis) if !redis.is_plain() => Some("channel redis (needs redis:)"),
            Some(_) => None,
        };
        let processes = self.processes.then_some("local and memory (live in one process)");
        let omitted = redis.into_iter().chain(processes).collect::<Vec<_>>().join(", ");
        (all && !omitted.is_empty()).then(|| format!("omitted: {omitted}"))
    }

    fn strategies(&self) -> Vec<StrategyName> {
        use StrategyName::{Gaggle, Local, Raft, Redis};
        let names_channel = !self.channel.is_empty();
        match (self.strategy.is_empty(), self.compare) {
            (false, _) => cluster::distinct(&self.strategy),
            (true, false) => {
                vec![cluster::default_strategy(self.redis.as_ref(), names_channel)]
            }
            // Without strategies that cannot run here; see `omitted`.
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
            (false, _) => cluster::distinct(&self.channel),
            (true, false) => vec![if self.processes { Tcp } else { Memory }],
            (true, true) => {
                let memory = (!self.processes).then_some(Memory);
                let redis = self.redis.as_ref().filter(|redis| redis.is_plain()).map(|_| Redis);
                memory.into_iter().chain([Tcp]).chain(redis).collect()
            }
        }
    }
}

fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
}
