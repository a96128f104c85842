use hdrhistogram::Histogram;

/// Times in nanoseconds, to three significant digits.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        // It grows with what it is told; three digits are always allowed.
        Self(Histogram::new(3).expect("three digits are allowed"))
    }
}

impl Latency {
    /// Adds one time.
    pub fn record(&mut self, nanos: u64) {
        self.0.record(nanos).expect("it grows as needed");
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("it grows as needed");
    }

    /// How many times there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time, in microseconds, that this share of them (0 to 1) does not exceed.
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
