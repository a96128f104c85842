//! The figures of a run.

use serde::{Deserialize, Serialize};

use super::{
    latency::Latency,
    ledger::KeyLedger,
    recorder::TaskTotals,
    workload::{Keys, Until, Window, Workload},
};

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How many tasks ran at once.
    pub tasks: u32,
    /// Pairs of a lock and its unlock that counted.
    pub pairs: u64,
    /// The seconds in which they were made.
    pub seconds: f64,
    /// Pairs a second.
    pub pairs_per_s: f64,
    /// The wall time of one pair: the ms/operation of the Gaggle 1.x benchmark.
    pub ms_per_pair: f64,
    /// From the call of `lock` until it returned.
    pub lock_us: Spread,
    /// The mean time from the call of `unlock` until it returned, in microseconds; none without a
    /// pair.
    pub unlock_mean_us: Option<f64>,
    /// From the call of `unlock` until `lock` returned to another task that waited; none if each
    /// task has its own key.
    pub handoff_us: Option<Spread>,
    /// The share of grants that went to another task than the last holder.
    pub handoff_share: Option<f64>,
    /// The most grants in a row to the same task.
    pub longest_streak: Option<u64>,
    /// Jain's index of fairness over the pairs of each task: 1 if all have the same number, 1 ÷
    /// tasks if one task has all.
    pub jain: f64,
    /// Violations, which must all be zero.
    pub broken: Broken,
}

/// A distribution, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 99 % do not exceed it.
    pub p99: f64,
    /// 99.9 % do not exceed it.
    pub p999: f64,
    /// The maximum.
    pub max: f64,
}

/// How often the lock broke a promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// Grants while another task held the key.
    pub overlaps: u64,
    /// Overwritten increments of a plain counter under the lock.
    pub lost_updates: u64,
    /// Grants whose fencing token was not greater than the one before.
    pub stale_tokens: u64,
}

impl Broken {
    /// Whether there was any violation.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    fn add(&mut self, other: &Self) {
        self.overlaps += other.overlaps;
        self.lost_updates += other.lost_updates;
        self.stale_tokens += other.stale_tokens;
    }
}

impl Spread {
    /// The distribution of these times; `None` without a time.
    #[must_use]
    pub fn of(times: &Latency) -> Option<Self> {
        (times.count() > 0).then(|| Self {
            mean: times.mean_us(),
            p50: times.us(0.5),
            p99: times.us(0.99),
            p999: times.us(0.999),
            max: times.max_us(),
        })
    }

    /// The median of each value, but the maximum of all maxima.
    fn median(all: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(all.iter().map(field));
        let max = all.iter().map(|spread| spread.max).fold(0.0, f64::max);
        let mean = of(|spread| spread.mean);
        Self { mean, p50: of(|s| s.p50), p99: of(|s| s.p99), p999: of(|s| s.p999), max }
    }
}

impl Figures {
    pub(crate) fn new(
        workload: &Workload,
        window: Window,
        totals: &[TaskTotals],
        ledgers: &[KeyLedger],
    ) -> Self {
        let pairs: u64 = totals.iter().map(|totals| totals.pairs).sum();
        let nanos = match workload.until {
            Until::For(_) => window.until - window.from,
            Until::Each(_) => {
                let first =
                    totals.iter().map(|totals| totals.first_lock_called_at).min().unwrap_or(0);
                let last = totals.iter().map(|totals| totals.last_unlocked_at).max().unwrap_or(0);
                last.saturating_sub(first)
            }
        };
        let seconds = nanos as f64 / 1e9;
        let mut waits = Latency::default();
        totals.iter().for_each(|totals| waits.add(&totals.waits));
        let mut handoffs = Latency::default();
        ledgers.iter().for_each(|ledger| handoffs.add(&ledger.handoffs));
        let unlock_ns: u64 = totals.iter().map(|totals| totals.unlock_ns).sum();
        let contended = workload.keys == Keys::Same && workload.tasks > 1;
        let after_unlock: u64 = ledgers.iter().map(|ledger| ledger.after_unlock).sum();
        let to_another: u64 = ledgers.iter().map(|ledger| ledger.to_another).sum();
        let longest = ledgers.iter().map(|ledger| ledger.longest_streak).max().unwrap_or(0);
        Self {
            tasks: workload.tasks,
            pairs,
            seconds,
            pairs_per_s: pairs as f64 / seconds,
            ms_per_pair: seconds * 1e3 / pairs as f64,
            unlock_mean_us: (pairs > 0).then(|| unlock_ns as f64 / pairs as f64 / 1e3),
            lock_us: Spread::of(&waits).unwrap_or(Spread {
                mean: 0.0,
                p50: 0.0,
                p99: 0.0,
                p999: 0.0,
                max: 0.0,
            }),
            handoff_us: Spread::of(&handoffs).filter(|_| contended),
            handoff_share: (contended && after_unlock > 0)
                .then(|| to_another as f64 / after_unlock as f64),
            longest_streak: contended.then_some(longest),
            jain: jain(totals.iter().map(|totals| totals.pairs)),
            broken: broken(ledgers),
        }
    }

