//! The history checker: finds replies to clients that no correct lock would give.
//!
//! A [`History`] holds calls with the times of invocations and replies, on one clock (that of
//! a simulator or of one host). [`check`] looks for violations in two ways:
//!
//! 1. **Intervals.** Rules for every order of the operations: certain holds do not overlap, tokens
//!    rise, a nonce is granted once ([`Rule`] lists all). Costs a sort, whatever the contention.
//! 2. **A search** (Wing and Gong, with Lowe's memory) for *some* order in which a
//!    [model](ModelKind) replies as the lock did. It also finds wrong refusals and chains of
//!    consequences. A search that exceeds its budget is [`Undecided`], is counted, and is not a
//!    pass. Keys with violations of the first kind are not searched.
//!
//! # What must be in a history
//!
//! *Every* call on its keys: a missing holder looks like a violation. The three [models](ModelKind)
//! state what they conclude. A pending call may have taken effect at any time after its
//! invocation, or never. So may a LOCK that timed out or was withdrawn, and its hold ends at any
//! time, because its withdrawal may be in flight. If one call of a nonce was granted and another
//! failed, its hold is uncertain from the failed call's invocation on, because a failed call
//! withdraws its nonce. Two events at one instant happened in either order.
//!
//! # Layout
//!
//! - `operation`, `record`: what a recorder sees. Malformed histories are refused.
//! - `acquisition`: operations grouped by nonce. `interval`: the first way.
//! - `timeline`, `model`, `search`, `explain`: the second.
//! - `report`: the result of a check.

mod acquisition;
mod explain;
mod interval;
mod model;
mod operation;
mod record;
mod report;
mod search;
mod timeline;

use std::time::Duration;

use gaggle_strategies::Drift;

use self::{
    acquisition::Acquisitions,
    interval::Rules,
    model::{Fenced, Leased, Queued},
    search::Verdict,
    timeline::Timeline,
};
pub use self::{
    model::ModelKind,
    operation::{Call, Operation, Outcome, Refusal},
    record::{History, Malformed, Recorder},
    report::{Report, Rule, Undecided, VIOLATIONS_KEPT, Violation},
};

/// How a history is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The steps that the search for one key and model may take; 2,000,000 by default, a second or
    /// two and at most some hundred megabytes. The explanation of a breach may take as many again.
    pub budget: u64,
    /// How far the rates of a holder's clock and of the history's differ; 1 % by default. A
    /// deadline is certain only less this part of the time from its reply to it. None
    /// (`Drift::from_ppm(0)`), which sees more, where deadlines are exact on the history's clock: a
    /// simulator that converts them, or processes of one host.
    pub drift: Drift,
    /// Whether keys are searched on which the interval check found something; not by default, as
    /// that costs most and adds little.
    pub search_all: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { budget: 2_000_000, drift: Drift::default(), search_all: false }
    }
}

/// Checks `history` against all of `models`: intervals first, then a search for each key and model.
#[must_use]
pub fn check(history: &History, models: &[ModelKind], settings: &Settings) -> Report {
    let mut report = Report::new(history);
    let acquisitions = Acquisitions::of(history, settings.drift);
    report.keys = acquisitions.keys.len() as u64;
    let rules = Rules::of(models);
    for place in 0..acquisitions.keys.len() {
        let found = interval::check(&acquisitions, place, rules);
        let clean = found.total == 0;
        report.add(found.total, found.kept);
        if clean || settings.search_all {
            search_key(&acquisitions, place, models, settings, &mut report);
        }
    }
    report
}

fn search_key(
    acquisitions: &Acquisitions<'_>,
    place: usize,
    models: &[ModelKind],
    settings: &Settings,
    report: &mut Report,
) {
    let timeline = Timeline::of(acquisitions, place, Duration::MAX, settings.drift);
    for &model in models {
        let mut budget = settings.budget;
        let verdict = search_as(model, &timeline, &mut budget);
        report.searches += 1;
        report.steps += settings.budget - budget;
        let key = acquisitions.key(place);
        match verdict {
            Verdict::Legal => {}
            Verdict::Illegal => {
                let operations = explain::explain(acquisitions, place, model, settings);
                let rule = Rule::Unexplained(model);
                report.add(1, vec![Violation { rule, key, operations }]);
            }
            Verdict::Undecided => report.undecided.push(Undecided { key, model }),
        }
    }
}

fn search_as(model: ModelKind, timeline: &Timeline, budget: &mut u64) -> Verdict {
    match model {
        ModelKind::Fenced => search::search(&Fenced, timeline, budget),
        ModelKind::Leased => search::search(&Leased, timeline, budget),
        ModelKind::Queued => search::search(&Queued, timeline, budget),
    }
}
