//! The settings of a run.

use std::{path::PathBuf, time::Duration};

use gaggle_workloads::Workload;

use crate::contenders::BoxError;

/// How much is measured.
pub(crate) struct Settings {
    pub(crate) quick: bool,
    pub(crate) rounds: u32,
    /// How long one run of a workload counts.
    pub(crate) window: Duration,
    pub(crate) warm_up: Duration,
    /// The increments of each of the five members in the cases of the Gaggle 1.x benchmark.
    pub(crate) increments: u32,
    pub(crate) failovers: u32,
    /// Lock and unlock pairs over which the memory is watched.
    pub(crate) pairs: u64,
    pub(crate) rest: Duration,
    /// Only the rows whose lock's name begins so, or, behind a `=`, is this; without regard to
    /// case. All if empty.
    pub(crate) only: Vec<String>,
    /// Only these workloads; all if empty.
    pub(crate) workloads: Vec<String>,
    /// The arguments of this run, to repeat it.
    pub(crate) words: String,
    /// The directory of the results.
    pub(crate) out: PathBuf,
    /// The command line, for members in separate processes.
    pub(crate) gaggle: PathBuf,
}

const USAGE: &str = "options: --gaggle PATH --out DIRECTORY [--quick] [--rounds N] [--only LOCK]... \
                     [--workload NAME]...";

/// What `--only` calls the figures that are no row.
pub(crate) const SINGLES: &str = "figures";

const WORKLOADS: [&str; 6] =
    ["uncontended", "fan", "handoff", "busy", "gaggle1-contended", "gaggle1-uncontended"];

/// Whether a lock's name is what `--only` asks for; both in lower case.
pub(crate) fn is_named(lock: &str, only: &str) -> bool {
    match only.strip_prefix('=') {
        Some(whole) => lock == whole,
        None => lock.starts_with(only),
    }
}

impl Settings {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, BoxError> {
        let mut settings = Self::full();
        if words.contains(&"--quick") {
            settings = Self::quick();
        }
        let kept = words
            .iter()
            .filter(|word| !word.contains('/') && !["--gaggle", "--out"].contains(word));
        settings.words = kept.copied().collect::<Vec<_>>().join(" ");
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(USAGE);
            match *word {
                "--quick" => {}
                "--rounds" => settings.rounds = value()?.parse::<u32>()?.max(1),
                "--only" => settings.only.push(value()?.to_lowercase()),
                "--workload" => {
                    let name = *value()?;
                    if !WORKLOADS.contains(&name) {
                        let known = WORKLOADS.join(", ");
                        return Err(format!("--workload {name}: there are {known}").into());
                    }
                    settings.workloads.push(name.to_owned());
                }
                "--out" => settings.out = value()?.into(),
                "--gaggle" => settings.gaggle = value()?.into(),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(settings)
    }

    fn full() -> Self {
        Self {
            quick: false,
            rounds: 3,
            window: Duration::from_millis(1500),
            warm_up: Duration::from_millis(300),
            increments: 20,
            failovers: 20,
            pairs: 1_000_000,
            rest: Duration::from_secs(10),
            only: Vec::new(),
            workloads: Vec::new(),
            words: String::new(),
            out: PathBuf::from("."),
            gaggle: PathBuf::from("gaggle"),
        }
    }

    fn quick() -> Self {
        Self {
            quick: true,
            rounds: 1,
            window: Duration::from_millis(500),
            warm_up: Duration::from_millis(100),
            increments: 4,
            failovers: 4,
            pairs: 200_000,
            rest: Duration::from_secs(3),
            ..Self::full()
        }
    }

    /// Whether everything is measured.
    pub(crate) fn all(&self) -> bool {
        self.only.is_empty() && self.workloads.is_empty()
    }

    /// Whether the single figures are taken: fail-over, rest, masses of waiters, memory.
    pub(crate) fn singles(&self) -> bool {
        self.all() || self.only.iter().any(|only| only == SINGLES)
    }

    /// Whether any of these locks is to be measured, in any of these workloads.
    pub(crate) fn wants(&self, locks: &[&str], workloads: &[&str]) -> bool {
        let named = |lock: &&str| {
            let lock = lock.to_lowercase();
            self.only.is_empty() || self.only.iter().any(|only| is_named(&lock, only))
        };
        let asked = |name: &&str| {
            self.workloads.is_empty() || self.workloads.iter().any(|asked| asked == name)
        };
        locks.iter().any(named) && workloads.iter().any(asked)
    }

    /// The workload at the length of this run.
    pub(crate) fn of(&self, workload: Workload) -> Workload {
        Workload { warm_up: self.warm_up, ..workload.lasting(self.window) }
    }

    /// One of the cases of the Gaggle 1.x benchmark.
    pub(crate) fn gaggle1(&self, workload: Workload) -> Workload {
        workload.each(self.increments)
    }
}
