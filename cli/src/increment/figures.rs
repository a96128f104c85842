//! The figures of one run.

use gaggle_workloads::{self as workloads, Keys, Span, Workload};

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    /// How many increments were made.
    pub(super) increments: u64,
    /// The counter at the end.
    pub(super) counted: u64,
    /// Increments that another one overwrote.
    pub(super) lost: u64,
    /// From the first call of `lock` to the end of the last `unlock`, divided by the increments.
    pub(super) ms_per_increment: f64,
    /// The same for a lock that takes no time: the time in critical sections, one after another on
    /// one key, in parallel on distinct keys.
    pub(super) ideal_ms: f64,
    /// The hand-off latency to another member that already waited.
    pub(super) handoff_p50_us: Option<f64>,
    pub(super) handoff_p99_us: Option<f64>,
    /// The longest run of grants to the same member.
    pub(super) longest_streak: Option<u64>,
}

impl Figures {
    pub(super) fn new(workload: &Workload, spans: Vec<Span>, counted: u64) -> Self {
        let inside_ns: u64 = spans.iter().map(|span| span.unlock_called_at - span.granted_at).sum();
        let parallel = if workload.keys == Keys::Same { 1 } else { workload.tasks };
        let run = workloads::replay(workload, 0, spans);
        Self {
            increments: run.pairs,
            counted,
            lost: run.pairs.saturating_sub(counted),
            ms_per_increment: run.ms_per_pair,
            ideal_ms: inside_ns as f64 / 1e6 / run.pairs as f64 / f64::from(parallel),
            handoff_p50_us: run.handoff_us.map(|spread| spread.p50),
            handoff_p99_us: run.handoff_us.map(|spread| spread.p99),
            longest_streak: run.longest_streak,
        }
    }

    /// Without a lock there is no hand-off: an apparent one is chance.
    pub(super) fn without_handoffs(self) -> Self {
        Self { handoff_p50_us: None, handoff_p99_us: None, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_figure_follows_from_the_spans() {
        let span = |task, lock_called_ms: u64, granted_ms: u64, unlock_called_ms: u64| Span {
            task,
            lock_called_at: lock_called_ms * 1_000_000,
            granted_at: granted_ms * 1_000_000,
            unlock_called_at: unlock_called_ms * 1_000_000,
            unlocked_at: (unlock_called_ms + 1) * 1_000_000,
            token: None,
        };
        // On one key handed off within 10, 20 and 30 ms; 40 ms inside each time.
        let spans = vec![
            span(0, 2, 10, 50),
            span(1, 5, 60, 100),
            span(0, 51, 120, 160),
            span(1, 101, 190, 230),
        ];
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.001 * expected;
        let workload = |keys| Workload::increments(2, keys, 2, Duration::from_millis(40));

        let same = Figures::new(&workload(Keys::Same), spans.clone(), 3);
        assert_eq!((same.increments, same.counted, same.lost), (4, 3, 1));
        assert!(near(same.ms_per_increment, (231.0 - 2.0) / 4.0), "{same:?}");
        assert!(near(same.ideal_ms, 40.0), "{same:?}");
        assert!(near(same.handoff_p50_us.unwrap(), 20_000.0), "{same:?}");
        assert!(near(same.handoff_p99_us.unwrap(), 30_000.0), "{same:?}");
        assert_eq!(same.longest_streak, Some(1));

        // On a key each there is no hand-off, and both members work in parallel.
        let distinct = Figures::new(&workload(Keys::Distinct), spans, 4);
        assert_eq!(
            (distinct.lost, distinct.handoff_p50_us, distinct.longest_streak),
            (0, None, None)
        );
        assert!(near(distinct.ideal_ms, 20.0), "{distinct:?}");
    }
}
