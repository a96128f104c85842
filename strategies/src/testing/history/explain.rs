//! A minimal explanation of a history that no order explains.

use std::time::Duration;

use super::{
    ModelKind, Operation, Settings,
    acquisition::Acquisitions,
    search::Verdict,
    search_as,
    timeline::{Excerpt, Timeline},
};

/// The operations that show why no order explains the key at `place`: of the shortest illegal
/// prefix of its history, the acquisitions without which it would be legal.
///
/// With an acquisition all of its calls are left out, and the refusals that it may have caused; so
/// the rest is illegal only if the whole is. A search that ends by the budget counts as legal:
/// the explanation then is longer than it need be, and still right.
pub(super) fn explain(
    acquisitions: &Acquisitions<'_>,
    place: usize,
    model: ModelKind,
    settings: &Settings,
) -> Vec<Operation> {
    let mut budget = settings.budget;
    let keys = acquisitions.keys[place].clone();
    let all: Vec<usize> = keys.collect();
    let operations: u64 =
        all.iter().map(|&place| acquisitions.all[place].operations.len() as u64).sum();
    let mut illegal = |kept: &[usize], until: Duration| {
        // Laying out the timeline costs as well.
        budget = budget.saturating_sub(operations);
        if budget == 0 {
            return false;
        }
        let of_key = (0..).zip(kept.iter().map(|&place| &acquisitions.all[place]));
        // Both are in the order of the key's acquisitions.
        let left_out = all.iter().filter(|place| kept.binary_search(place).is_err());
        let excerpt = Excerpt::new(until, left_out.map(|&place| &acquisitions.all[place]));
        let timeline = Timeline::of(acquisitions, of_key, &excerpt, settings.drift);
        search_as(model, &timeline, &mut budget) == Verdict::Illegal
    };

    let until = shortest(acquisitions, &all, |until| illegal(&all, until));
    let mut kept = all.clone();
    kept.retain(|&place| {
        let first = acquisitions.operations(&acquisitions.all[place]).next();
        first.is_some_and(|(_, operation)| operation.invoked <= until)
    });
    // In halves, quarters, … and at last one by one: leaves out all that it can.
    let mut size = kept.len().div_ceil(2);
    while size > 0 && kept.len() > 1 {
        let mut start = 0;
        while start < kept.len() && kept.len() > 1 {
            let end = (start + size).min(kept.len());
            let rest = [&kept[..start], &kept[end..]].concat();
            if illegal(&rest, until) { kept = rest } else { start = end }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }

    let mut operations: Vec<Operation> = kept
        .iter()
        .flat_map(|&place| acquisitions.operations(&acquisitions.all[place]))
        .filter(|(_, operation)| operation.invoked <= until)
        .map(|(_, operation)| operation.clone())
        .collect();
    operations.sort_by_key(|operation| operation.invoked);
    operations
}

/// The first reply with which the history is illegal.
fn shortest(
    acquisitions: &Acquisitions<'_>,
    all: &[usize],
    mut illegal: impl FnMut(Duration) -> bool,
) -> Duration {
    let mut ends: Vec<Duration> = all
        .iter()
        .flat_map(|&place| acquisitions.operations(&acquisitions.all[place]))
        .filter_map(|(_, operation)| operation.completed)
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let (mut low, mut high) = (0, ends.len().saturating_sub(1));
    while low < high {
        let middle = low.midpoint(high);
        if illegal(ends[middle]) { high = middle } else { low = middle + 1 }
    }
    ends.get(low).copied().unwrap_or(Duration::MAX)
}
