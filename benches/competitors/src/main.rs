//! Gaggle's workloads through what people would pick instead, measured in turn in one run, round by
//! round, so that what disturbs the machine disturbs all.
//!
//! Every ratio of the documents is taken within one such run.
//!
//! Started by `benches/competitors/run`, which installs the servers. Each server that is started
//! here has a free loopback port and a directory of its own, and ends with this program.

// The program measures, and holds no lease by these clocks.
#![allow(clippy::disallowed_methods)]

mod apart;
mod bounds;
mod cluster;
mod commands;
mod contenders;
mod data;
mod failing;
mod machine;
mod ours;
mod report;
mod rest;
mod servers;
mod settings;
mod tables;
mod targets;
mod workloads;

use std::process::ExitCode;

use contenders::BoxError;
use settings::Settings;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        // Roles of this program's own child processes.
        ["echo"] => bounds::echo_child(),
        ["contend", lock, url, task, workload] => apart::child(lock, url, task, workload),
        ["candidate", url] => failing::child(url),
        ["beats", first, second] => rest::beats_child([first, second]),
        ["member", url] => rest::member_child(url),
        ["pairs", count, place] => rest::pairs_child(count, place),
        ["keys", count] => rest::keys_child(count),
        ["redraw", directory] => report::redraw(directory.as_ref()),
        words => measure(words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("competitors: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(words: &[&str]) -> Result<(), BoxError> {
    let mut settings = Settings::parse(words)?;
    // What cannot be written there is refused before anything is measured.
    std::fs::create_dir_all(&settings.out)?;
    machine::runtime().block_on(async {
        let run = async {
            let mut data = data::Data::new(&settings);
            for round in 0..settings.rounds {
                eprintln!("round {} of {}", round + 1, settings.rounds);
                workloads::round(&settings, &mut data).await?;
            }
            let singles = match settings.singles() {
                true => rest::all(&settings, &mut data).await,
                false => Ok(()),
            };
            if singles.is_err() {
                // The rows took most of the time: they are kept, and not shown in the documents.
                settings.out = "target/competitors".into();
            }
            singles.and(report::write(&settings, &data))
        };
        let mut terminated = signal(SignalKind::terminate())?;
        // Servers end with the futures that hold them.
        tokio::select! {
            outcome = run => outcome,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
            _ = terminated.recv() => Err("terminated".into()),
        }
    })
}
