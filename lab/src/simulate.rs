//! `gaggle-lab simulate`: the deterministic simulator, for any number of seeds.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs,
    io::{self, IsTerminal as _, Write as _},
    panic::resume_unwind,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::{ArgAction, value_parser};
use gaggle_lab::simulator::{
    Batch, Clocks, Plan, Run, STANDSTILL, Settings, simulate, simulate_claims,
};
use humantime::format_duration;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::{
    Layer as _, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The command that runs the simulator, in the commands that replay a run.
const SIMULATE: &str = "cargo run --release -p gaggle-lab -- simulate";

/// More threads than any machine has cores to run them on.
const JOBS_MAX: u64 = 1_024;

/// Below this many seeds a batch need not have reached every rare event.
const COMPLETE: u64 = 2_000;

/// Options of a batch alone. Options that require one run conflict with them too: clap does not
/// check a requirement beside an option that conflicts with it.
const OF_BATCH: [&str; 3] = ["seeds", "from", "jobs"];

/// The plans of failing runs that a batch saves.
const SAVED_MAX: usize = 10;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("one").args(["seed", "plan"]))]
pub(crate) struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed [default: generated, and printed].
    #[arg(long)]
    from: Option<u64>,
    /// Run this one seed and show what it did.
    #[arg(long, conflicts_with_all = OF_BATCH)]
    seed: Option<u64>,
    /// Run the plan in this file, as a failing run saves it, and show what it did.
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_BATCH)]
    #[arg(conflicts_with_all = ["seed", "beyond_bound"])]
    plan: Option<PathBuf>,
    /// With --seed or --plan: print every event.
    #[arg(long, requires = "one", conflicts_with_all = OF_BATCH)]
    trace: bool,
    /// Where plans of failing runs are saved, the first ten of a batch [default: the directory for
    /// temporary files].
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "plan")]
    save: Option<PathBuf>,
    /// The processes are clients of one Redis, not members.
    #[arg(long, conflicts_with_all = ["plan", "beyond_bound"])]
    redis: bool,
    /// The processes are servers of claims over a group, and their HTTP clients. A seed replays a
    /// run: there is no file of its plan, and no trace.
    #[arg(long, conflicts_with_all = ["redis", "plan", "beyond_bound", "trace", "save"])]
    http: bool,
    /// Clocks that differ by far more than the drift bound: holders' beliefs fail, leases and
    /// tokens must not.
    #[arg(long)]
    beyond_bound: bool,
    /// Threads, at most 1,024 and never more than seeds [default: as many as the machine has].
    #[arg(long, value_parser = value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: Option<u64>,
    /// Log errors only, and show no progress bar.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Log INFO; -vv: DEBUG [default: the filter in RUST_LOG].
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

impl Args {
    /// The first seed of a batch. Refused, before anything runs, where the seeds from it on are
    /// more than there are.
    fn first(&self) -> Result<u64> {
        let generated = || u64::from(rand::random::<u32>()) << 8;
        let (from, seeds) = (self.from.unwrap_or_else(generated), self.seeds);
        let fits = from.checked_add(seeds).is_some();
        ensure!(fits, "--from {from} and --seeds {seeds}: their sum must fit in 64 bits");
        Ok(from)
    }

    const fn clocks(&self) -> Clocks {
        if self.beyond_bound { Clocks::BeyondBound } else { Clocks::WithinBound }
    }

    /// The plan of a seed.
    fn generate(&self, seed: u64) -> Plan {
        match self.redis {
            true => Plan::generate_redis(seed),
            false => Plan::generate(seed, self.clocks()),
        }
    }

