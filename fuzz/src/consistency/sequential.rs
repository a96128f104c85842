//! Sequential calls, whose outcomes must agree on all strategies.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use arbitrary::{Result, Unstructured};
use gaggle_strategies::{Error, Lock, LockOptions};
use tokio::time::{Instant, sleep_until, timeout};

use super::backend::Backend;

/// Calls in one schedule at most.
const OPS_MAX: usize = 24;
/// A schedule ends by then: no withdrawn nonce is forgotten before, which is after 30 s.
const LASTS: Duration = Duration::from_secs(24);
/// The longest lease in whole seconds.
const LEASE_MAX: u64 = 4;
const KEYS: [&str; 3] = ["a", "orders/42", "\u{1f512} "];

/// Calls begin at whole seconds, leases end at .4, waits at .6, calls are dropped at .8: what a
/// strategy takes longer than another stays below the distance.
const GRID: Duration = Duration::from_secs(1);

/// One call. `of` counts the acquisitions from the latest back.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Lock { client: usize, key: usize, lease: u64, wait: u64 },
    Dropped { client: usize, key: usize, wait: u64, after: u64 },
    Unlock { client: usize, of: usize },
    Extend { client: usize, of: usize, lease: u64 },
    Advance { seconds: u64 },
}

/// The outcome of a call, the same on every strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The rank of its token among those of its key.
    Granted(u64),
    Done,
    Failed(&'static str),
    Dropped,
    NothingToDo,
}

/// The outcomes, and the second at which each was there.
pub(super) type Trace = Vec<(u64, Outcome)>;

pub(super) fn decode(u: &mut Unstructured<'_>) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    while !u.is_empty() && ops.len() < OPS_MAX {
        let client = u.int_in_range(0..=3)?;
        // Mostly the latest.
        let of = |u: &mut Unstructured<'_>| -> Result<usize> {
            Ok(usize::from(u.arbitrary::<u8>()?.leading_zeros() as u8 / 2))
        };
        ops.push(match u.int_in_range(0..=15)? {
            0..=7 => Op::Lock {
                client,
                key: u.int_in_range(0..=KEYS.len() - 1)?,
                lease: u.int_in_range(1..=LEASE_MAX)?,
                wait: u.int_in_range(0..=4)?,
            },
            8 => Op::Dropped {
                client,
                key: u.int_in_range(0..=KEYS.len() - 1)?,
                wait: u.int_in_range(1..=4)?,
                after: u.int_in_range(0..=2)?,
            },
            9..=11 => Op::Unlock { client, of: of(u)? },
            12 | 13 => Op::Extend { client, of: of(u)?, lease: u.int_in_range(1..=LEASE_MAX)? },
            _ => Op::Advance { seconds: u.int_in_range(1..=5)? },
        });
    }
    Ok(ops)
}

/// Runs the calls one after another.
///
/// # Panics
///
/// When something is left in the end, or a key is not free.
pub(super) async fn run(backend: Backend, ops: Vec<Op>) -> Trace {
    let mut run = Run { backend, began: Instant::now(), locks: Vec::new(), trace: Vec::new() };
    for op in &ops {
        if run.began.elapsed() >= LASTS {
            break;
        }
        run.step(op).await;
    }
    run.backend.settle().await;
    for (client, key) in KEYS.iter().enumerate() {
        let handle = run.backend.handle(client);
        let options = LockOptions::default().duration(GRID).max_wait(Duration::ZERO);
        let lock = handle.lock(key, options).await.expect("every key is free in the end");
        handle
            .unlock(&lock)
            .await
            .unwrap_or_else(|error| panic!("{:?}: {error}", handle.capabilities()));
        run.locks.push(lock);
    }
    run.ranked()
}

struct Run {
    backend: Backend,
    began: Instant,
    locks: Vec<Lock>,
    trace: Trace,
}

fn lease(seconds: u64) -> Duration {
    Duration::from_millis(seconds * 1000 + 400)
}

fn options(seconds: u64, wait: u64) -> LockOptions {
    // Zero does not wait.
    let wait = Duration::from_millis(if wait == 0 { 0 } else { wait * 1000 - 400 });
    LockOptions::default().duration(lease(seconds)).max_wait(wait)
}

