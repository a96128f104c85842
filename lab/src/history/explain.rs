//! The shortest part of a history that no order explains.

use std::time::Duration;

use super::{
    ModelKind, Operation, Settings, acquisition::Key, search::Verdict, search_as,
    timeline::Timeline,
};

/// The operations that show why no order explains `key`: all that were invoked by the
/// first reply with which its history is illegal.
///
/// A search that ends by the budget counts as legal: the explanation then is longer than it need
/// be, and still right.
pub(super) fn explain(key: &Key<'_>, model: ModelKind, settings: &Settings) -> Vec<Operation> {
    let mut operations: Vec<Operation> = key.operations().cloned().collect();
    let (mut budget, layout) = (settings.budget, operations.len() as u64);
    let until = shortest(&operations, |until| {
        // Laying out the timeline costs as well.
        budget = budget.saturating_sub(layout);
        if budget == 0 {
            return false;
        }
        let timeline = Timeline::of(key, until, settings.drift);
        search_as(model, &timeline, &mut budget) == Verdict::Illegal
    });
    operations.retain(|operation| operation.invoked <= until);
    operations.sort_by_key(|operation| operation.invoked);
    operations
}

/// The first reply with which the history is illegal.
fn shortest(operations: &[Operation], mut illegal: impl FnMut(Duration) -> bool) -> Duration {
    let mut ends: Vec<Duration> =
        operations.iter().filter_map(|operation| operation.completed).collect();
    ends.sort_unstable();
    ends.dedup();
    let (mut low, mut high) = (0, ends.len().saturating_sub(1));
    while low < high {
        let middle = low.midpoint(high);
        if illegal(ends[middle]) { high = middle } else { low = middle + 1 }
    }
    ends.get(low).copied().unwrap_or(Duration::MAX)
}
