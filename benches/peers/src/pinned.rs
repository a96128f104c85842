//! What the bounds and the locks over TCP are where each process stays on one core: who asks on one, all whom it
//! asks on the other, as peers are on another machine. Elsewhere the kernel places them, and where it puts two
//! that talk to each other on one core, they take a fraction of the time.

use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::{bounds::Role, contenders::Failed, data::Data, failing, settings::Settings};

/// How often two threads pass a word to each other and back.
const PASSES: u64 = 200_000;
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn all(settings: &Settings, data: &mut Data) -> Result<(), Failed> {
    let Some(cores) = two_cores()? else { return Ok(()) };
    let window = settings.window;
    for (name, value) in tokio::task::spawn_blocking(move || measured(cores, window)).await?? {
        data.figure(name, value);
    }
    Ok(())
}

/// The first two on which this process may run, if there are two.
fn two_cores() -> Result<Option<[usize; 2]>, Failed> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    Ok(cores.next().zip(cores.next()).map(|(one, other)| [one, other]))
}

fn measured(cores: [usize; 2], window: Duration) -> Result<Vec<(&'static str, f64)>, Failed> {
    let [near, far] = cores;
    let (quorum, trip) = floors(cores, window)?;
    let (_, mut members) = failing::three()?;
    let (term, leads) = failing::leader(&mut members)?;
    let follows = (leads + 1) % members.len();
    let mut lock = |asks: usize| -> Result<f64, Failed> {
        for (place, member) in members.iter().enumerate() {
            stays(member.process.id(), if place == asks { near } else { far })?;
        }
        let p50_us = members[asks].ask(&format!("solo {}", window.as_millis()))?.parse()?;
        if failing::leader(&mut members)? != (term, leads) {
            return Err("the leader is another".into());
        }
        Ok(p50_us)
    };
    let (at_leader, at_follower) = (lock(leads)?, lock(follows)?);
    Ok(vec![
        ("pinned_quorum_floor_p50_us", quorum),
        ("pinned_round_trip_p50_us", trip),
        ("pinned_leader_lock_p50_us", at_leader),
        ("pinned_follower_lock_p50_us", at_follower),
        ("core_to_core_ns", between(cores)?),
    ])
}

fn floors([near, far]: [usize; 2], window: Duration) -> Result<(f64, f64), Failed> {
    let (one, first) = Role::start(&["echo"])?;
    let (other, second) = Role::start(&["echo"])?;
    stays(one.process.id(), far)?;
    stays(other.process.id(), far)?;
    let window = window.as_millis().to_string();
    let said = on(near, || Role::start(&["floors", &first, &second, &window]))??.1;
    let (quorum, trip) = said.split_once(' ').ok_or("two figures were expected")?;
    Ok((quorum.parse()?, trip.parse()?))
}

/// How long a word takes from one core to the other: what two threads at least exchange of all that they
/// share.
fn between([near, far]: [usize; 2]) -> Result<f64, Failed> {
    let word = AtomicU64::new(0);
    let spent = thread::scope(|scope| {
        let pass = |core: usize, odd: u64| {
            on(core, || {
                let begun = Instant::now();
                for number in (odd..2 * PASSES).step_by(2) {
                    // Looks at the clock rarely: that takes about as long as the word does.
                    let mut looks = 0_u32;
                    while word.load(Ordering::Acquire) != number {
                        looks = looks.wrapping_add(1);
                        if looks.is_multiple_of(1 << 20) && begun.elapsed() > PATIENCE {
                            return None;
                        }
                        std::hint::spin_loop();
                    }
                    word.store(number + 1, Ordering::Release);
                }
                Some(begun.elapsed())
            })
        };
        let other = scope.spawn(move || pass(far, 1).map_err(|error| error.to_string()));
        let spent = pass(near, 0);
        other.join().expect("it does not panic")?;
        spent
    })?;
    let spent = spent.ok_or("the two threads do not meet")?;
    Ok(spent.as_nanos() as f64 / (2 * PASSES) as f64)
}

/// Does it on this core, and returns to where this thread might be.
fn on<T>(core: usize, act: impl FnOnce() -> T) -> Result<T, Failed> {
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &only(core))?;
    let done = act();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

/// All threads of a process, and those that they begin.
fn stays(process: u32, core: usize) -> Result<(), Failed> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let id: i32 = thread?.file_name().to_string_lossy().parse()?;
        sched_setaffinity(Pid::from_raw(id), &only(core))?;
    }
    Ok(())
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}
