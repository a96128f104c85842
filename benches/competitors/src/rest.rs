//! Costs other than throughput: idle handles, many waiters, memory.
//!
//! Failing over is in [`failing`].

use std::{
    future::poll_fn,
    io::Read,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use gaggle::{KeyedMutex, Lock, LockOptions, strategies::Local};
use gaggle_workloads::{Bare, Contender, Latency, Workload, run};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    bounds::{FRAME_BYTES, Role},
    cluster::{Cluster, Over, member_urls},
    commands,
    contenders::{BoxError, Mutexes, excluding},
    data::Data,
    failing, machine,
    settings::Settings,
};

/// As long as by default between members.
const HEARTBEAT: Duration = Duration::from_millis(50);

pub(crate) async fn all(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
    failing::all(settings, data)?;
    at_rest(settings, data).await?;
    commands::sent(settings, data).await?;
    commands::time(settings, data).await?;
    masses(settings, data).await?;
    let count = if settings.quick { 100_000 } else { 1_000_000 };
    let (_role, line) = Role::start(&["keys", &count.to_string()])?;
    data.figure("bytes_per_key_held", line.parse()?);
    for place in ["leader", "follower"] {
        let (_role, line) = Role::start(&["pairs", &settings.pairs.to_string(), place])?;
        for (share, mib) in ["half", "all"].iter().zip(line.split_whitespace()) {
            data.figure(&format!("resident_mib_{place}_after_{share}_of_the_pairs"), mib.parse()?);
        }
    }
    data.figure("pairs_watched", settings.pairs as f64);
    Ok(())
}

/// Three members in separate processes with nothing to do.
async fn at_rest(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
    data.figure("cpu_at_rest_percent_of_a_core", rest_for(settings.rest).await?);
    data.figure("cpu_of_bare_heartbeats_percent_of_a_core", bare_heartbeats(settings.rest).await?);
    Ok(())
}

/// The share of a core.
fn percent(seconds: f64, time: Duration) -> f64 {
    seconds / time.as_secs_f64() * 100.0
}

/// What a process takes that does nothing but what a leader at rest has to: twenty times a second
/// 64 bytes to two others over TCP, and the replies.
async fn bare_heartbeats(rest: Duration) -> Result<f64, BoxError> {
    let (_one, first) = Role::start(&["echo"])?;
    let (_other, second) = Role::start(&["echo"])?;
    let (beats, _) = Role::start(&["beats", &first, &second])?;
    let before = machine::used_s(beats.process.id());
    tokio::time::sleep(rest).await;
    Ok(percent(machine::used_s(beats.process.id()) - before, rest))
}

/// The child that has them.
pub(crate) fn beats_child(peers: [&str; 2]) -> Result<(), BoxError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut streams = Vec::new();
        for peer in peers {
            let stream = TcpStream::connect(peer).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        println!("ready");
        let mut beat = tokio::time::interval(HEARTBEAT);
        let mut frame = [0; FRAME_BYTES];
        loop {
            beat.tick().await;
            for stream in &mut streams {
                stream.write_all(&frame).await?;
            }
            for stream in &mut streams {
                stream.read_exact(&mut frame).await?;
            }
        }
    })
}

/// What the busiest of three members takes.
async fn rest_for(rest: Duration) -> Result<f64, BoxError> {
    // Each says that it is ready only when all have started.
    let mut starting = JoinSet::new();
    for url in member_urls("gaggle", 3, Over::Tcp) {
        starting.spawn_blocking(move || Role::start(&["member", &url]));
    }
    let mut roles = Vec::new();
    while let Some(started) = starting.join_next().await {
        roles.push(started??.0);
    }
    let used = || roles.iter().map(|role| machine::used_s(role.process.id()));
    let before: Vec<f64> = used().collect();
    tokio::time::sleep(rest).await;
    let all = used().zip(before).map(|(after, before)| percent(after - before, rest));
    let busiest = all.max_by(f64::total_cmp);
    busiest.ok_or_else(|| "no member ran".into())
}

/// A member until its standard input ends.
pub(crate) fn member_child(url: &str) -> Result<(), BoxError> {
    machine::runtime().block_on(async {
        let locker = gaggle::open(url).await?;
        locker.ready().await?;
        println!("ready");
        let input = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::task::spawn_blocking(|| input.join()).await?.map_err(|_| "input")??;
        locker.close().await;
        Ok(())
    })
}

/// Hand-offs with ten waiting, and with a hundred thousand.
async fn masses(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
    let many = if settings.quick { 10_000 } else { 100_000 };
    let cluster = Cluster::open("gaggle", 3, Over::Memory).await;
    let [leader] = cluster.leader();
    for waiters in [10, many] {
        let figure = |name: &str| format!("{name}_handoff_p50_us_{waiters}_waiters");
        let mut measured = Vec::new();
        for (name, mutex) in [("local", Arc::new(Local::new()) as _), ("gaggle", leader.0.clone())]
        {
            measured.push((figure(name), queue(Patient(mutex), waiters).await?));
        }
        // The cost of this many waiters of one key, which may time out.
        let mutexes = Mutexes::that_give_up_after(Duration::from_secs(600));
        measured.push((figure("dashmap"), queue(mutexes, waiters).await?));
        for (figure, p50_us) in measured {
            data.figure(&figure, p50_us);
        }
    }
    cluster.close().await;
    data.figure("many_waiters", f64::from(many));
    Ok(())
}

