//! What the increments of a run came to.

use std::collections::BTreeMap;

use super::{args::Keys, plan::Plan, worker::Span};

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) expected: u64,
    pub(super) got: u64,
    pub(super) lost: u64,
    /// From the first `lock` called to the last `unlock` returned, over the increments.
    pub(super) ms_per_increment: f64,
    /// The same for a lock that costs nothing: the time spent in critical sections, one after
    /// another on the same key, side by side on distinct keys.
    pub(super) ideal_ms: f64,
    /// From `unlock` called to `lock` returned to another member that already waited.
    pub(super) handoff_p50_us: Option<f64>,
    pub(super) handoff_p99_us: Option<f64>,
    /// The longest run of grants of one key to the same member.
    pub(super) longest_streak: u64,
}

impl Figures {
    /// Without hand-offs: where nobody holds, nobody hands on, and what looks like it is chance.
    pub(super) fn without_handoffs(self) -> Self {
        Self { handoff_p50_us: None, handoff_p99_us: None, ..self }
    }
}

pub(super) fn figures(plan: &Plan, spans: &[Span], got: u64) -> Figures {
    let expected = plan.expected();
    let first = spans.iter().map(|span| span.asked).min().unwrap_or(0);
    let last = spans.iter().map(|span| span.unlocked).max().unwrap_or(0);
    let inside: u64 = spans.iter().map(|span| span.unlock_called - span.acquired).sum();
    let (side_by_side, keys) = match plan.keys {
        Keys::Same => (1, by_key(spans, |_| 0)),
        Keys::Distinct => (plan.jobs.len(), by_key(spans, |span| span.member)),
    };
    let mut handoffs: Vec<u64> = keys.values().flat_map(|grants| handoffs(grants)).collect();
    handoffs.sort_unstable();
    Figures {
        expected,
        got,
        lost: expected.saturating_sub(got),
        ms_per_increment: nanos_as(1e6, last - first) / expected as f64,
        ideal_ms: nanos_as(1e6, inside) / expected as f64 / side_by_side as f64,
        handoff_p50_us: percentile(&handoffs, 50).map(|nanos| nanos_as(1e3, nanos)),
        handoff_p99_us: percentile(&handoffs, 99).map(|nanos| nanos_as(1e3, nanos)),
        longest_streak: keys.values().map(|grants| longest_streak(grants)).max().unwrap_or(0),
    }
}

/// The grants of each key, in their order.
fn by_key(spans: &[Span], key: impl Fn(&Span) -> u32) -> BTreeMap<u32, Vec<Span>> {
    let mut keys: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
    for span in spans {
        keys.entry(key(span)).or_default().push(*span);
    }
    for grants in keys.values_mut() {
        grants.sort_unstable_by_key(|span| span.acquired);
    }
    keys
}

/// The times from one member's unlock to another's lock. Whoever had not asked by then did not
/// wait; whoever had the key before it (no lock at all) was not handed it.
fn handoffs(grants: &[Span]) -> impl Iterator<Item = u64> + '_ {
    grants.windows(2).filter_map(|pair| {
        let (from, to) = (pair[0], pair[1]);
        let waited = to.asked < from.unlock_called && from.unlock_called <= to.acquired;
        (from.member != to.member && waited).then(|| to.acquired - from.unlock_called)
    })
}

fn longest_streak(grants: &[Span]) -> u64 {
    let streaks = grants.chunk_by(|a, b| a.member == b.member);
    streaks.map(|streak| streak.len() as u64).max().unwrap_or(0)
}

/// The smallest value that at least this share of them do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

fn nanos_as(unit: f64, nanos: u64) -> f64 {
    nanos as f64 / unit
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::increment::{plan::Job, store::Address};

    fn span(member: u32, asked: u64, acquired: u64, unlock_called: u64) -> Span {
        Span { member, asked, acquired, unlock_called, unlocked: unlock_called + 1 }
    }

    #[test]
    fn handoff_runs_from_unlock_called_to_lock_returned_to_another_that_waited() {
        let grants = [
            span(0, 0, 10, 100),
            span(1, 5, 130, 200),   // waited: 30
            span(2, 210, 215, 300), // asked after the unlock: it did not wait
            span(2, 290, 310, 400), // the same member
            span(0, 20, 450, 500),  // waited: 50
            span(1, 30, 490, 600),  // had it before the unlock: no lock at all
        ];
        assert_eq!(handoffs(&grants).collect::<Vec<_>>(), [30, 50]);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), Some(50));
        assert_eq!(percentile(&hundred, 99), Some(99));
        assert_eq!(percentile(&[7], 50), Some(7));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn streak_counts_grants_in_their_order() {
        let grants = [0, 0, 1, 1, 1, 0].map(|member| span(member, 0, 0, 0));
        assert_eq!(longest_streak(&grants), 3);
        assert_eq!(longest_streak(&[]), 0);
    }

    #[test]
    fn grants_are_taken_in_the_order_in_which_they_were_acquired() {
        let spans = [span(1, 0, 20, 30), span(0, 0, 1, 10)];
        let keys = by_key(&spans, |_| 0);
        assert_eq!(keys[&0].iter().map(|span| span.member).collect::<Vec<_>>(), [0, 1]);
    }

    fn plan(keys: Keys) -> Plan {
        let job = |member| Job {
            member,
            url: String::new(),
            key: String::new(),
            warm_up_key: String::new(),
            counter: String::new(),
            increments: 2,
            work: Duration::ZERO,
            store: Address::Memory,
        };
        Plan {
            channel: None,
            processes: false,
            keys,
            counters: Vec::new(),
            jobs: [0, 1].map(job).into(),
            shared: false,
        }
    }

    #[test]
    fn every_figure_follows_from_the_spans() {
        let ms = |span: Span| Span {
            member: span.member,
            asked: span.asked * 1_000_000,
            acquired: span.acquired * 1_000_000,
            unlock_called: span.unlock_called * 1_000_000,
            unlocked: span.unlocked * 1_000_000,
        };
        // On one key handed over within 10, 20 and 30 ms; 40 ms inside each time.
        let spans = [
            span(0, 2, 10, 50),
            span(1, 5, 60, 100),
            span(0, 51, 120, 160),
            span(1, 101, 190, 230),
        ]
        .map(ms);
        let expected = Figures {
            expected: 4,
            got: 3,
            lost: 1,
            ms_per_increment: (231.0 - 2.0) / 4.0,
            ideal_ms: 40.0,
            handoff_p50_us: Some(20_000.0),
            handoff_p99_us: Some(30_000.0),
            longest_streak: 1,
        };
        assert_eq!(figures(&plan(Keys::Same), &spans, 3), expected);
        // On a key each nothing is handed over, and both work side by side.
        let distinct = Figures {
            got: 4,
            lost: 0,
            ideal_ms: 20.0,
            handoff_p50_us: None,
            handoff_p99_us: None,
            longest_streak: 2,
            ..expected
        };
        assert_eq!(figures(&plan(Keys::Distinct), &spans, 4), distinct);
    }
}
