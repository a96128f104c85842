//! Workloads that measure the cost of a lock, and what its throughput hides.
//!
//! | workload | tasks | keys | critical section | pause |
//! |---|---|---|---|---|
//! | [`handoff`](Workload::handoff) | 8 | one | – | – |
//! | [`uncontended`](Workload::uncontended) | 1 | one | – | – |
//! | [`fan`](Workload::fan) | 64 | one each | – | – |
//! | [`busy`](Workload::busy) | 8 | one | 5 ms | 5 ms |
//! | [`gaggle1_contended`](Workload::gaggle1_contended) | one a member | one | 4 × 15 ms | – |
//! | [`gaggle1_uncontended`](Workload::gaggle1_uncontended) | one a member | one each | 4 × 15 ms | – |
//!
//! A throughput hides starvation: a lock looks fast that one task takes again and again while seven
//! wait. [`Figures`] therefore state the hand-off latency, the longest wait, the fairness and the
//! longest streak too. They also state whether the run kept mutual exclusion and the order of
//! tokens.
//!
//! A [`Contender`] is what a workload locks. [`run()`] runs a workload in one process. Several
//! processes [`record`] their [`LockSample`]s on the host's boot-time clock, and [`replay`] computes the
//! same figures from all of them.
//!
//! No stable API.

mod contender;
mod figures;
mod latency;
mod ledger;
mod recorder;
mod run;
mod sample;
mod workload;

pub use self::{
    contender::{Bare, BoxError, Contender, NoLock},
    figures::{Broken, Figures, Spread},
    latency::Latency,
    recorder::SAMPLES_MAX,
    run::{record, replay, run},
    sample::LockSample,
    workload::{Keys, Until, Window, Workload, now},
};