    /// The options that choose what a seed stands for.
    const fn flags(&self) -> &'static str {
        match (self.redis, self.http, self.beyond_bound) {
            (true, ..) => " --redis",
            (_, true, _) => " --http",
            (_, _, true) => " --beyond-bound",
            _ => "",
        }
    }

    /// Runs a seed.
    fn simulate(&self, seed: u64) -> Run {
        match self.http {
            true => simulate_claims(seed),
            false => simulate(self.generate(seed), &Settings::default()),
        }
    }

    /// The one plan that is to run, if it is not a batch.
    fn plan(&self) -> Result<Option<Plan>> {
        let Some(file) = &self.plan else {
            return Ok(self.seed.map(|seed| self.generate(seed)));
        };
        let failure = || format!("no plan can be read from {}", file.display());
        let text = fs::read(file).with_context(failure)?;
        serde_json::from_slice(&text).with_context(failure).map(Some)
    }

    /// Saves a plan whose run failed. Returns the arguments that replay it.
    fn save(&self, plan: &Plan) -> Result<String> {
        let directory = self.save.clone().unwrap_or_else(std::env::temp_dir);
        let file = directory.join(format!("gaggle-plan-{}.json", plan.seed()));
        let text = serde_json::to_string_pretty(plan).expect("a plan is plain numbers");
        fs::write(&file, text + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(format!("{SIMULATE} --plan {} --trace", file.display()))
    }

    /// The number of threads: at most one for each seed.
    fn threads(&self) -> u64 {
        let machine = || thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        self.jobs.unwrap_or_else(machine).min(self.seeds)
    }

    /// Logs to standard error until the process ends, if an option or `RUST_LOG` asks for it.
    fn start_log(&self) -> Result<()> {
        let directives = match (self.quiet, self.verbose) {
            (true, _) => "error".into(),
            (false, 0) => std::env::var("RUST_LOG").unwrap_or_default(),
            (false, 1) => "info".into(),
            (false, _) => "debug".into(),
        };
        if !directives.is_empty() {
            let filter = directives.parse::<Targets>().context(format!("RUST_LOG={directives}"))?;
            let log = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_filter(filter);
            tracing_subscriber::registry().with(log).init();
        }
        Ok(())
    }

    /// A progress bar, shown on a terminal without log lines.
    fn bar(&self) -> ProgressBar {
        let is_shown = !self.quiet && self.verbose == 0 && io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} seeds, {per_sec}, {eta} left";
        let bar = ProgressBar::with_draw_target(Some(self.seeds), target);
        bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.start_log()?;
    if let Some(directory) = &args.save {
        let shown = directory.display();
        ensure!(directory.is_dir(), "--save {shown}: no such directory: create it");
    }
    // A broken invariant is reported by its seed, not by a backtrace for each.
    std::panic::set_hook(Box::new(|_| {}));
    match args.plan()? {
        Some(plan) if args.http => {
            let run = simulate_claims(plan.seed());
            report(&run)?;
            Ok(ExitCode::from(u8::from(run.violation.is_some())))
        }
        Some(plan) => one(args, plan),
        None => many(args),
    }
}

