//! The conformance suite: the contract of a strategy as 43 cases.
//!
//! A third party that implements [`KeyedMutex`](crate::KeyedMutex) writes a [`Fixture`] (how to
//! open a handle, and how to take its backend down) and calls [`run`] in a test. The cases ask for
//! what the contract promises and for nothing else; what a strategy may leave open is read from its
//! [`capabilities`](crate::KeyedMutex::capabilities) and from nowhere else.
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use gaggle_strategies::{
//!     KeyedMutex,
//!     testing::{self, Fixture, Lacking, Outcome, broken},
//! };
//!
//! /// Opens handles on one server: here the plain strategy that the suite brings along.
//! struct Mine(broken::Server);
//!
//! #[async_trait]
//! impl Fixture for Mine {
//!     async fn open(&self) -> Arc<dyn KeyedMutex> {
//!         Arc::new(self.0.open())
//!     }
//!     async fn residue(&self) -> Option<u64> {
//!         Some(self.0.residue())
//!     }
//!     async fn backend_down(&self) -> Result<(), Lacking> {
//!         self.0.stop();
//!         Ok(())
//!     }
//!     async fn backend_up(&self) -> Result<(), Lacking> {
//!         self.0.start();
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In a test: `testing::run(&fixture).await.assert_passed()`. One case alone:
//! let fixture = Mine(broken::Server::sound());
//! let report = testing::run_case(&fixture, 5).await;
//! assert_eq!(report.outcome, Outcome::Passed, "{report}");
//! # }
//! ```
//!
//! This fixture cannot restart its backend, change its leader or start a process: cases 26, 27 and
//! 42 stay untried.
//! `docs/writing-a-strategy.md` has a whole strategy, and a fixture with which it passes.
//!
//! # Replaying one case
//!
//! Set [`CASE_VARIABLE`] for the same test command: `GAGGLE_CASE=12 cargo test --test
//! conformance_mine`. A failing report prints it.
//!
//! # Virtual time
//!
//! Where no server takes part, run in a current-thread runtime with its time paused
//! (`#[tokio::test(start_paused = true)]`) and give the strategy a
//! [`TokioClock`](crate::clock::TokioClock): the suite then takes seconds, and
//! [`Fixture::slack`] can be
//! a few milliseconds.
//!
//! # Layout
//!
//! - `fixture`, `report`, `suite`: what a user of the suite sees; `watchdog` ends a run that hangs.
//! - `context`, `cases`, `processes`: the cases, by the headings of the list.
//! - [`resource`]: a resource that checks fencing tokens.
//! - [`broken`]: a plain strategy with planted bugs, each of which the suite must find.

pub mod broken;
mod cases;
mod context;
mod fixture;
mod processes;
mod report;
pub mod resource;
mod suite;
mod watchdog;

pub use self::{
    fixture::{Fixture, Lacking},
    report::{CASE_VARIABLE, Case, CaseReport, Outcome, Report},
    suite::{cases, run, run_case},
};
