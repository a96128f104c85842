//! The options of `gaggle increment`.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gaggle_workloads::Keys;

use crate::{
    cluster::{self, ChannelName, RedisUrl, Selection, StrategyName},
    duration,
    failure::Failure,
    verbosity::Verbosity,
    whole::whole,
};

fn keys() -> impl TypedValueParser<Value = Keys> {
    let keys = |name: String| if name == "same" { Keys::Same } else { Keys::Distinct };
    PossibleValuesParser::new(["same", "distinct"]).map(keys)
}

/// The options of `gaggle increment`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The strategy; repeatable [default: redis with --redis and without --channel, else gaggle].
    #[arg(long, value_enum)]
    strategy: Vec<StrategyName>,
    /// The channel of raft and gaggle [default: memory; tcp with --processes].
    #[arg(long, value_enum)]
    channel: Option<ChannelName>,
    /// A Redis, as redis://[[user]:password@]host[:port][/db]: for the strategy and the channel
    /// redis, and for the counter of every strategy. A password in an argument is visible to other
    /// users: set GAGGLE_REDIS.
    #[arg(long, value_name = "URL", value_parser = RedisUrl::parse)]
    #[arg(env = "GAGGLE_REDIS", hide_env_values = true)]
    pub(super) redis: Option<RedisUrl>,
    /// Run each member in an operating-system process of its own.
    #[arg(long)]
    pub(super) processes: bool,
    /// How many members increment at once, 1 to 31.
    #[arg(long, default_value_t = 5, value_parser = whole::<u32>(1..=31))]
    pub(super) members: u32,
    /// How many increments each member makes.
    #[arg(long, default_value_t = 20, value_parser = whole::<u32>(1..=1_000_000))]
    pub(super) increments: u32,
    /// How long an increment works between its read and its write, as 15ms or 2s.
    ///
    /// The Gaggle 1.x benchmark works 4 steps of 15 ms: `gaggle bench --workload
    /// gaggle1-contended`.
    #[arg(long, default_value = "15ms")]
    #[arg(value_parser = duration::between(Duration::ZERO, Duration::from_secs(60)))]
    pub(super) work: Duration,
    /// One key for all members (the contended case), or one for each (the uncontended case).
    #[arg(long, default_value = "same", value_parser = keys())]
    pub(super) keys: Keys,
    /// Show hand-off latencies and fairness too.
    #[arg(long, conflicts_with = "json")]
    pub(super) details: bool,
    /// Print one JSON object a line for each run, and no progress bar.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

impl Args {
    /// The selected strategies, each once.
    pub(super) fn strategies(&self) -> Vec<StrategyName> {
        if self.strategy.is_empty() {
            return vec![cluster::default_strategy(self.redis.as_ref(), self.channel.is_some())];
        }
        cluster::distinct(&self.strategy)
    }

    /// The channel of `raft` and `gaggle`.
    pub(super) fn channel(&self) -> ChannelName {
        let default = if self.processes { ChannelName::Tcp } else { ChannelName::Memory };
        self.channel.unwrap_or(default)
    }

    /// Refuses an invalid combination of options.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let selection = Selection {
            strategies: &self.strategies(),
            channels: &[self.channel()],
            names_channel: self.channel.is_some(),
            redis: self.redis.as_ref(),
            counts: true,
            processes: self.processes,
        };
        selection.check()
    }
}
