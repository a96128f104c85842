//! Members in separate processes, by the command line that users have: with guards.

use gaggle_workloads::Figures;
use serde_json::Value;
use tokio::process::Command;

use crate::{contenders::BoxError, data::Data, settings::Settings};

pub(crate) const PROCESSES: &str = "Gaggle, TCP, 3 processes";
pub(crate) const REDIS_PROCESSES: &str = "Redis, 8 processes";

/// Gaggle over TCP, three processes, the tasks dealt to them.
pub(crate) async fn processes(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
    const GAGGLE: [&str; 6] = ["--strategy", "gaggle", "--channel", "tcp", "--members", "3"];
    // Each member in turn has its third of it.
    let uncontended = match settings.wants(&[PROCESSES], &["uncontended"]) {
        true => bench(settings, &GAGGLE, &["uncontended"], 3).await?,
        false => Vec::new(),
    };
    for (workload, figures) in uncontended {
        let place = if workload.ends_with("slowest") { "follower" } else { "leader" };
        data.note("uncontended", &format!("{PROCESSES}, {place}"), true, figures);
    }
    let asked = |name: &&str| settings.wants(&[PROCESSES], &[name]);
    let workloads: Vec<&str> = ["fan", "handoff", "busy"].into_iter().filter(asked).collect();
    if workloads.is_empty() {
        return Ok(());
    }
    for (workload, figures) in bench(settings, &GAGGLE, &workloads, 1).await? {
        data.note(&workload, PROCESSES, true, figures);
    }
    Ok(())
}

/// The Redis strategy in eight processes on one key.
pub(crate) async fn redis_processes(
    settings: &Settings,
    data: &mut Data,
    url: &str,
) -> Result<(), BoxError> {
    let redis = ["--strategy", "redis", "--redis", url, "--members", "8"];
    for (workload, figures) in bench(settings, &redis, &["handoff"], 1).await? {
        data.note(&workload, REDIS_PROCESSES, true, figures);
    }
    Ok(())
}

/// What the command line measured, for as many windows as asked for: the names of its workloads,
/// and the medians.
async fn bench(
    settings: &Settings,
    setup: &[&str],
    workloads: &[&str],
    windows: u32,
) -> Result<Vec<(String, Figures)>, BoxError> {
    let window = format!("{}ms", (settings.window * windows).as_millis());
    let mut words = vec!["--processes", "--duration", &window];
    words.extend(setup);
    workloads.iter().for_each(|workload| words.extend(["--workload", workload]));
    let gaggle = &settings.gaggle;
    let mut command = Command::new(gaggle);
    command.args(["bench", "--json", "-"]).args(words);
    let output = command.kill_on_drop(true).output().await?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {error}", gaggle.display()).into());
    }
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let runs = document["runs"].as_array().ok_or("no runs")?;
    let run = |run: &Value| {
        let name = run["workload"].as_str().unwrap_or_default().to_owned();
        Ok((name, serde_json::from_value(run["median"].clone())?))
    };
    runs.iter().map(run).collect()
}
