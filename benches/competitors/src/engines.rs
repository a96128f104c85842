//! Consensus engines alone, three members in one process: what a commit costs before there is a
//! lock.
//!
//! Beside them Gaggle in the same place.

mod gaggle_here;
mod raft_rs;

use serde::{Deserialize, Serialize};

use crate::{contenders::Failed, data::Data, settings::Settings};

/// What one engine came to.
#[derive(Serialize, Deserialize)]
struct Outcome {
    /// One proposer: from the proposal to its being applied where it was proposed.
    p50_us: f64,
    /// 64 proposers.
    per_s: f64,
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
        data.figure(&format!("{name}_64_per_s"), outcome.per_s);
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
    let outcome = match name {
        "raft" => one_thread()?.block_on(raft_rs::measure(window))?,
        "gaggle" => one_thread()?.block_on(gaggle_here::measure(window))?,
        _ => return Err(format!("no engine {name}").into()),
    };
    println!("{}", serde_json::to_string(&outcome)?);
    std::process::exit(0);
}
