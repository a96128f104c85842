//! The options of `gaggle bench` and `gaggle increment`.

use std::{path::Path, time::Duration};

use clap::{
    builder::{PossibleValuesParser, TypedValueParser},
    value_parser,
};
use gaggle_workloads::Keys;

use super::workload_name::WorkloadName;
use crate::{
    cluster::{self, ChannelName, Selection, ServerUrl, Setup, StrategyName},
    duration,
    failure::Failure,
    verbosity::Verbosity,
};

/// The limits of `--duration`.
const DURATION_MIN: Duration = Duration::from_micros(1);
const DURATION_MAX: Duration = Duration::from_secs(600);

/// The options that both commands have.
#[derive(clap::Args)]
pub(crate) struct SetupArgs {
    /// The strategy; repeatable [default: redis with --redis, http with --http, else gaggle;
    /// gaggle with --channel].
    #[arg(long, value_enum)]
    strategy: Vec<StrategyName>,
    /// The channel of raft and gaggle; repeatable [default: memory; tcp with --processes].
    #[arg(long, value_enum)]
    channel: Vec<ChannelName>,
    /// A Redis, as redis://[[user]:password@]host[:port][/db]: for the strategy and the channel
    /// redis, and for the counter of increment. For the strategy alone, any other URL of a Redis. A
    /// password in an argument is visible to other users: set GAGGLE_REDIS.
    #[arg(long, value_name = "URL", value_parser = ServerUrl::of_redis)]
    #[arg(env = "GAGGLE_REDIS", hide_env_values = true)]
    pub(super) redis: Option<ServerUrl>,
    /// The nodes of a `gaggle serve`, as http://[:TOKEN@]host:port[,host:port...], for the strategy
    /// http. A token in an argument is visible to other users: set GAGGLE_HTTP.
    #[arg(long, value_name = "URL", value_parser = ServerUrl::of_http)]
    #[arg(env = "GAGGLE_HTTP", hide_env_values = true)]
    pub(super) http: Option<ServerUrl>,
    /// How many members there are, 1 to 31, each with its own handle; the members of local and noop
    /// share one.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=31))]
    pub(super) members: u32,
    /// Run each member in a separate operating-system process.
    #[arg(long)]
    pub(super) processes: bool,
    /// Show all percentiles and the fairness too.
    #[arg(long)]
    pub(super) details: bool,
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

/// The options of `gaggle bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The workload; repeatable [default: handoff; with --compare also uncontended].
    #[arg(long, value_enum)]
    workload: Vec<WorkloadName>,
    /// How many tasks, 1 to 4096, assigned to the members in turn; uncontended always has one
    /// [default: one a member for gaggle1-*, 64 for fan, else 8].
    #[arg(long, value_parser = value_parser!(u32).range(1..=4096))]
    pub(super) tasks: Option<u32>,
    /// How long each run counts, as 500ms or 3s, at most 600s [default: 3s; 500ms with --compare;
    /// 20 increments a member for gaggle1-*].
    ///
    /// A warm-up of 500 ms precedes it (50 ms with --compare). The members share the time of
    /// uncontended. gaggle1-* make about as many increments as fit.
    #[arg(long, value_parser = duration::between(DURATION_MIN, DURATION_MAX))]
    pub(super) duration: Option<Duration>,
    /// Measure all strategies over all channels but tls, in interleaved rounds, in less than a
    /// minute.
    #[arg(long)]
    pub(super) compare: bool,
    /// How many rounds are run, whose median is shown [default: 1; 3 with --compare].
    #[arg(long, value_parser = value_parser!(u32).range(1..=99))]
    rounds: Option<u32>,
    /// Write all figures as JSON to this file; `-` prints them instead of the table.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<String>,
    #[command(flatten)]
    pub(super) setup: SetupArgs,
}

/// The options of `gaggle increment`.
#[derive(clap::Args)]
pub(crate) struct IncrementArgs {
    /// How many increments each member makes.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(super) increments: u32,
    /// How long an increment works between its read and its write, as 15ms or 2s.
    ///
    /// The Gaggle 1.x benchmark works 4 steps of 15 ms: `gaggle bench --workload
    /// gaggle1-contended`.
    #[arg(long, default_value = "15ms")]
    #[arg(value_parser = duration::between(Duration::ZERO, Duration::from_secs(60)))]
    pub(super) work: Duration,
    /// The key: the same for all members (contended), or a distinct one for each (uncontended).
    #[arg(long, default_value = "same", value_parser = keys())]
    pub(super) keys: Keys,
    /// Print one JSON object a line for each run, and no progress bar.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) setup: SetupArgs,
}

