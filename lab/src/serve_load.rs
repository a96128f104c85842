//! `gaggle-lab serve-load`: what other clients cost a client of `gaggle serve`.
//!
//! Rounds on a server without load and on one with load alternate, so that both meet the same
//! machine. A pair is a `POST` that is granted and the `PATCH` that releases it.

mod http;
mod intruders;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use tokio::{
    runtime::Runtime,
    task::JoinSet,
    time::{Instant, sleep},
};

use self::http::Connection;

const ACTIVE: usize = 10_000;
const WAITING: usize = 2_000;
/// Ticks of the CPU time in /proc.
const TICKS_PER_SEC: f64 = 100.0;
const IDLE_SECS: u64 = 10;
/// The most CPU time of a server whose clients only wait, as a share of a core.
const IDLE_MAX: f64 = 0.05;
/// By how much load may lengthen the p99 of a pair.
const SLOWER_MAX: f64 = 2.0;
/// The pause between two pairs of the measured client.
const PAUSE: Duration = Duration::from_millis(2);
const TOKEN: &str = "token-of-the-measured-client";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The binary of `gaggle`, of a release build.
    #[arg(long, value_name = "PATH", default_value = "target/release/gaggle")]
    gaggle: PathBuf,
    /// How many rounds there are on each server, of two seconds each.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    Runtime::new()?.block_on(async {
        let claims = claims(args).await?;
        let intruders = intruders(args).await?;
        Ok(if claims && intruders { ExitCode::SUCCESS } else { ExitCode::from(1) })
    })
}

/// A server over `local:`, with one token, that is killed as it is dropped.
struct Server {
    process: Child,
    address: String,
    tokens: PathBuf,
}

impl Server {
    fn start(gaggle: &Path, name: &str) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let file = format!("gaggle-serve-load-{}-{name}", std::process::id());
        let tokens = std::env::temp_dir().join(file);
        fs::write(&tokens, format!("measured client {TOKEN}\n"))?;
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600))?;
        let mut command = Command::new(gaggle);
        command.args(["serve", "--listen", "127.0.0.1:0", "--tokens"]).arg(&tokens);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().with_context(|| gaggle.display().to_string())?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("it is piped")?).read_line(&mut line)?;
        let address = line.trim().rsplit('/').next().unwrap_or_default().to_owned();
        ensure!(!address.is_empty(), "the server has not started");
        Ok(Self { process, address, tokens })
    }

    async fn connect(&self) -> Result<Connection> {
        Connection::open(&self.address, TOKEN).await
    }

    /// The CPU time so far, in seconds.
    fn cpu_secs(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let (_, fields) = stat.rsplit_once(')').context("the name is in brackets")?;
        let times = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        Ok(times.sum::<Result<f64, _>>()? / TICKS_PER_SEC)
    }

    /// The memory in use, in bytes.
    fn memory(&self) -> Result<usize> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("VmRSS")?;
        Ok(kib.parse::<usize>()? * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.tokens);
    }
}

/// The latencies of pairs.
#[derive(Default)]
struct Latencies(Vec<Duration>);

impl Latencies {
    /// Adds the pairs of a client within a round.
    async fn measure(&mut self, server: &Server) -> Result<()> {
        let mut connection = server.connect().await?;
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            let began = Instant::now();
            connection.pair("measured").await?;
            self.0.push(began.elapsed());
            sleep(PAUSE).await;
        }
        Ok(())
    }

    fn percentile(&mut self, percent: usize) -> Duration {
        self.0.sort_unstable();
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

/// Rounds on both servers in turns. Returns whether the load is within its limit.
async fn compare(what: &str, rounds: usize, quiet: &Server, loaded: &Server) -> Result<bool> {
    let (mut without_load, mut with_load) = (Latencies::default(), Latencies::default());
    for _ in 0..rounds {
        without_load.measure(quiet).await?;
        with_load.measure(loaded).await?;
    }
    let [medians, tails] = [50, 99].map(|percent| {
        [without_load.percentile(percent), with_load.percentile(percent)]
            .map(|it| it.as_secs_f64() * 1e3)
    });
    println!(
        "{what}: a pair takes p50 {:.2} ms, p99 {:.2} ms; without load p50 {:.2} ms, p99 {:.2} ms",
        medians[1], tails[1], medians[0], tails[0]
    );
    Ok(report("p99 of a pair with load", tails[1] / tails[0], SLOWER_MAX))
}

fn report(what: &str, value: f64, limit: f64) -> bool {
    let is_within = value <= limit;
    let verdict = if is_within { "ok" } else { "FAILED" };
    println!("  {what}: {value:.3}, limit {limit}: {verdict}");
    is_within
}

/// A server with 10,000 active and 2,000 waiting claims.
#[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
async fn claims(args: &Args) -> Result<bool> {
    let (quiet, loaded) =
        (Server::start(&args.gaggle, "quiet")?, Server::start(&args.gaggle, "claims")?);
    Latencies::default().measure(&loaded).await?;
    let empty = loaded.memory()?;
    let active = (0..8).map(|part| hold(&loaded, part));
    try_join_all(active).await?;
    let held = loaded.memory()?;
    let mut waiting = JoinSet::new();
    for number in 0..WAITING {
        let mut connection = loaded.connect().await?;
        waiting.spawn(async move { connection.wait(&format!("key-{}", number / 2)).await });
    }
    sleep(Duration::from_secs(3)).await;
    let full = loaded.memory()?;
    let per = |bytes: usize, count: usize| bytes as f64 / count as f64 / 1024.0;
    println!(
        "{ACTIVE} active and {WAITING} waiting claims: {:.1} KiB an active claim, {:.1} KiB a \
         waiting one with its connection",
        per(held.saturating_sub(empty), ACTIVE),
        per(full.saturating_sub(held), WAITING)
    );
    let (before, began) = (loaded.cpu_secs()?, Instant::now());
    sleep(Duration::from_secs(IDLE_SECS)).await;
    let idle = (loaded.cpu_secs()? - before) / began.elapsed().as_secs_f64();
    let is_idle = report("CPU while clients wait, of a core", idle, IDLE_MAX);
    let is_fast = compare("claims", args.rounds, &quiet, &loaded).await?;
    if let Some(ended) = waiting.try_join_next() {
        ended??;
        anyhow::bail!("a waiting claim was granted");
    }
    Ok(is_idle && is_fast)
}

/// Makes a part of the active claims.
async fn hold(server: &Server, part: usize) -> Result<()> {
    let mut connection = server.connect().await?;
    for number in (part..ACTIVE).step_by(8) {
        let (status, body) = connection.claim(&format!("key-{number}"), 86_400, 0).await?;
        ensure!(status == 201, "{body}");
    }
    Ok(())
}

/// A server with clients that have no token, or send slowly, or nothing, or too much.
async fn intruders(args: &Args) -> Result<bool> {
    let (quiet, loaded) =
        (Server::start(&args.gaggle, "quiet")?, Server::start(&args.gaggle, "intruders")?);
    let intruders = intruders::Intruders::begin(&loaded.address);
    // All intruders connect meanwhile.
    sleep(Duration::from_secs(3)).await;
    let is_fast = compare("intruders", args.rounds, &quiet, &loaded).await?;
    let mut tail = Latencies::default();
    // The client is served until the last wrong token was refused.
    while !intruders.is_done() {
        tail.measure(&loaded).await?;
    }
    println!("  {}", intruders.summary());
    ensure!(intruders.are_refused(), "an intruder was served");
    Ok(is_fast)
}
