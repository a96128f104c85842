//! The history checker: finds replies to clients that no correct lock would give.
//!
//! A [`History`] holds calls with the times of invocations and replies, on one clock (that of
//! a simulator or of one host). [`check`] searches (Wing and Gong, with Lowe's memory) for *some*
//! order in which a [model](ModelKind) replies as the lock did. A search that exceeds its budget is
//! [`Undecided`], is counted, and is not a pass.
//!
//! # What must be in a history
//!
//! *Every* call on its keys: a missing holder looks like a violation. The three [models](ModelKind)
//! state what they conclude. A pending call may have taken effect at any time after its
//! invocation, or never. So may a LOCK that timed out or was withdrawn, and its hold ends at any
//! time, because its withdrawal may be in flight. If one call of a nonce was granted and another
//! failed, its hold is uncertain from the failed call's invocation on, because a failed call
//! withdraws its nonce, unless that was given. Two events at one instant happened in either order.
//!
//! # Layout
//!
//! - `operation`, `record`: what a recorder sees. Malformed histories are refused.
//! - `acquisition`: operations grouped by nonce.
//! - `timeline`, `model`, `search`, `explain`: the search.
//! - `report`: the result of a check.

mod acquisition;
mod explain;
mod model;
mod operation;
mod record;
mod report;
mod search;
mod timeline;

use std::time::Duration;

use gaggle_strategies::Drift;

use self::{
    acquisition::Key,
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
}

impl Default for Settings {
    fn default() -> Self {
        Self { budget: 2_000_000, drift: Drift::default() }
    }
}

/// Checks `history` against all of `models`, key by key.
#[must_use]
pub fn check(history: &History, models: &[ModelKind], settings: &Settings) -> Report {
    let mut report = Report::new(history);
    for key in Key::all(history) {
        report.keys += 1;
        if models.iter().any(|model| *model != ModelKind::Fenced) {
            check_deadlines(&key, &mut report);
        }
        let timeline = Timeline::of(&key, Duration::MAX, settings.drift);
        for &model in models {
            search_key(&key, &timeline, model, settings, &mut report);
        }
    }
    report
}

/// No deadline is later than the longest lease asked for so far, counted from the reply.
fn check_deadlines(key: &Key<'_>, report: &mut Report) {
    for acquisition in key.acquisitions() {
        let mut longest = Duration::ZERO;
        for operation in acquisition {
            if let Call::Lock { duration, .. } | Call::Extend { duration } = operation.call {
                longest = longest.max(duration);
            }
            if let (Some(completed), Outcome::Granted { until, .. } | Outcome::Extended { until }) =
                (operation.completed, operation.outcome)
                && until > completed.saturating_add(longest)
            {
                let (rule, operations) = (Rule::DeadlineTooLate, vec![operation.clone()]);
                report.add(Violation { rule, key: key.name(), operations });
            }
        }
    }
}

fn search_key(
    key: &Key<'_>,
    timeline: &Timeline,
    model: ModelKind,
    settings: &Settings,
    report: &mut Report,
) {
    let mut budget = settings.budget;
    let verdict = search_as(model, timeline, &mut budget);
    report.searches += 1;
    report.steps += settings.budget - budget;
    match verdict {
        Verdict::Legal => {}
        Verdict::Illegal => {
            let operations = explain::explain(key, model, settings);
            let rule = Rule::Unexplained(model);
            report.add(Violation { rule, key: key.name(), operations });
        }
        Verdict::Undecided => report.undecided.push(Undecided { key: key.name(), model }),
    }
}

fn search_as(model: ModelKind, timeline: &Timeline, budget: &mut u64) -> Verdict {
    match model {
        ModelKind::Fenced => search::search(&Fenced, timeline, budget),
        ModelKind::Leased => search::search(&Leased, timeline, budget),
        ModelKind::Queued => search::search(&Queued, timeline, budget),
    }
}
