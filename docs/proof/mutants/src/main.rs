//! Mutation testing with one build: all mutants are written into the library, each behind a switch,
//! and each run of the tests switches one on. `docs/proof/mutants/run` prepares the tree.
//!
//! ```text
//! gaggle-mutants TREE OUT PACKAGE [--again | --resume] CARGO-ARGUMENT.. [-- TEST-FILTER..]
//! gaggle-mutants judge OUT LIST
//! ```
//!
//! `TREE` is a copy of the workspace, which is changed, `PACKAGE` the folder in it of the library that is; `OUT/list.json` is what `cargo mutants --list
//! --json` says of it. `OUT` gets `caught.txt`, `missed.txt`, `timeout.txt`, `unviable.txt` as from
//! cargo-mutants, and `left.txt`: mutants that cannot stand behind a switch, for cargo-mutants itself.
//! `--again` tries only what was missed before, `--resume` what is left of a run that was broken off.
//!
//! 1. Weave, build, drop the mutants that do not compile, and so on until all that is left does.
//! 2. Run each test without a mutant, and note which mutants it reaches.
//! 3. For each mutant, run the tests that reach it, the quickest first, until one fails.
//!
//! `judge` names the survivors that are not in the `LIST` of those that were judged, and what in it names
//! no mutant; if there is any, it exits with 1.

mod compile;
mod judged;
mod mutant;
mod trial;
mod weave;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    num::NonZero,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::{
    compile::{Built, compile},
    judged::Judged,
    mutant::Mutant,
    trial::{Outcome, Test, Trials},
    weave::{Woven, weave},
};

/// The files of outcomes.
const OUTCOMES: [&str; 5] = ["caught", "missed", "timeout", "unviable", "left"];
/// Behind the name of a mutant that no test reaches.
const UNREACHED: &str = " (not reached)";

/// Which mutants are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// All of the list.
    Anew,
    /// Those that were missed before.
    Again,
    /// Those to which a run that was broken off did not come, with what it had built.
    Resume,
}

/// Where outcomes are written, by their names.
struct Ledger {
    directory: PathBuf,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).collect::<Vec<_>>();
    if let ["judge", out, list] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return judge(&Ledger { directory: out.into() }, Path::new(list));
    }
    let [tree, out, package] = [(); 3].map(|()| PathBuf::from(arguments.remove(0)));
    let package = tree.join(package);
    let mode = match arguments[0].as_str() {
        "--again" => Mode::Again,
        "--resume" => Mode::Resume,
        _ => Mode::Anew,
    };
    arguments.drain(..usize::from(mode != Mode::Anew));
    let filter = match arguments.iter().position(|argument| argument == "--") {
        Some(dashes) => arguments.split_off(dashes).split_off(1),
        None => vec![],
    };
    let ledger = Ledger { directory: out };
    let mutants = ledger.begin(mode);
    let (executables, alive) = if mode == Mode::Resume {
        (ledger.kept(), ledger.undecided(&mutants))
    } else {
        let (executables, alive) = build(&tree, &package, &mutants, &arguments, &ledger);
        (ledger.keep(&executables), alive)
    };
    let trials = Trials { executables, directory: package, filter };
    let (tests, reach) = reach(&trials, &ledger);
    let alive = mutants.iter().filter(|mutant| alive.contains(&mutant.id)).collect::<Vec<_>>();
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some(mutant) = alive.get(next.fetch_add(1, Ordering::Relaxed)) {
            let reaching = reach
                .get(&mutant.id)
                .into_iter()
                .flatten()
                .map(|test| &tests[*test])
                .collect::<Vec<_>>();
            let outcome = trials.judge(mutant.id, &reaching);
            let unreached = if reaching.is_empty() { UNREACHED } else { "" };
            match outcome {
                Outcome::Passed => ledger.write("missed", &format!("{}{unreached}", mutant.name)),
                Outcome::Failed => ledger.write("caught", &mutant.name),
                Outcome::OutOfTime => ledger.write("timeout", &mutant.name),
            }
            eprintln!("of {}: {outcome:?}{unreached} {}", alive.len(), mutant.name);
        }
    };
    // Each has its processes, whose time is counted in time of the processor.
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(worker);
        }
    });
    ExitCode::SUCCESS
}

