//! Runs tests, each time in a process of its own, with one mutant switched on or with none.
//!
//! Time is processor time, or time in which every thread sleeps: a machine that is busy, and a
//! process that is stopped for a while, make no mutant seem caught.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How often a process is looked at.
const GLANCE: Duration = Duration::from_millis(4);
/// A process all of whose threads sleep for so long waits for something that never comes: the fast
/// tests have virtual time.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Processor time is counted in these.
const TICK: Duration = Duration::from_millis(10);
/// Of a process, in KiB: what a mutant fills without end must not be the machine's memory.
const MEMORY_MAX: &str = "6000000";

/// Test executables, and where they run.
pub(crate) struct Trials {
    pub(crate) executables: Vec<PathBuf>,
    pub(crate) directory: PathBuf,
    /// What libtest is to choose from.
    pub(crate) filter: Vec<String>,
}

/// A test, and what it took without a mutant.
#[derive(Clone)]
pub(crate) struct Test {
    executable: usize,
    pub(crate) name: String,
    pub(crate) took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    OutOfTime,
}

impl Trials {
    /// Every test that the filter leaves.
    pub(crate) fn tests(&self) -> Vec<Test> {
        let names = self.executables.iter().enumerate().flat_map(|(executable, path)| {
            let list = Command::new(path)
                .args(["--list", "--format", "terse"])
                .args(&self.filter)
                .output();
            let list =
                String::from_utf8(list.expect("it was just built").stdout).expect("names are text");
            let name = |line: &str| line.strip_suffix(": test").map(str::to_owned);
            let named = |name| Test { executable, name, took: Duration::ZERO };
            list.lines().filter_map(name).map(named).collect::<Vec<_>>()
        });
        names.collect()
    }

    /// Runs a test without a mutant. Returns what it took, and the mutants that it reached.
    pub(crate) fn reach(&self, test: &Test, note: &Path) -> (Duration, Vec<usize>) {
        let _ = fs::remove_file(note);
        let (outcome, took) = self.run(&[test], 0, Some(note), Duration::from_secs(600));
        assert_eq!(outcome, Outcome::Passed, "{} fails without any mutant", test.name);
        let reached = fs::read_to_string(note).unwrap_or_default();
        (took, reached.lines().map(|id| id.parse().expect("the switch writes numbers")).collect())
    }

    /// Runs those tests that reach a mutant, the quickest first, until one fails.
    pub(crate) fn judge(&self, mutant: usize, tests: &[&Test]) -> Outcome {
        let mut rest = tests;
        while let Some(first) = rest.first() {
            // Short ones share a process.
            let together =
                |test: &&Test| test.executable == first.executable && test.took < TICK * 4;
            let count = rest.iter().take(16).take_while(|test| together(test)).count().max(1);
            let (batch, others) = rest.split_at(count);
            let usual: Duration = batch.iter().map(|test| test.took + TICK).sum();
            let (outcome, _) = self.run(batch, mutant, None, usual * 4 + Duration::from_secs(1));
            if outcome != Outcome::Passed {
                return outcome;
            }
            rest = others;
        }
        Outcome::Passed
    }

    fn run(
        &self,
        tests: &[&Test],
        mutant: usize,
        note: Option<&Path>,
        limit: Duration,
    ) -> (Outcome, Duration) {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {MEMORY_MAX} -c 0; exec \"$@\""), "sh"])
            .arg(&self.executables[tests[0].executable])
            .args(["--exact", "--test-threads", "1"])
            .args(tests.iter().map(|test| &test.name))
            .current_dir(&self.directory)
            .env("GAGGLE_MUTANT", mutant.to_string())
            .env("RUST_BACKTRACE", "0")
            // A failure is enough: it is not made small, and not tried first on the next mutant.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(note) = note {
            command.env("GAGGLE_REACHED", note);
        }
        wait(command.spawn().expect("the machine can start a process"), limit)
    }
}

#[allow(clippy::disallowed_methods)] // a span of real time, in which nothing is relied on
/// Waits for a process, and ends it when its time is up.
fn wait(mut child: Child, limit: Duration) -> (Outcome, Duration) {
    let (mut used, mut awake) = (Duration::ZERO, Instant::now());
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return (if status.success() { Outcome::Passed } else { Outcome::Failed }, used);
        }
        let proc = PathBuf::from(format!("/proc/{}", child.id()));
        let now_used = processor_time(&proc).unwrap_or(used);
        if now_used > used || !sleeps(&proc) {
            awake = Instant::now();
        }
        used = now_used;
        if used > limit || awake.elapsed() > IDLE_MAX {
            let _ = child.kill();
            let _ = child.wait();
            return (Outcome::OutOfTime, used);
        }
        thread::sleep(GLANCE);
    }
}

/// The fields of a `stat` file behind the command's name, from the state on.
fn stat(directory: &Path) -> Option<Vec<String>> {
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

fn processor_time(process: &Path) -> Option<Duration> {
    let fields = stat(process)?;
    let ticks = |field: usize| fields.get(field)?.parse::<u32>().ok();
    Some(TICK * (ticks(11)? + ticks(12)?))
}

/// Whether all threads wait for something, and none for the processor or to be continued.
fn sleeps(process: &Path) -> bool {
    let Ok(tasks) = fs::read_dir(process.join("task")) else { return false };
    tasks.flatten().all(|task| stat(&task.path()).is_some_and(|fields| fields[0] == "S"))
}