fn keys() -> impl TypedValueParser<Value = Keys> {
    let keys = |name: String| if name == "same" { Keys::Same } else { Keys::Distinct };
    PossibleValuesParser::new(["same", "distinct"]).map(keys)
}

impl SetupArgs {
    /// Every selected strategy over every selected channel.
    fn setups(&self, compare: bool) -> Vec<Setup> {
        let channels = self.channels(compare);
        let over = |strategy: StrategyName| {
            let channels = match strategy.has_channel() {
                true => channels.iter().copied().map(Some).collect(),
                false => vec![None],
            };
            channels.into_iter().map(move |channel| Setup { strategy, channel })
        };
        self.strategies(compare).into_iter().flat_map(over).collect()
    }

    fn strategies(&self, compare: bool) -> Vec<StrategyName> {
        use StrategyName::{Gaggle, Http, Local, Raft, Redis};
        let names_channel = !self.channel.is_empty();
        match (self.strategy.is_empty(), compare) {
            (false, _) => cluster::distinct(&self.strategy),
            (true, false) => {
                vec![cluster::default_strategy(self.servers(), names_channel)]
            }
            // `omitted` names the strategies that cannot run here.
            (true, true) => {
                let local = (!self.processes).then_some(Local);
                let redis = self.redis.as_ref().map(|_| Redis);
                let http = self.http.as_ref().map(|_| Http);
                local.into_iter().chain(redis).chain(http).chain([Gaggle, Raft]).collect()
            }
        }
    }

    fn channels(&self, compare: bool) -> Vec<ChannelName> {
        use ChannelName::{Memory, Redis, Tcp};
        match (self.channel.is_empty(), compare) {
            (false, _) => cluster::distinct(&self.channel),
            (true, false) => vec![if self.processes { Tcp } else { Memory }],
            (true, true) => {
                let memory = (!self.processes).then_some(Memory);
                let redis = self.redis.as_ref().filter(|redis| redis.is_plain()).map(|_| Redis);
                memory.into_iter().chain([Tcp]).chain(redis).collect()
            }
        }
    }

    /// The servers that are given.
    pub(super) fn servers(&self) -> (Option<&ServerUrl>, Option<&ServerUrl>) {
        (self.redis.as_ref(), self.http.as_ref())
    }

    /// Refuses an invalid combination of options.
    fn check(&self, compare: bool, counts: bool) -> Result<(), Failure> {
        let selection = Selection {
            strategies: &self.strategies(compare),
            channels: &self.channels(compare),
            names_channel: !self.channel.is_empty(),
            redis: self.redis.as_ref(),
            http: self.http.as_ref(),
            counts,
            processes: self.processes,
        };
        selection.check()
    }
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

    pub(super) fn setups(&self) -> Vec<Setup> {
        self.setup.setups(self.compare)
    }

    /// Refuses an invalid combination of options, and a file that cannot be written.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.setup.check(self.compare, false)?;
        let Some(path) = self.json_file() else { return Ok(()) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        if path.is_dir() || !folder.is_dir() {
            let why = "not a file in an existing directory";
            return Err(Failure::new(format!("--json {}: {why}", path.display())));
        }
        Ok(())
    }

    /// The file of `--json`.
    pub(super) fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| *path != "-").map(Path::new)
    }

    /// The strategies that a comparison of all omits, and the reasons.
    pub(super) fn omitted(&self) -> Option<String> {
        let setup = &self.setup;
        let all = self.compare && setup.strategy.is_empty() && setup.channel.is_empty();
        let redis = match &setup.redis {
            None => Some("redis (needs --redis URL)"),
            Some(redis) if !redis.is_plain() => Some("channel redis (needs redis:)"),
            Some(_) => None,
        };
        let processes = setup.processes.then_some("local and memory (live in one process)");
        let omitted = redis.into_iter().chain(processes).collect::<Vec<_>>().join(", ");
        (all && !omitted.is_empty()).then(|| format!("omitted: {omitted}"))
    }
}

impl IncrementArgs {
    /// The selected setups, and last the run without a lock.
    pub(super) fn setups(&self) -> Vec<Setup> {
        let mut setups = self.setup.setups(false);
        let no_lock = Setup { strategy: StrategyName::Noop, channel: None };
        if !setups.contains(&no_lock) {
            setups.push(no_lock);
        }
        setups
    }

    /// Refuses an invalid combination of options.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.setup.check(false, true)
    }
}
