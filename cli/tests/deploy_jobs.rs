//! Goal: the printed lines of scheduled jobs survive a restart of their Redis, at the firing and in
//! mid-job. Method: the options are read from the pages; the Redis keeps its memory in a file.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{fs, path::Path, process::Stdio, thread::sleep, time::Duration};

use gaggle_fixtures::RedisServer;
use run_support::{Running, finish, gaggle};

/// Whole words of a line that runs `gaggle`, or a list of JSON.
fn words(line: &str) -> Vec<String> {
    let json = line.trim().strip_prefix("command: ");
    match json.filter(|list| list.starts_with("[\"gaggle\"")) {
        Some(list) => serde_json::from_str(list).unwrap(),
        None => line.split_whitespace().map(str::to_owned).collect(),
    }
}

/// The options of each printed `gaggle run --try`, without the file of the URL.
fn printed_options() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for page in ["README.md", "docs/scheduled-jobs.md", "docs/deploy/compose.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
        let text = fs::read_to_string(path).unwrap().replace(" \\\n", " ");
        for line in text.lines().filter(|line| line.contains("--try") && line.contains("report")) {
            let words = words(line);
            let run = words.windows(2).position(|it| it[0].ends_with("gaggle") && it[1] == "run");
            let Some(run) = run else { continue };
            let key = words.iter().position(|word| word == "report").unwrap();
            let mut options = words[run + 2..key].to_vec();
            if let Some(file) = options.iter().position(|word| word == "--url-file") {
                options.drain(file..=file + 1);
            }
            found.push(options);
        }
    }
    found
}

/// An extension would be due 3.3 s after the grant with the default lease.
#[test]
fn printed_lines_survive_a_restart_of_the_redis() {
    let printed = printed_options();
    assert_eq!(printed.len(), 6, "cron, systemd, Kubernetes, Compose and two pages: {printed:?}");
    let mut redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    // On a loaded machine a reply takes more than the second of the default.
    let url = format!("{}?request_timeout=30s", redis.url());
    redis.stop();
    let start = |(key, options): (usize, &Vec<String>)| {
        let mut command = gaggle(&url, &[]);
        let job = ["--", "sh", "-c", "echo ready; read line; exit 0"];
        command.args(options).arg(key.to_string()).args(job).stdin(Stdio::piped());
        Running::start_waiting(command)
    };
    let mut running: Vec<Running> = printed.iter().enumerate().map(start).collect();
    sleep(Duration::from_secs(3));
    redis.restart();
    running.iter_mut().for_each(Running::read_first_line);
    redis.stop();
    sleep(Duration::from_secs(6));
    redis.restart();
    for (key, (mut one, options)) in running.into_iter().zip(&printed).enumerate() {
        let is_ready = one.first_line == "ready";
        // The job ends with its input.
        drop(one.process.stdin.take());
        let (code, _, err) = one.finish();
        assert!(is_ready, "{options:?}: {err}");
        assert_eq!(code, Some(0), "{options:?}: {err}");
        // The key is kept across the restart.
        let (code, ..) = finish(gaggle(&url, &["--try", &key.to_string(), "--", "true"]));
        assert_eq!(code, Some(124), "{options:?}");
    }
}

/// The default accuracy of a minute would be as long as `--at-least`.
#[test]
fn printed_timer_has_an_accuracy_of_a_second() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scheduled-jobs.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, timer) = page.split_once("# /etc/systemd/system/report.timer\n").unwrap();
    let (timer, _) = timer.split_once("```").unwrap();
    for part in ["[Timer]\nOnCalendar=", "AccuracySec=1s\n", "[Install]\nWantedBy=timers.target\n"]
    {
        assert!(timer.contains(part), "{timer}");
    }
}
