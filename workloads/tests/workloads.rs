//! Goal: the figures of the workloads are correct, and show a lock without mutual exclusion, a
//! token that does not grow, and a task that starves. Method: small runs over `Local` and without a
//! lock, and histories that are written by hand.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{sync::Arc, time::Duration};

use gaggle::{Locker, strategies::Local};
use gaggle_workloads::{
    self as workloads, Bare, BoxError, Contender, Figures, LockSample, NoLock, Workload,
};

async fn local(workload: &Workload) -> Figures {
    let locker = Arc::new(Locker::new(Local::new()));
    workloads::run(&[locker], workload, "k").await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifo_grants_to_another_task_and_is_fair() {
    let workload =
        Workload { step: Duration::from_millis(1), ..Workload::gaggle1_contended(4).each(10) };
    let figures = local(&workload).await;
    assert_eq!((figures.pairs, figures.longest_streak), (40, Some(1)), "{figures:?}");
    assert_eq!((figures.handoff_share, figures.jain), (Some(1.0), 1.0), "{figures:?}");
    assert!(figures.handoff_us.unwrap().p50 > 0.0, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_lock_shows_as_broken() {
    let workload =
        Workload { step: Duration::from_millis(1), ..Workload::gaggle1_contended(4).each(10) };
    let figures = workloads::run(&[Arc::new(NoLock)], &workload, "k").await.unwrap();
    assert!(figures.broken.overlaps > 0 && figures.broken.lost_updates > 0, "{figures:?}");
    // Two separate strategies are no lock either.
    let two = [Local::new(), Local::new()].map(|local| Arc::new(Bare(Arc::new(local))));
    let figures = workloads::run(&two, &workload, "k").await.unwrap();
    assert!(figures.broken.overlaps > 0, "{figures:?}");
}

#[tokio::test]
async fn recorded_samples_give_the_figures_of_a_run() {
    let locker = Arc::new(Locker::new(Local::new()));
    let workload =
        Workload { step: Duration::from_millis(1), ..Workload::gaggle1_contended(3).each(5) };
    let begin = workloads::now() + 1_000_000;
    let samples = workloads::record(&locker, &workload, &[0, 1, 2], begin, "k").await.unwrap();
    assert_eq!(samples.len(), 15);
    let figures = workloads::replay(&workload, begin, samples);
    assert_eq!((figures.pairs, figures.longest_streak), (15, Some(1)), "{figures:?}");
    assert!(!figures.broken.any(), "{figures:?}");
}

fn sample(
    task: u32,
    lock_called_at: u64,
    granted_at: u64,
    unlock_called_at: u64,
    token: u64,
) -> LockSample {
    let (unlocked_at, token) = (unlock_called_at + 1, Some(token));
    LockSample { task, lock_called_at, granted_at, unlock_called_at, unlocked_at, token }
}

#[test]
fn replay_orders_the_samples_of_all_processes() {
    let workload = Workload::gaggle1_contended(2).each(2);
    let samples = vec![
        sample(1, 0, 20, 30, 2),
        sample(0, 0, 10, 20, 1), // ends as the next begins: no overlap
        sample(0, 25, 35, 40, 3),
        sample(1, 31, 45, 45, 4), // begins and ends at once
    ];
    let figures = workloads::replay(&workload, 0, samples);
    assert!(!figures.broken.any(), "{figures:?}");
    assert_eq!((figures.pairs, figures.handoff_share), (4, Some(1.0)), "{figures:?}");
}

#[test]
fn starvation_shows_in_streak_fairness_and_wait() {
    let workload = Workload::gaggle1_contended(2).each(10);
    let mut samples: Vec<_> =
        (0..9).map(|n| sample(0, n * 10, n * 10 + 1, n * 10 + 9, n + 1)).collect();
    samples.push(sample(1, 0, 1000, 1001, 10));
    let figures = workloads::replay(&workload, 0, samples);
    assert_eq!(figures.longest_streak, Some(9));
    assert!(figures.jain < 0.62 && figures.handoff_share < Some(0.12), "{figures:?}");
    assert_eq!(figures.lock_us.max, 1.0);
}

#[test]
fn every_figure_follows_from_the_samples() {
    // Three tasks in a window of 2 µs. The third one never has the key.
    let workload = Workload {
        warm_up: Duration::ZERO,
        ..Workload::handoff(3).lasting(Duration::from_nanos(2000))
    };
    let sample =
        |task, lock_called_at, granted_at, unlock_called_at, unlocked_at, token| LockSample {
            task,
            lock_called_at,
            granted_at,
            unlock_called_at,
            unlocked_at,
            token: Some(token),
        };
    let figures = workloads::replay(
        &workload,
        0,
        vec![
            sample(0, 0, 100, 200, 210, 1),
            // Waited since before the unlock: a hand-off within 40 ns.
            sample(1, 50, 240, 300, 320, 2),
            // Within 30 ns.
            sample(0, 220, 330, 400, 430, 3),
            // The same task again.
            sample(0, 440, 450, 500, 510, 4),
            // Called `lock` after the unlock, and its own unlock ends after the window.
            sample(1, 505, 520, 1990, 2000, 5),
            // After the window.
            sample(0, 2000, 2005, 2010, 2020, 6),
        ],
    );
    let near = |found: f64, expected: f64, what: &str| {
        assert!((found - expected).abs() < 1e-9 * expected, "{what}: {found}, not {expected}");
    };
    assert_eq!((figures.tasks, figures.pairs, figures.longest_streak), (3, 4, Some(2)));
    near(figures.seconds, 2e-6, "the window");
    near(figures.pairs_per_s, 2e6, "pairs/s");
    near(figures.ms_per_pair, 5e-4, "ms a pair");
    near(figures.unlock_mean_us.unwrap(), 0.0175, "unlock: 10, 20, 30 and 10 ns");
    let lock = figures.lock_us;
    near(lock.mean, 0.085, "lock: 100, 190, 110, 10 and 15 ns");
    near(lock.p50, 0.1, "lock p50");
    near(lock.p99, 0.19, "lock p99");
    near(lock.max, 0.19, "worst lock");
    let handoff = figures.handoff_us.unwrap();
    near(handoff.mean, 0.035, "hand-off: 40 and 30 ns");
    near(handoff.p50, 0.03, "hand-off p50");
    near(handoff.max, 0.04, "worst hand-off");
    near(figures.handoff_share.unwrap(), 0.75, "three of the four grants after an unlock");
    near(figures.jain, 16.0 / (3.0 * 10.0), "3, 1 and 0 pairs of three tasks");
    assert!(!figures.broken.any(), "{figures:?}");
}

/// Locks after a fixed time.
struct Turnstile {
    opens_after: Duration,
}

impl Contender for Turnstile {
    type Hold = ();

    async fn lock(&self, _: &str) -> Result<(), BoxError> {
        tokio::time::sleep(self.opens_after).await;
        Ok(())
    }

    async fn unlock(&self, (): ()) -> Result<(), BoxError> {
        Ok(())
    }
}

#[tokio::test]
async fn fairness_counts_tasks_without_a_lock() {
    let window = Duration::from_millis(200);
    let workload = Workload { warm_up: Duration::ZERO, ..Workload::fan(4).lasting(window) };
    let (one, never) = (Duration::from_millis(1), 2 * window);
    let contenders =
        [one, never, never, never].map(|opens_after| Arc::new(Turnstile { opens_after }));
    let figures = workloads::run(&contenders, &workload, "k").await.unwrap();
    assert!(figures.pairs > 0, "{figures:?}");
    assert_eq!((figures.tasks, figures.jain), (4, 0.25), "{figures:?}");
    // The waits count, although they end after the window.
    assert!(figures.lock_us.max > 390_000.0, "{figures:?}");
}