/// Holds for long, and waits for long.
struct Patient(Arc<dyn KeyedMutex>);

impl Contender for Patient {
    type Hold = gaggle::Lock;

    async fn lock(&self, key: &str) -> Result<Self::Hold, BoxError> {
        let options = LockOptions::default()
            .duration(Duration::from_secs(3600))
            .max_wait(Duration::from_secs(600));
        Ok(self.0.lock(key, options).await?)
    }

    async fn unlock(&self, lock: Self::Hold) -> Result<(), BoxError> {
        Ok(self.0.unlock(&lock).await?)
    }
}

/// Queues this many tasks behind a holder, unlocks, and times the hand-offs: of the first fifth of
/// many, in which the queue is long. Each that had the lock asks for it again, so that few and many
/// do the same. Until all are measured no task ends, which would wake the task that joins all of
/// them, between two hand-offs.
async fn queue(mutex: impl Contender, waiters: u32) -> Result<f64, BoxError> {
    let handoffs = if waiters < 1000 { 20_000 } else { waiters / 5 };
    let mutex = Arc::new(mutex);
    let holder = mutex.lock("queue").await?;
    let released = Arc::new(Mutex::new((Instant::now(), Latency::default())));
    let waiting = Arc::new(AtomicU32::new(0));
    let measured = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        let (mutex, released, waiting) = (mutex.clone(), released.clone(), waiting.clone());
        let measured = measured.clone();
        tasks.spawn(async move {
            let mut counted = false;
            while !measured.load(Ordering::Relaxed) {
                let mut locking = pin!(mutex.lock("queue"));
                // Counted once it has been asked for.
                let hold = poll_fn(|context| {
                    let polled = locking.as_mut().poll(context);
                    if !std::mem::replace(&mut counted, true) {
                        waiting.fetch_add(1, Ordering::Relaxed);
                    }
                    polled
                });
                let hold = hold.await?;
                {
                    let mut released = released.lock().expect("no task panics");
                    let took = released.0.elapsed();
                    if released.1.count() < u64::from(handoffs) {
                        released.1.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
                    } else {
                        measured.store(true, Ordering::Relaxed);
                    }
                    released.0 = Instant::now();
                }
                mutex.unlock(hold).await?;
            }
            Ok::<(), BoxError>(())
        });
    }
    // Until all wait; members hear of each other a little later.
    let begun = Instant::now();
    while waiting.load(Ordering::Relaxed) < waiters {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err("the waiters do not queue".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    released.lock().expect("no task panics").0 = Instant::now();
    mutex.unlock(holder).await?;
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let released = released.lock().expect("no task panics");
    Ok(released.1.us(0.5))
}

/// Holds this many keys and reports how many bytes each has added to this process.
pub(crate) fn keys_child(count: &str) -> Result<(), BoxError> {
    let count: u32 = count.parse()?;
    machine::runtime().block_on(async {
        let local = Local::new();
        let options = LockOptions::default().duration(Duration::from_secs(3600));
        local.lock("warm-up", options.clone()).await?;
        let before = machine::resident_bytes();
        for number in 0..count {
            local.lock(&format!("orders/{number:07}"), options.clone()).await?;
        }
        println!("{:.0}", (machine::resident_bytes() - before) / f64::from(count));
        Ok(())
    })
}

/// Locks and unlocks so often at one member, and says what all three occupy after half and after
/// all. What a follower unlocks is remembered for the nonce memory of 30 s.
pub(crate) fn pairs_child(count: &str, place: &str) -> Result<(), BoxError> {
    let count: u64 = count.parse()?;
    machine::runtime().block_on(async {
        let cluster = Cluster::open("gaggle", 3, Over::Memory).await;
        let [member]: [Arc<Bare>; 1] =
            if place == "leader" { cluster.leader() } else { cluster.follower() };
        let member = [Arc::new(Unhurried(member))];
        let mut resident = Vec::new();
        let each = u32::try_from((count / 2).div_ceil(64))?;
        for _ in 0..2 {
            excluding(run(&member, &Workload::fan(64).each(each), "pairs").await?)?;
            resident.push(format!("{:.1}", machine::resident_bytes() / f64::from(1 << 20)));
        }
        println!("{}", resident.join(" "));
        Ok(())
    })
}

/// Waits where the group remembers as many nonces as it may: a follower that makes more than 69,905
/// pairs a second for half a minute meets the bound of two million.
struct Unhurried(Arc<Bare>);

impl Contender for Unhurried {
    type Hold = Lock;

    async fn lock(&self, key: &str) -> Result<Lock, BoxError> {
        loop {
            match self.0.lock(key).await {
                Err(error) if is_limit(&error) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn unlock(&self, lock: Lock) -> Result<(), BoxError> {
        self.0.unlock(lock).await
    }
}

fn is_limit(error: &BoxError) -> bool {
    matches!(error.downcast_ref(), Some(gaggle::Error::Limit { .. }))
}