/// Says which survivors were not judged.
fn judge(ledger: &Ledger, list: &Path) -> ExitCode {
    let mutants = ledger.mutants();
    let missed = read(&ledger.path("missed"));
    let missed = missed.lines().map(|line| line.trim_end_matches(UNREACHED)).collect();
    let Judged { unjudged, stale } = judged::judge(&mutants, &missed, &read(list));
    unjudged.iter().for_each(|name| println!("not judged: {name}"));
    stale.iter().for_each(|line| println!("names no mutant: {line}"));
    if unjudged.is_empty() && stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Weaves and builds until every mutant that is left compiles.
fn build(
    tree: &Path,
    package: &Path,
    mutants: &[Mutant],
    arguments: &[String],
    ledger: &Ledger,
) -> (Vec<PathBuf>, BTreeSet<usize>) {
    let sources = mutants.iter().map(|mutant| &mutant.file).collect::<BTreeSet<_>>();
    let sources =
        sources.into_iter().map(|file| (file, read(&tree.join(file)))).collect::<Vec<_>>();
    let root = package.join("src/lib.rs");
    let library = read(&root);
    let library = format!("#![allow(warnings)]\n{library}\n{}", include_str!("switch.rs"));
    fs::write(&root, library).expect("the tree is ours");
    let mut alive = mutants.iter().map(|mutant| mutant.id).collect::<BTreeSet<_>>();
    loop {
        let mut woven = BTreeMap::new();
        for (file, source) in &sources {
            let here =
                mutants.iter().filter(|mutant| mutant.file == **file && alive.contains(&mutant.id));
            let text = weave(source, &here.collect::<Vec<_>>());
            fs::write(tree.join(file), &text.text).expect("the tree is ours");
            for (id, why) in &text.left {
                drop_mutant(*id, why, &mut alive, mutants, ledger);
            }
            woven.insert(*file, text);
        }
        match compile(tree, arguments) {
            Built::Whole(executables) => return (executables, alive),
            Built::Errors(errors) => {
                let before = alive.len();
                for error in &errors {
                    let blamed = error
                        .places()
                        .iter()
                        .map(|(file, byte)| {
                            woven.get(file).map_or(vec![], |text: &Woven| text.at(*byte))
                        })
                        .find(|ids| !ids.is_empty());
                    for id in blamed.into_iter().flatten() {
                        let why = if error.is_about_const() { "left" } else { "unviable" };
                        drop_mutant(id, why, &mut alive, mutants, ledger);
                    }
                }
                let rendered = errors.iter().filter_map(|error| error.rendered.as_deref());
                assert!(
                    alive.len() < before,
                    "no mutant is to blame:\n{}",
                    rendered.collect::<String>()
                );
                eprintln!("{} of {} compile so far", alive.len(), mutants.len());
            }
        }
    }
}

fn drop_mutant(
    id: usize,
    why: &str,
    alive: &mut BTreeSet<usize>,
    mutants: &[Mutant],
    ledger: &Ledger,
) {
    let mutant = mutants.iter().find(|mutant| mutant.id == id).expect("it is one of them");
    if alive.remove(&id) {
        ledger.write(why, &mutant.name);
    }
}

/// The tests, the quickest first, and for each mutant those that reach it.
fn reach(trials: &Trials, ledger: &Ledger) -> (Vec<Test>, BTreeMap<usize, Vec<usize>>) {
    let (note, mut tests) = (ledger.directory.join("reached"), Vec::new());
    for mut test in trials.tests() {
        let reached;
        (test.took, reached) = trials.reach(&test, &note);
        tests.push((test, reached));
    }
    tests.sort_by_key(|(test, _)| test.took);
    let mut reach = BTreeMap::<usize, Vec<usize>>::new();
    for (at, (test, reached)) in tests.iter().enumerate() {
        eprintln!("{:>6} ms, reaches {:>4}: {}", test.took.as_millis(), reached.len(), test.name);
        reached.iter().for_each(|id| reach.entry(*id).or_default().push(at));
    }
    (tests.into_iter().map(|(test, _)| test).collect(), reach)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A mutant's file and what it does, without line and column: those change with the code above it.
fn unplaced(name: &str) -> (&str, &str) {
    (name.split(':').next().unwrap_or(name), name.split_once(": ").map_or(name, |(_, what)| what))
}

impl Ledger {
    /// All mutants of the slice.
    fn mutants(&self) -> Vec<Mutant> {
        let list = read(&self.directory.join("list.json"));
        let mut mutants: Vec<Mutant> =
            serde_json::from_str(&list).expect("cargo-mutants lists in JSON");
        mutants.iter_mut().zip(1..).for_each(|(mutant, id)| mutant.id = id);
        mutants
    }

    /// The mutants to try. Clears what an earlier run wrote of them.
    fn begin(&self, mode: Mode) -> Vec<Mutant> {
        let mut mutants = self.mutants();
        if mode == Mode::Again {
            let missed = read(&self.path("missed"));
            let missed = missed.lines().map(|line| unplaced(line.trim_end_matches(UNREACHED)));
            let missed = missed.collect::<BTreeSet<_>>();
            mutants.retain(|mutant| missed.contains(&unplaced(&mutant.name)));
        }
        let stale = match mode {
            Mode::Anew => &OUTCOMES[..],
            Mode::Again => &["missed"],
            Mode::Resume => &[],
        };
        for name in stale {
            fs::write(self.path(name), "").expect("the directory is ours");
        }
        mutants
    }

    /// Copies the executables to where their processes are known by name.
    fn keep(&self, executables: &[PathBuf]) -> Vec<PathBuf> {
        let directory = self.directory.join("mutant-run");
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("the directory is ours");
        let copy = |path: &PathBuf| {
            let to = directory.join(path.file_name().expect("an executable has a name"));
            fs::copy(path, &to).expect("there is room for it");
            to
        };
        executables.iter().map(copy).collect()
    }

    /// What [`keep`](Self::keep) has kept.
    fn kept(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.directory.join("mutant-run")).expect("it was built before");
        files.flatten().map(|file| file.path()).collect()
    }

    /// The mutants of which no outcome is written.
    fn undecided(&self, mutants: &[Mutant]) -> BTreeSet<usize> {
        let decided = OUTCOMES.map(|outcome| read(&self.path(outcome))).concat();
        let decided = decided.lines().map(|line| line.trim_end_matches(UNREACHED));
        let decided = decided.collect::<BTreeSet<_>>();
        let open = mutants.iter().filter(|mutant| !decided.contains(mutant.name.as_str()));
        open.map(|mutant| mutant.id).collect()
    }

    fn write(&self, outcome: &str, line: &str) {
        let file = fs::OpenOptions::new().append(true).create(true).open(self.path(outcome));
        // In one write: several workers append.
        let line = format!("{line}\n");
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the directory is ours");
    }

    fn path(&self, outcome: &str) -> PathBuf {
        self.directory.join(outcome).with_extension("txt")
    }
}
