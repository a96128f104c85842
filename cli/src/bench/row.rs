//! One row of the results.

use gaggle_cli::workloads::Figures;
use serde_json::{Value, json};

use crate::cluster::{ChannelName, Setup, StrategyName};

/// All rounds of one workload on one setup.
#[derive(Debug)]
pub(super) struct Row {
    /// None for the baseline.
    pub(super) setup: Option<Setup>,
    pub(super) workload: &'static str,
    /// The median of the rounds.
    pub(super) figures: Figures,
    pub(super) rounds: Vec<Figures>,
}

impl Row {
    /// Adds one round to the row it belongs to.
    pub(super) fn note(
        rows: &mut Vec<Self>,
        setup: Option<Setup>,
        workload: &'static str,
        figures: Figures,
    ) {
        match rows.iter_mut().find(|row| row.setup == setup && row.workload == workload) {
            Some(row) => row.rounds.push(figures),
            None => {
                let rounds = vec![figures.clone()];
                rows.push(Self { setup, workload, figures, rounds });
            }
        }
    }

    /// Takes the median, once all rounds are there.
    pub(super) fn conclude(&mut self) {
        self.figures = Figures::median(&self.rounds);
    }

    pub(super) fn name(&self) -> String {
        self.setup.map_or_else(|| "no lock, one task".into(), |setup| setup.to_string())
    }

    /// The seed's workloads are told by the time of one operation, the others by their number.
    pub(super) fn by_time(&self) -> bool {
        matches!(self.workload, "worst" | "best" | "sequential")
    }

    pub(super) fn json(&self) -> Value {
        let strategy = self.setup.map(|setup| setup.strategy.as_str());
        let channel = self.setup.and_then(|setup| setup.channel).map(ChannelName::as_str);
        json!({
            "workload": self.workload,
            "strategy": strategy,
            "channel": channel,
            "median": self.figures,
            "rounds": self.rounds,
        })
    }

    /// Whether a lock broke a promise. Without a lock that is what is shown.
    pub(super) fn has_failed(&self) -> bool {
        let is_lock = self.setup.is_some_and(|setup| setup.strategy != StrategyName::Noop);
        is_lock && self.figures.broken.any()
    }
}
