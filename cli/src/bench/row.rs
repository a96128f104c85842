//! The results of one workload on one setup.

use std::cmp::Ordering;

use gaggle_workloads::Figures;
use serde_json::{Value, json};

use crate::cluster::{self, Setup, StrategyName};

/// All rounds of one workload on one setup.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// None for the baseline.
    pub(super) setup: Option<Setup>,
    pub(super) workload: &'static str,
    /// The median of the rounds.
    pub(super) figures: Figures,
    pub(super) rounds: Vec<Figures>,
    /// The sum of the counters at the end, if critical sections incremented them.
    pub(super) counted: Option<u64>,
}

impl Row {
    /// Adds one round to its row.
    pub(super) fn add_round(
        rows: &mut Vec<Self>,
        setup: Option<Setup>,
        workload: &'static str,
        figures: Figures,
        counted: Option<u64>,
    ) {
        match rows.iter_mut().find(|row| row.setup == setup && row.workload == workload) {
            Some(row) => row.rounds.push(figures),
            None => {
                let rounds = vec![figures.clone()];
                rows.push(Self { setup, workload, figures, rounds, counted });
            }
        }
    }

    /// Computes the median, once all rounds are there.
    pub(super) fn conclude(&mut self) {
        self.figures = Figures::median(&self.rounds);
    }

    pub(super) fn name(&self) -> String {
        match self.setup {
            None => "no lock, 1 task".into(),
            Some(setup) if setup.strategy == StrategyName::Noop => "no lock".into(),
            Some(setup) => setup.to_string(),
        }
    }

    /// Whether its figure is the time of one increment, as in the Gaggle 1.x benchmark.
    pub(super) fn by_time(&self) -> bool {
        let is_gaggle1 = self.workload.starts_with("gaggle1-");
        is_gaggle1 || matches!(self.workload, "sequential" | "increment")
    }

    /// How many increments of the counters were overwritten.
    pub(super) fn lost(&self) -> u64 {
        self.counted.map_or(0, |counted| self.figures.pairs.saturating_sub(counted))
    }

    /// The better row is the lesser one.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.cost(&self.figures).total_cmp(&other.cost(&other.figures))
    }

    /// The cost by which rows are compared: less is better. A rate counts only hand-offs to another
    /// task, so that a task gains nothing by starving the others.
    fn cost(&self, figures: &Figures) -> f64 {
        match self.by_time() {
            true => figures.ms_per_pair,
            false => 1e3 / (figures.pairs_per_s * figures.handoff_share.unwrap_or(1.0)),
        }
    }

    /// Half the distance between the best and the worst round, as a share of the median; `None` of
    /// one round.
    pub(super) fn spread(&self) -> Option<f64> {
        let costs = || self.rounds.iter().map(|round| self.cost(round));
        let (best, worst) = (costs().fold(f64::MAX, f64::min), costs().fold(0.0, f64::max));
        let spread = (worst - best) / 2.0 / self.cost(&self.figures);
        (self.rounds.len() > 1 && spread.is_finite()).then_some(spread)
    }

    pub(super) fn json(&self) -> Value {
        let strategy = self.setup.map(|setup| cluster::name(setup.strategy));
        let channel = self.setup.and_then(|setup| setup.channel).map(cluster::name);
        json!({
            "workload": self.workload,
            "strategy": strategy,
            "channel": channel,
            "median": self.figures,
            "rounds": self.rounds,
        })
    }

    /// Whether a lock broke a promise. Without a lock that is expected.
    pub(super) fn has_failed(&self) -> bool {
        let is_lock = self.setup.is_some_and(|setup| setup.strategy != StrategyName::Noop);
        is_lock && (self.figures.broken.any() || self.lost() > 0)
    }
}
