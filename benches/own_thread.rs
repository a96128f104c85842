//! The cost of a strategy's own thread: `cargo bench --bench own_thread`.
//!
//! Pairs of a lock and its unlock a second on one Redis, over a locker of `open` and over one of
//! `open_on_thread`, in turns. Each figure is the median of the rounds.

use std::{env, sync::Arc, time::Duration};

use gaggle::Locker;
use gaggle_fixtures::RedisServer;
use gaggle_workloads::{BoxError, Workload, run};
use tokio::runtime::{Builder, Runtime};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(500);

fn main() -> Result<(), BoxError> {
    // What `cargo test --benches` passes: one short round.
    let test = env::args().any(|argument| argument == "--test");
    let (rounds, round) = if test { (1, ROUND / 50) } else { (ROUNDS, ROUND) };
    let server = RedisServer::start();
    let current = Builder::new_current_thread().enable_all().build()?;
    let multi = Builder::new_multi_thread().enable_all().build()?;
    println!("pairs/s                               open   open_on_thread");
    for (flavor, runtime) in [("current_thread", &current), ("multi_thread", &multi)] {
        let url = server.url();
        let open = runtime.block_on(gaggle::open(&url))?;
        let thread = runtime.block_on(gaggle::open_on_thread(&url))?;
        let lockers = [open, thread].map(Arc::new);
        for (name, workload) in [
            ("one key, one task", Workload::uncontended()),
            ("64 keys, 64 tasks", Workload::fan(64)),
            ("one key, 8 tasks", Workload::handoff(8)),
        ] {
            let workload = workload.lasting(round);
            let mut figures = [const { Vec::new() }; 2];
            for _ in 0..rounds {
                for (locker, figures) in lockers.iter().zip(&mut figures) {
                    figures.push(pairs_per_s(runtime, locker, &workload)?);
                }
            }
            let [open, thread] = figures.map(median);
            println!("{flavor:14} {name} {open:10.0} {thread:16.0}");
        }
    }
    Ok(())
}

fn pairs_per_s(
    runtime: &Runtime,
    locker: &Arc<Locker>,
    workload: &Workload,
) -> Result<f64, BoxError> {
    let figures = runtime.block_on(run(std::slice::from_ref(locker), workload, "bench"))?;
    Ok(figures.pairs_per_s)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