    /// The median of each figure over several runs. The longest wait and the longest streak are
    /// those of all runs, and violations are added up.
    ///
    /// # Panics
    ///
    /// Without a run.
    #[must_use]
    pub fn median(runs: &[Self]) -> Self {
        let mut broken = Broken::default();
        runs.iter().for_each(|run| broken.add(&run.broken));
        let of = |field: fn(&Self) -> f64| median(runs.iter().map(field));
        let some = |field: fn(&Self) -> Option<f64>| {
            let all: Vec<_> = runs.iter().filter_map(field).collect();
            (!all.is_empty()).then(|| median(all))
        };
        let locks: Vec<_> = runs.iter().map(|run| run.lock_us).collect();
        let handoffs: Vec<_> = runs.iter().filter_map(|run| run.handoff_us).collect();
        Self {
            tasks: runs[0].tasks,
            pairs: of(|run| run.pairs as f64) as u64,
            seconds: of(|run| run.seconds),
            pairs_per_s: of(|run| run.pairs_per_s),
            ms_per_pair: of(|run| run.ms_per_pair),
            unlock_mean_us: some(|run| run.unlock_mean_us),
            lock_us: Spread::median(&locks),
            handoff_us: (!handoffs.is_empty()).then(|| Spread::median(&handoffs)),
            handoff_share: some(|run| run.handoff_share),
            longest_streak: runs.iter().filter_map(|run| run.longest_streak).max(),
            jain: of(|run| run.jain),
            broken,
        }
    }
}

fn broken(ledgers: &[KeyLedger]) -> Broken {
    let mut all = Broken::default();
    for ledger in ledgers {
        all.add(&Broken {
            overlaps: ledger.overlaps,
            lost_updates: ledger.lost_updates(),
            stale_tokens: ledger.stale_tokens,
        });
    }
    all
}

/// (Σx)² ÷ (n · Σx²); 1 if all counts are 0.
fn jain(counts: impl Iterator<Item = u64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for count in counts {
        let count = count as f64;
        n += 1.0;
        sum += count;
        squares += count * count;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}

/// The middle value, or the mean of the middle two.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_ranges_from_1_over_n_to_1() {
        assert_eq!(jain([5, 5, 5, 5].into_iter()), 1.0);
        assert_eq!(jain([8, 0, 0, 0].into_iter()), 0.25);
        assert_eq!(jain([0, 0].into_iter()), 1.0);
    }

    #[test]
    fn median_is_the_middle_or_the_mean_of_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    /// Figures that all differ, and grow with `n`.
    fn run(n: u32) -> Figures {
        let x = f64::from(n);
        let spread = |scale: f64| Spread {
            mean: scale * x,
            p50: scale * x + 1.0,
            p99: scale * x + 2.0,
            p999: scale * x + 3.0,
            max: scale * x + 4.0,
        };
        Figures {
            tasks: 2,
            pairs: u64::from(10 * n),
            seconds: 20.0 * x,
            pairs_per_s: 30.0 * x,
            ms_per_pair: 40.0 * x,
            unlock_mean_us: Some(50.0 * x),
            lock_us: spread(100.0),
            handoff_us: Some(spread(200.0)),
            handoff_share: Some(0.1 * x),
            longest_streak: Some(u64::from(n)),
            jain: 0.2 * x,
            broken: Broken {
                overlaps: u64::from(n),
                lost_updates: u64::from(10 * n),
                stale_tokens: u64::from(100 * n),
            },
        }
    }

    #[test]
    fn median_keeps_maxima_and_all_faults() {
        let mut expected = run(2);
        expected.lock_us.max = run(3).lock_us.max;
        expected.handoff_us.as_mut().unwrap().max = run(3).handoff_us.unwrap().max;
        expected.longest_streak = Some(3);
        expected.broken = Broken { overlaps: 6, lost_updates: 60, stale_tokens: 600 };
        assert_eq!(Figures::median(&[run(3), run(1), run(2)]), expected);
    }

    #[test]
    fn median_omits_runs_without_the_figure() {
        let without = Figures {
            unlock_mean_us: None,
            handoff_us: None,
            handoff_share: None,
            longest_streak: None,
            ..run(1)
        };
        let median = Figures::median(&[without.clone(), run(3), run(3)]);
        assert_eq!(
            (median.handoff_us, median.handoff_share),
            (run(3).handoff_us, run(3).handoff_share)
        );
        assert_eq!(Figures::median(std::slice::from_ref(&without)), without);
    }

    #[test]
    fn any_single_fault_breaks_a_promise() {
        let none = Broken::default();
        assert!(!none.any());
        for one in [
            Broken { overlaps: 1, ..none },
            Broken { lost_updates: 1, ..none },
            Broken { stale_tokens: 1, ..none },
        ] {
            assert!(one.any(), "{one:?}");
        }
    }
}
