//! The processors of this machine, and the share of them that other programs use.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Above this share a benchmark should not be trusted.
pub(super) const BUSY: f64 = 0.1;

/// How long the measurement lasts.
const WINDOW: Duration = Duration::from_millis(150);
/// A loop that is not interrupted reads the clock far more often.
const INTERRUPTION: Duration = Duration::from_micros(300);

/// The share of the processors that other programs take from a thread for each of them.
#[expect(clippy::disallowed_methods, reason = "150 ms of the machine, not of any lease")]
pub(super) fn busy_share() -> f64 {
    let spin = || {
        let (start, mut last, mut lost) = (Instant::now(), Instant::now(), Duration::ZERO);
        while last - start < WINDOW {
            let now = Instant::now();
            if now - last > INTERRUPTION {
                lost += now - last;
            }
            last = now;
        }
        lost.as_secs_f64() / (last - start).as_secs_f64()
    };
    let threads: Vec<_> = (0..cores()).map(|_| thread::spawn(spin)).collect();
    let shares = threads.into_iter().map(|thread| thread.join().unwrap_or(0.0));
    shares.sum::<f64>() / cores() as f64
}

pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn machine_with_busy_threads_is_busy() {
        let stop = AtomicBool::new(false);
        let share = thread::scope(|scope| {
            for _ in 0..2 * cores() {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let share = busy_share();
            stop.store(true, Ordering::Relaxed);
            share
        });
        assert!(share > BUSY, "{share}");
    }
}
