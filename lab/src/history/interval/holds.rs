//! Certain holds of one key do not overlap.

use std::time::Duration;

use super::{Acquisition, Found, Key, Rules};
use crate::history::{Rule, acquisition::Granted};

/// A certain hold: from when its grant was known to when it may first have ended.
#[derive(Clone, Copy)]
struct Hold {
    from: Duration,
    to: Duration,
    /// When the nonce was first asked for: its grant took effect between this and `from`.
    asked: Duration,
    grant: u32,
    /// The deadline of the grant, where deadlines count.
    deadline: Duration,
    /// The last call that found it holding, with its invocation.
    found: Option<(Duration, u32)>,
}

pub(super) fn check(key: &Key<'_, '_>, rules: Rules, found: &mut Found) {
    let mut holds: Vec<Hold> =
        key.of_key.iter().filter_map(|nonce| Some(hold(nonce, nonce.grant?, rules))).collect();
    holds.sort_unstable_by_key(|hold| (hold.from, hold.to));
    overlaps(key, &holds, found);
    grants_within(key, &mut holds, found);
}

fn hold(nonce: &Acquisition, grant: Granted, rules: Rules) -> Hold {
    let zero = (Duration::ZERO, Duration::ZERO);
    let (deadline, believed) = if rules.leases { (grant.until, nonce.until) } else { zero };
    let seen = nonce.found.map_or(Duration::ZERO, |(invoked, _)| invoked);
    let to = believed.max(seen).min(nonce.ending()).max(grant.completed);
    let asked = nonce.asked.unwrap_or(grant.completed);
    let (from, grant, found) = (grant.completed, grant.operation, nonce.found);
    Hold { from, to, asked, grant, deadline, found }
}

/// Sorted by beginning, each hold begins after the latest end before it.
fn overlaps(key: &Key<'_, '_>, holds: &[Hold], found: &mut Found) {
    let mut latest: Option<Hold> = None;
    for &hold in holds.iter().filter(|hold| hold.to > hold.from) {
        if let Some(before) = latest.filter(|before| hold.from < before.to) {
            note(key, before, hold, found);
        }
        if latest.is_none_or(|before| hold.to > before.to) {
            latest = Some(hold);
        }
    }
}

/// No grant takes effect wholly within another's hold, however short its own was.
fn grants_within(key: &Key<'_, '_>, holds: &mut [Hold], found: &mut Found) {
    let by_beginning = holds.to_vec();
    holds.sort_unstable_by_key(|hold| hold.asked);
    let mut begun = by_beginning.iter().peekable();
    let mut latest: Option<Hold> = None;
    for &mut hold in holds {
        while let Some(&before) = begun.next_if(|before| before.from < hold.asked) {
            if latest.is_none_or(|latest| before.to > latest.to) {
                latest = Some(before);
            }
        }
        // One with a hold of its own overlaps, and was noted.
        if let Some(before) = latest.filter(|before| hold.from < before.to && hold.to == hold.from)
        {
            note(key, before, hold, found);
        }
    }
}

fn note(key: &Key<'_, '_>, before: Hold, hold: Hold, found: &mut Found) {
    let mut operations = vec![before.grant, hold.grant];
    let rule = match before.found {
        Some((seen, call)) if seen > hold.from && hold.from >= before.deadline => {
            operations.push(call);
            Rule::Revived
        }
        _ => Rule::Overlap,
    };
    found.note(key, rule, &operations);
}
