//! Goal: the workloads count what happened, and see a lock that does not exclude, a token that does
//! not grow, and a task that starves.
//! Method: small runs over `Local`, over no lock at all, and over histories written down by hand.
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]

use std::{sync::Arc, time::Duration};

use gaggle::{Locker, strategies::Local};
use gaggle_cli::workloads::{self, Bare, Figures, Keys, NoLock, Span, Workload};

const SHORT: Duration = Duration::from_millis(50);

fn short(workload: Workload) -> Workload {
    Workload { warm_up: Duration::from_millis(5), ..workload.lasting(SHORT) }
}

async fn local(workload: &Workload) -> Figures {
    let locker = Arc::new(Locker::new(Local::new()));
    workloads::run(&[locker], workload, "k").await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workload_runs_over_local_and_breaks_nothing() {
    for workload in [
        short(Workload::uncontended()),
        short(Workload::fan(16)),
        short(Workload::handoff(8)),
        short(Workload::busy(4)),
        Workload { step: Duration::from_millis(1), ..Workload::worst(3).each(4) },
        Workload { step: Duration::from_millis(1), ..Workload::best(3).each(4) },
    ] {
        let figures = local(&workload).await;
        assert!(!figures.broken.any(), "{workload:?}: {figures:?}");
        assert!(figures.pairs > 0 && figures.pairs_per_s > 0.0, "{workload:?}: {figures:?}");
        let contended = workload.keys == Keys::Same && workload.tasks > 1;
        assert_eq!(figures.handed_over.is_some(), contended, "{workload:?}: {figures:?}");
        assert_eq!(figures.longest_streak.is_some(), contended, "{workload:?}: {figures:?}");
        assert!(figures.lock_us.p50 <= figures.lock_us.p99, "{figures:?}");
        assert!(figures.lock_us.p99 <= figures.lock_us.max, "{figures:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifo_hands_every_release_to_another_and_serves_all_alike() {
    let workload = Workload { step: Duration::from_millis(1), ..Workload::worst(4).each(10) };
    let figures = local(&workload).await;
    assert_eq!((figures.pairs, figures.longest_streak), (40, Some(1)), "{figures:?}");
    assert_eq!((figures.handed_over, figures.jain), (Some(1.0), 1.0), "{figures:?}");
    assert!(figures.handoff_us.unwrap().p50 > 0.0, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_at_all_is_seen() {
    let workload = Workload { step: Duration::from_millis(1), ..Workload::worst(4).each(10) };
    let figures = workloads::run(&[Arc::new(NoLock)], &workload, "k").await.unwrap();
    assert!(figures.broken.overlaps > 0 && figures.broken.lost_updates > 0, "{figures:?}");
    // Two strategies that know nothing of each other are no lock either.
    let two = [Local::new(), Local::new()].map(|local| Arc::new(Bare(Arc::new(local))));
    let figures = workloads::run(&two, &workload, "k").await.unwrap();
    assert!(figures.broken.overlaps > 0, "{figures:?}");
}

#[tokio::test]
async fn what_a_process_records_is_judged_as_if_run_here() {
    let locker = Arc::new(Locker::new(Local::new()));
    let workload = Workload { step: Duration::from_millis(1), ..Workload::worst(3).each(5) };
    let begin = workloads::now() + 1_000_000;
    let spans = workloads::record(&locker, &workload, &[0, 1, 2], begin, "k").await.unwrap();
    assert_eq!(spans.len(), 15);
    let figures = workloads::replay(&workload, begin, spans);
    assert_eq!((figures.pairs, figures.longest_streak), (15, Some(1)), "{figures:?}");
    assert!(!figures.broken.any(), "{figures:?}");
}

fn span(task: u32, asked: u64, granted: u64, released: u64, token: u64) -> Span {
    Span { task, asked, granted, released, unlocked: released + 1, token: Some(token) }
}

#[test]
fn replay_orders_the_spans_of_all_processes_by_time() {
    let workload = Workload::worst(2).each(2);
    let spans = vec![
        span(1, 0, 20, 30, 2),
        span(0, 0, 10, 20, 1), // ends as the next begins: no overlap
        span(0, 25, 35, 40, 3),
        span(1, 31, 45, 45, 4), // begins and ends at once
    ];
    let figures = workloads::replay(&workload, 0, spans);
    assert!(!figures.broken.any(), "{figures:?}");
    assert_eq!((figures.pairs, figures.handed_over), (4, Some(1.0)), "{figures:?}");
}

#[test]
fn replay_sees_overlaps_and_tokens_that_do_not_grow() {
    let workload = Workload::worst(2).each(1);
    let overlap =
        workloads::replay(&workload, 0, vec![span(0, 0, 10, 20, 1), span(1, 0, 19, 30, 2)]);
    assert_eq!((overlap.broken.overlaps, overlap.broken.lost_updates), (1, 1), "{overlap:?}");
    let stale = workloads::replay(&workload, 0, vec![span(0, 0, 10, 20, 2), span(1, 0, 21, 30, 1)]);
    assert_eq!((stale.broken.overlaps, stale.broken.stale_tokens), (0, 1), "{stale:?}");
}

#[test]
fn starvation_shows_beside_the_throughput() {
    let workload = Workload::worst(2).each(10);
    let mut spans: Vec<_> =
        (0..9).map(|n| span(0, n * 10, n * 10 + 1, n * 10 + 9, n + 1)).collect();
    spans.push(span(1, 0, 1000, 1001, 10));
    let figures = workloads::replay(&workload, 0, spans);
    assert_eq!(figures.longest_streak, Some(9));
    assert!(figures.jain < 0.62 && figures.handed_over < Some(0.12), "{figures:?}");
    assert_eq!(figures.lock_us.max, 1.0);
}
