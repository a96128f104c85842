//! Goal: with `gaggle serve` alone, a job that two crons of a machine start at each firing runs
//! once a firing.
//! Method: two loops that fire as cron does, and a job that notes its firing.

// A test that meets an error has failed, and it reads the clock to fire in time.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod run_support;
mod serve_support;

use std::{
    env, fs, thread,
    time::{Duration, Instant},
};

use run_support::{finish, gaggle};
use serve_support::{ANY_PORT, Server};

/// The exit code of `gaggle run` whose key is held.
const HELD: i32 = 124;
/// By how much one cron fires later than the other: the job of the first has ended.
const LATER: Duration = Duration::from_millis(200);

fn fire(count: u32, period: Duration) {
    let server = Server::start(&ANY_PORT);
    let name = format!("gaggle-cron-{}-{count}", std::process::id());
    let file = env::temp_dir().join(name);
    let at_least = format!("{}ms", (period * 2 / 3).as_millis());
    let began = Instant::now();
    let cron = |later: Duration| {
        let run = |number: u32| {
            thread::sleep((began + period * number + later).duration_since(Instant::now()));
            let job = format!("echo {number} >>{}", file.display());
            let once = ["--try", "--at-least", &at_least, "--duration", &at_least];
            let command = ["nightly", "--", "sh", "-c", &job];
            let (code, _, error) = finish(gaggle(&server.url, &[&once[..], &command].concat()));
            (code.unwrap(), error)
        };
        (0..count).map(run).collect::<Vec<_>>()
    };
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| cron(LATER));
        (cron(Duration::ZERO), second.join().unwrap())
    });
    let ran = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(ran.lines().collect::<Vec<_>>(), expected, "{first:?} {second:?}");
    for (number, (one, other)) in first.iter().zip(&second).enumerate() {
        let mut codes = [one.0, other.0];
        codes.sort_unstable();
        assert_eq!(codes, [0, HELD], "firing {number}: {} {}", one.1, other.1);
    }
}

#[test]
fn job_of_two_crons_runs_once_a_firing() {
    fire(4, Duration::from_secs(2));
}

#[test]
#[ignore = "takes five minutes"]
fn job_of_two_crons_runs_200_times_in_200_firings() {
    fire(200, Duration::from_millis(1_500));
}
