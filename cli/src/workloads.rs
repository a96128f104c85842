//! Workloads that show what a lock costs, and what stands beside its throughput.
//!
//! | workload | tasks | keys | inside | away |
//! |---|---|---|---|---|
//! | [`worst`](Workload::worst) | one a member | one | four steps of 15 ms | – |
//! | [`best`](Workload::best) | one a member | one each | four steps of 15 ms | – |
//! | [`uncontended`](Workload::uncontended) | 1 | one | – | – |
//! | [`fan`](Workload::fan) | 64 | one each | – | – |
//! | [`handoff`](Workload::handoff) | 8 | one | – | – |
//! | [`busy`](Workload::busy) | 8 | one | 5 ms | 5 ms |
//!
//! A throughput alone cannot see starvation: a lock that one task takes again and again while seven
//! sleep looks fast. [`Figures`] therefore hold the hand-off, the worst wait, the fairness and the
//! longest streak beside it, and whether exclusion and the order of tokens held in this very run.
//!
//! Anything that locks and unlocks by key can run: see [`Contender`]. One process runs them by
//! [`run()`]; several processes [`record`] their [`Span`]s on the host's one boot-time clock, and
//! [`replay`] makes the same figures of all of them together.
//!
//! For `gaggle bench`, the benches and the comparison with other locks; not part of the stable API.

mod chart;
mod contender;
mod figures;
mod ledger;
mod recorder;
mod run;
mod tally;
mod workload;

pub use self::{
    chart::{Bar, BarChart, Series},
    contender::{Bare, Contender, Failed, NoLock},
    figures::{Broken, Figures, Spread},
    recorder::{SPANS_MAX, Span},
    run::{record, replay, run},
    tally::Latency,
    workload::{Keys, Until, Window, Workload, now},
};