fn one(args: &Args, plan: Plan) -> Result<ExitCode> {
    let settings = Settings { trace: args.trace };
    let run = simulate(plan.clone(), &settings);
    if let Some(trace) = &run.trace {
        say(trace.trim_end())?;
    }
    report(&run)?;
    say_undecided(run.totals.undecided)?;
    let failed = run.violation.is_some() || run.totals.undecided > 0;
    if failed && args.plan.is_none() {
        say(format_args!("replay: {}", args.save(&plan)?))?;
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn report(run: &Run) -> Result<()> {
    say(run)?;
    for (what, count) in run.totals.coverage.iter() {
        say(format_args!("  {what:<44}{count:>8}"))?;
    }
    Ok(())
}

fn say_undecided(searches: u64) -> Result<()> {
    match searches {
        0 => Ok(()),
        _ => say(format_args!("{searches} searches were not decided, which is no pass")),
    }
}

fn many(args: &Args) -> Result<ExitCode> {
    let (from, flags) = (args.first()?, args.flags());
    say(format_args!("gaggle-lab simulate --from {from} --seeds {}{flags}", args.seeds))?;
    let bar = args.bar();
    let (next, batch) = (AtomicU64::new(0), Mutex::new(Batch::default()));
    let running = Mutex::new(BTreeMap::<u64, Duration>::new());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_secs(1));
                for seed in overdue(&running, bar.elapsed()) {
                    let overdue = format_duration(OVERDUE);
                    let replay = format!("{SIMULATE} --seed {seed}{flags} --trace");
                    let _ = writeln!(io::stderr(), "not at its end after {overdue}: {replay}");
                }
            }
        });
        let workers = (0..args.threads()).map(|_| {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= args.seeds {
                        break;
                    }
                    let seed = from + number;
                    locked(&running).insert(seed, bar.elapsed());
                    let run = args.simulate(seed);
                    locked(&running).remove(&seed);
                    if let Some(violation) = &run.violation {
                        bar.println(format!("seed {}: {violation}", run.seed));
                    }
                    locked(&batch).add(&run);
                    bar.inc(1);
                }
            })
        });
        let workers = workers.collect::<Vec<_>>();
        let ended = workers.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>();
        is_over.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        ended.into_iter().for_each(|end| end.unwrap_or_else(|panic| resume_unwind(panic)));
    });
    let took = bar.elapsed();
    bar.finish_and_clear();
    let batch = batch.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut missing = if batch.seeds >= COMPLETE { batch.missing() } else { Vec::new() };
    if args.beyond_bound && batch.seeds >= COMPLETE && batch.totals.two_believed == 0 {
        missing.push("two holders that both believe, beyond the bound");
    }
    if args.beyond_bound && batch.seeds >= COMPLETE && batch.totals.coverage.count(STANDSTILL) == 0
    {
        missing.push(STANDSTILL);
    }
    // Plans are saved even where nothing can be shown.
    let mut shown = show(&batch, took, &missing);
    let undecided = batch.undecided_seeds.iter();
    let failed = batch.violations.iter().map(|(seed, _)| seed).chain(undecided);
    for seed in failed.take(SAVED_MAX) {
        let replay = match args.http {
            true => format!("{SIMULATE} --http --seed {seed}"),
            false => args.save(&args.generate(*seed))?,
        };
        shown = shown.and_then(|()| say(format_args!("replay: {replay}")));
    }
    shown?;
    let sound = batch.violations_found == 0 && missing.is_empty() && batch.totals.undecided == 0;
    Ok(ExitCode::from(u8::from(!sound)))
}

/// After this time a seed is reported once as overdue: a run takes milliseconds to seconds, and may
/// hang within a turn, which no event ends.
const OVERDUE: Duration = Duration::from_secs(120);

fn overdue(running: &Mutex<BTreeMap<u64, Duration>>, now: Duration) -> Vec<u64> {
    let is_late = |_: &u64, began: &mut Duration| now.saturating_sub(*began) >= OVERDUE;
    locked(running).extract_if(.., is_late).map(|(seed, _)| seed).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn show(batch: &Batch, took: Duration, missing: &[&str]) -> Result<()> {
    let times = batch.totals.virtual_time.as_secs_f64() / took.as_secs_f64();
    say(batch)?;
    say(format_args!("{took:.1?}: {times:.0} times real time"))?;
    if batch.seeds < COMPLETE {
        say(format_args!("below {COMPLETE} seeds a missing fault or rare event is not reported"))?;
    }
    say_undecided(batch.totals.undecided)?;
    for what in missing {
        say(format_args!("never happened: {what}"))?;
    }
    Ok(())
}

/// Prints a line. A pipe that its reader has closed (`| head -1`) is no failure.
fn say(line: impl Display) -> Result<()> {
    match writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        let line = format!("simulate {line}");
        Line::try_parse_from(line.split_whitespace()).expect("the line is one").args
    }

    #[test]
    fn there_are_no_more_threads_than_seeds() {
        for (line, threads) in [
            ("--jobs 1024 --seeds 3", 3),
            ("--jobs 3 --seeds 1024", 3),
            ("--jobs 1024 --seeds 5000", 1_024),
            ("--seeds 1", 1),
        ] {
            assert_eq!(args(line).threads(), threads, "{line}");
        }
    }

    #[test]
    fn last_seed_is_one() {
        let line = format!("--from {} --seeds 3", u64::MAX - 3);
        assert_eq!(args(&line).first().ok(), Some(u64::MAX - 3));
        for line in [format!("--from {} --seeds 3", u64::MAX - 2), format!("--seeds {}", u64::MAX)]
        {
            let failure = args(&line).first().expect_err("the seeds wrap");
            assert!(failure.to_string().contains("must fit in 64 bits"), "{failure}");
        }
    }
}
