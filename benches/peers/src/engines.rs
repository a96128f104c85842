//! Consensus engines alone, three members in one process of their own: what a commit costs before
//! there is a lock. Beside them Gaggle in the same place.

mod gaggle_here;
mod raft_rs;

use gaggle_cli::workloads::Workload;
use serde::{Deserialize, Serialize};

use crate::{contenders::Failed, data::Data, machine, settings::Settings};

/// What one engine came to.
#[derive(Default, Serialize, Deserialize)]
struct Outcome {
    /// One proposer: from the proposal to its being applied where it was proposed.
    p50_us: f64,
    p99_us: f64,
    /// 64 proposers.
    per_s: f64,
    /// After all that, and how much it was.
    resident_mib: f64,
    commits: f64,
    /// Of Gaggle: eight tasks on one key.
    handoff_p50_us: Option<f64>,
}

pub(crate) async fn all(settings: &Settings, data: &mut Data) -> Result<(), Failed> {
    let seconds = format!("{}", settings.window.as_secs_f64() / 2.0);
    // The compared engines take short turns: the speed of a shared core changes by half from one
    // second to the next.
    let turns = [["raft", "gaggle"]; 4];
    for name in turns.into_iter().flatten() {
        let (_role, line) = crate::bounds::Role::start(&["engine", name, &seconds])?;
        let outcome: Outcome = serde_json::from_str(&line)?;
        data.figure(&format!("{name}_p50_us"), outcome.p50_us);
        data.figure(&format!("{name}_p99_us"), outcome.p99_us);
        data.figure(&format!("{name}_64_per_s"), outcome.per_s);
        data.figure(&format!("{name}_resident_mib"), outcome.resident_mib);
        data.figure(&format!("{name}_commits"), outcome.commits);
        if let Some(p50_us) = outcome.handoff_p50_us {
            data.figure(&format!("{name}_handoff_p50_us"), p50_us);
        }
    }
    Ok(())
}

/// The child.
pub(crate) fn child(name: &str, seconds: &str) -> Result<(), Failed> {
    let window = std::time::Duration::from_secs_f64(seconds.parse()?);
    let one_thread = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mut outcome = match name {
        "raft" => one_thread()?.block_on(raft_rs::measure(window))?,
        "gaggle" => one_thread()?.block_on(gaggle_here::measure(window))?,
        "gaggle-fan64" => one_thread()?.block_on(gaggle_here::alone(Workload::fan(64), window))?,
        "gaggle-hot8" => {
            one_thread()?.block_on(gaggle_here::alone(Workload::handoff(8), window))?
        }
        _ => return Err(format!("no engine {name}").into()),
    };
    outcome.resident_mib = machine::resident_bytes() / f64::from(1 << 20);
    println!("{}", serde_json::to_string(&outcome)?);
    std::process::exit(0);
}
