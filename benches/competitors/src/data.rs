//! Everything that a run of the harness measured.

use std::collections::BTreeMap;

use gaggle_workloads::Figures;
use serde::{Deserialize, Serialize};

use crate::{machine, settings::Settings};

/// Everything that was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Data {
    pub(crate) about: Vec<(String, String)>,
    pub(crate) settings: String,
    pub(crate) rows: Vec<Row>,
    /// Single figures by name, with the unit last, one or more times.
    pub(crate) figures: BTreeMap<String, Vec<f64>>,
}

/// A workload by one contender.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) lock: String,
    pub(crate) ours: bool,
    pub(crate) rounds: Vec<Figures>,
}

impl Row {
    pub(crate) fn median(&self) -> Figures {
        Figures::median(&self.rounds)
    }
}

impl Data {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (rounds, window, words) = (settings.rounds, settings.window, &settings.words);
        let quick = if settings.quick { "a quick run, from which nothing follows: " } else { "" };
        let settings = format!(
            "{quick}median of {rounds} rounds of {} s; worst waits and longest streaks of all rounds",
            window.as_secs_f64()
        );
        let mut about = machine::describe();
        about.insert(
            1,
            ("command".into(), format!("benches/competitors/run {words}").trim().to_owned()),
        );
        Self { about, settings, rows: Vec::new(), figures: BTreeMap::new() }
    }

    pub(crate) fn note(&mut self, workload: &str, lock: &str, ours: bool, figures: Figures) {
        let (rate, p50) = (figures.pairs_per_s, figures.lock_us.p50);
        eprintln!("{workload:>19}  {lock:<44} {rate:>10.0}/s  lock p50 {p50:.1} µs");
        let found = self.rows.iter_mut().find(|row| row.workload == workload && row.lock == lock);
        match found {
            Some(row) => row.rounds.push(figures),
            None => {
                let (workload, lock) = (workload.to_owned(), lock.to_owned());
                self.rows.push(Row { workload, lock, ours, rounds: vec![figures] });
            }
        }
    }

    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        eprintln!("          {name}: {value:.3}");
        self.figures.entry(name.to_owned()).or_default().push(value);
    }

    /// What the files keep: of each row and figure the median alone.
    pub(crate) fn medians(&self) -> Self {
        let row = |row: &Row| Row { rounds: vec![row.median()], ..row.clone() };
        let figure = |name: &String| Some((name.clone(), vec![self.get(name)?]));
        Self {
            about: self.about.clone(),
            settings: self.settings.clone(),
            rows: self.rows.iter().map(row).collect(),
            figures: self.figures.keys().filter_map(figure).collect(),
        }
    }

    /// The median of a row, if it was measured.
    pub(crate) fn of(&self, workload: &str, lock: &str) -> Option<Figures> {
        let found = self.rows.iter().find(|row| row.workload == workload && row.lock == lock);
        found.map(Row::median)
    }

    /// The median of a figure, if it was taken.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        let mut values = self.figures.get(name)?.clone();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let even = values.len() % 2 == 0;
        Some(if even { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] })
    }
}