impl Run {
    async fn step(&mut self, op: &Op) {
        match *op {
            Op::Lock { client, key, lease, wait } => {
                let handle = self.backend.handle(client).clone();
                let locked = handle.lock(KEYS[key], options(lease, wait)).await;
                self.replied(client, lease, locked).await;
            }
            Op::Dropped { client, key, wait, after } => {
                let handle = self.backend.handle(client).clone();
                let locking = handle.lock(KEYS[key], options(1, wait));
                let limit = Duration::from_millis(after * 1000 + 800);
                match timeout(limit, locking).await {
                    Ok(locked) => self.replied(client, 1, locked).await,
                    Err(_) => self.note(Outcome::Dropped).await,
                }
            }
            Op::Unlock { client, of } => match latest(&self.locks, of) {
                Some(lock) => {
                    let outcome = done(self.backend.handle(client).unlock(&lock).await);
                    self.note(outcome).await;
                }
                None => self.note(Outcome::NothingToDo).await,
            },
            Op::Extend { client, of, lease } => self.extend(client, of, lease).await,
            Op::Advance { seconds } => {
                self.note(Outcome::Done).await;
                sleep_until(Instant::now() + GRID * (seconds as u32 - 1)).await;
            }
        }
    }

    async fn replied(
        &mut self,
        client: usize,
        lease: u64,
        locked: std::result::Result<Lock, Error>,
    ) {
        let waited = Instant::now() - self.began;
        let granted = locked.is_ok();
        let outcome = self.locked(locked);
        self.note(outcome).await;
        if granted && !on_grid(waited) {
            // A grant after a wait ends off the grid.
            self.extend(client, 0, lease).await;
        }
    }

    async fn extend(&mut self, client: usize, of: usize, seconds: u64) {
        let Some(held) = latest(&self.locks, of) else {
            return self.note(Outcome::NothingToDo).await;
        };
        let extended = self.backend.handle(client).extend(&held, lease(seconds)).await;
        let outcome = match extended {
            Ok(lock) => {
                let at = self.locks.len() - 1 - of;
                self.locks[at] = lock;
                Outcome::Done
            }
            Err(error) => Outcome::Failed(name(&error)),
        };
        self.note(outcome).await;
    }

    fn locked(&mut self, locked: std::result::Result<Lock, Error>) -> Outcome {
        match locked {
            Ok(lock) => {
                self.locks.push(lock);
                Outcome::Granted(self.locks.len() as u64 - 1)
            }
            Err(error) => Outcome::Failed(name(&error)),
        }
    }

    /// Notes an outcome, and waits for the next whole second.
    async fn note(&mut self, outcome: Outcome) {
        let second = self.began.elapsed().as_secs();
        self.trace.push((second, outcome));
        sleep_until(self.began + GRID * (second as u32 + 1)).await;
    }

    /// The trace with the ranks of tokens in place of the numbers of locks: tokens of two keys may
    /// be equal.
    fn ranked(self) -> Trace {
        let mut by_key: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for lock in &self.locks {
            by_key.entry(lock.key()).or_default().push(lock.fencing_token());
        }
        for tokens in by_key.values_mut() {
            tokens.sort_unstable();
            tokens.dedup();
        }
        let rank_of = |lock: &Lock| {
            let lower = by_key[&**lock.key()].iter().filter(|token| **token < lock.fencing_token());
            lower.count() as u64 + 1
        };
        let rank = |outcome| match outcome {
            Outcome::Granted(number) => Outcome::Granted(rank_of(&self.locks[number as usize])),
            outcome => outcome,
        };
        self.trace.into_iter().map(|(second, outcome)| (second, rank(outcome))).collect()
    }
}

/// A call that did not wait ends when it began, but for a few milliseconds.
fn on_grid(since: Duration) -> bool {
    since.subsec_millis() < 300
}

fn latest<T: Clone>(items: &[T], of: usize) -> Option<T> {
    items.len().checked_sub(1 + of).map(|at| items[at].clone())
}

fn done(result: std::result::Result<(), Error>) -> Outcome {
    result.map_or_else(|error| Outcome::Failed(name(&error)), |()| Outcome::Done)
}

/// The variant's name.
fn name(error: &Error) -> &'static str {
    match error {
        Error::TimedOut(_) => "TimedOut",
        Error::Held(_) => "Held",
        Error::NotHolder => "NotHolder",
        Error::Expired => "Expired",
        Error::Unavailable { .. } => "Unavailable",
        Error::Unknown => "Unknown",
        Error::Closed => "Closed",
        Error::Failed { .. } => "Failed",
        Error::InvalidKey { .. } => "InvalidKey",
        Error::InvalidOptions { .. } => "InvalidOptions",
        Error::Limit { .. } => "Limit",
        _ => "another",
    }
}

/// The calls, and two traces up to where they part, for a message.
pub(super) fn compared(ops: &[Op], one: &Trace, other: &Trace) -> String {
    let mut text = String::new();
    for op in ops {
        writeln!(text, "{op:?}").expect("a string takes everything");
    }
    for at in 0..one.len().max(other.len()) {
        let (one, other) = (one.get(at), other.get(at));
        writeln!(text, "{at}: {one:?}   {other:?}").expect("a string takes everything");
        if one != other {
            break;
        }
    }
    text
}
