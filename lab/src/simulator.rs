//! A deterministic simulator: whole deployments of the code that ships, in virtual time, under
//! faults.
//!
//! A plan decides everything, and a seed generates the plan. Each process runs a
//! [`Raft`](gaggle_strategies::Raft), [`Gaggle`](gaggle_strategies::Gaggle) or [`Redis`](gaggle_strategies::Redis) as users hold it,
//! with its driver and backend: the node, the engine and the lock table, or the connection and the
//! scripts. Channel or stream, server, clock and scheduler are simulated.
//!
//! ```
//! use gaggle_lab::simulator::{Clocks, Plan, Settings, simulate};
//!
//! let run = simulate(Plan::generate(7, Clocks::WithinBound), &Settings::default());
//! assert!(run.violation.is_none(), "{run}");
//! ```
//!
//! - `plan`: everything generated before a run: sizes, options, which faults and how hard. A
//!   failing run is kept as its plan, in a file.
//! - `world`: what each `event` does; `agenda`: when it comes; `life`: how processes begin and end,
//!   and `turns` what they do; `process`, `network`, `clock`, `channel`, `executor`: its parts;
//!   `redis`, `stream`: clients of Redis, their server, and the connections to it; `server`: what
//!   happens there; `faults`: what goes wrong, and `fault_schedule` when; `heal` and `probes`: what
//!   must hold afterwards.
//! - `client`, `recorder`: users of the strategy, and what they observe.
//! - `calls`: the history of all calls, which the [history checker](crate::history) checks.
//! - `invariants`: the rules that must hold after every event, one a file.
//! - `claims`: servers of claims over a group, and HTTP clients, on a runtime with paused time.
//! - `hostile`: an attacker that sends frames to members, for a fuzzer.
//! - `coverage`: events that a batch must have reached, lest a silent fault looks like a pass.

mod agenda;
mod batch;
mod calls;
mod channel;
mod claims;
mod client;
mod clock;
mod coverage;
mod digest;
mod event;
mod executor;
mod fault_schedule;
mod faults;
mod heal;
mod hostile;
mod invariants;
#[cfg(test)]
mod jgroups;
mod life;
mod machine;
mod network;
mod observe;
mod plan;
mod probes;
mod process;
mod random;
mod recorder;
mod redis;
mod run;
mod server;
mod standstill;
mod stream;
mod totals;
mod trace;
mod turns;
mod world;

pub use self::{
    batch::Batch,
    claims::simulate_claims,
    coverage::{Coverage, STANDSTILL},
    hostile::{Hostilities, attack},
    plan::{Clocks, Plan},
    run::{Run, Settings, simulate},
    totals::Totals,
};
