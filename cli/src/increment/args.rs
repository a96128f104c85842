//! The options of `gaggle increment`, and what follows from them together.

use std::time::Duration;

use clap::ValueEnum;

use crate::{
    cluster::{self, ChannelName, RedisUrl, StrategyName},
    failure::Failure,
};

/// Which keys the members lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Keys {
    /// One for all.
    Same,
    /// One each.
    Distinct,
}

/// The options of `gaggle increment`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The strategy; may be given several times [default: gaggle].
    #[arg(long, value_enum)]
    pub(super) strategy: Vec<StrategyName>,
    /// The channel of raft and gaggle [default: memory; tcp with --processes].
    #[arg(long, value_enum)]
    pub(super) channel: Option<ChannelName>,
    /// A Redis, as redis://[user[:password]@]host[:port][/db]; the counter is then a key in it.
    #[arg(long, value_name = "URL", value_parser = RedisUrl::parse)]
    #[arg(env = "GAGGLE_REDIS", hide_env_values = true)]
    pub(super) redis: Option<RedisUrl>,
    /// Run each member in an operating-system process of its own.
    #[arg(long)]
    pub(super) processes: bool,
    /// How many members increment at once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=31))]
    pub(super) members: u32,
    /// How many increments each member makes.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) increments: u32,
    /// How long one increment works between reading and writing, as 15ms or 2s. The original's
    /// benchmark works 4 steps of 15 ms, as `gaggle bench --workload worst` does.
    #[arg(long, default_value = "15ms", value_parser = parse_work)]
    pub(super) work: Duration,
    /// One key for all members (the worst case), or one each (the best case).
    #[arg(long, value_enum, default_value_t = Keys::Same)]
    pub(super) keys: Keys,
    /// Print one JSON object a line for each run, and no progress bar.
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    /// The strategies in the order given, each once.
    pub(super) fn strategies(&self) -> Vec<StrategyName> {
        let mut strategies = Vec::new();
        for strategy in &self.strategy {
            if !strategies.contains(strategy) {
                strategies.push(*strategy);
            }
        }
        if strategies.is_empty() {
            strategies.push(StrategyName::Gaggle);
        }
        strategies
    }

    /// The channel that the Raft family runs over.
    pub(super) fn channel(&self) -> ChannelName {
        let default = if self.processes { ChannelName::Tcp } else { ChannelName::Memory };
        self.channel.unwrap_or(default)
    }

    /// Refuses what cannot be, before anything runs.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let asked = cluster::Asked {
            strategies: &self.strategies(),
            channels: &[self.channel()],
            channel_given: self.channel.is_some(),
            redis: self.redis.as_ref(),
            processes: self.processes,
        };
        asked.check()
    }
}

fn parse_work(text: &str) -> Result<Duration, String> {
    cluster::parse_span(text, Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_a_number_with_its_unit() {
        for (text, us) in [("15ms", 15_000), ("60s", 60_000_000), ("500us", 500), ("0", 0)] {
            assert_eq!(parse_work(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for text in ["", "15", "ms", "-1ms", "1.5ms", "61s", "99999999999999999999s", "1 ms"] {
            assert!(parse_work(text).is_err(), "{text}");
        }
    }
}
