//! Latencies and percentiles.

use hdrhistogram::Histogram;

/// A histogram of times in nanoseconds, with three significant digits.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new(3).expect("three digits are valid"))
    }
}

impl Latency {
    /// Adds one time.
    pub fn record(&mut self, nanos: u64) {
        self.0.record(nanos).expect("it grows with its values");
    }

    /// Adds the times of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("it grows with its values");
    }

    /// How many times it holds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time, in microseconds, that this share (0 to 1) of all times does not exceed.
    #[must_use]
    pub fn us(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }

    /// The mean, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// The longest, in microseconds.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_shares_of_all_times() {
        let (mut odd, mut even) = (Latency::default(), Latency::default());
        for nanos in 1..=2000 {
            if nanos % 2 == 0 { even.record(nanos) } else { odd.record(nanos) }
        }
        odd.add(&even);
        assert_eq!(odd.count(), 2000);
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|share| odd.us(share)), [1.0, 1.98, 1.998, 2.0]);
        assert_eq!(odd.max_us(), 2.0);
        assert!((odd.mean_us() - 1.0005).abs() < 1e-9, "{}", odd.mean_us());
    }
}
