//! Concurrent clients under faults, checked by the history checker.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arbitrary::{Result, Unstructured};
use gaggle_lab::history::{Call, History, ModelKind, Operation, Outcome, Settings, check};
use gaggle_strategies::{
    Drift, Error, KeyedMutex, Lock, LockOptions, clock::Clock, defaults::REQUEST_TIMEOUT,
    lock::Nonce,
};
use tokio::time::{sleep, timeout};

use super::backend::Backend;

const CLIENTS_MAX: usize = 4;
const ACTS_MAX: usize = 12;
const KEYS: [&str; 2] = ["a", "b"];
/// The time that a call may take beyond its limit: a turn of the member.
const SLACK: Duration = Duration::from_millis(50);

/// The acts of each client, and the faults during them.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    clients: Vec<Vec<Act>>,
    faults: Vec<(Duration, Fault)>,
}

#[derive(Clone, Debug)]
enum Act {
    Lock {
        key: usize,
        lease: Duration,
        wait: Duration,
    },
    /// As `Lock`, but the call is dropped.
    Dropped {
        key: usize,
        wait: Duration,
        after: Duration,
    },
    Unlock {
        of: usize,
    },
    Extend {
        of: usize,
        lease: Duration,
    },
    Sleep(Duration),
}

#[derive(Clone, Debug)]
enum Fault {
    Delay(Duration),
    Isolate(usize),
    Cut(usize, usize),
    Partition(usize, usize),
    Heal,
}

impl Plan {
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    #[cfg(test)]
    pub(super) fn acts(&self) -> usize {
        self.clients.iter().map(Vec::len).sum()
    }
}

pub(super) fn decode(u: &mut Unstructured<'_>) -> Result<Plan> {
    let clients = u.int_in_range(2..=CLIENTS_MAX)?;
    let mut plan = Plan { clients: vec![Vec::new(); clients], faults: Vec::new() };
    if u.ratio(1, 2)? {
        for _ in 0..u.int_in_range(1..=4)? {
            let at = ms(u, 3_000)?;
            plan.faults.push((at, fault(u)?));
        }
    }
    while !u.is_empty() {
        let client = u.int_in_range(0..=clients - 1)?;
        if plan.clients[client].len() >= ACTS_MAX {
            break;
        }
        plan.clients[client].push(act(u)?);
    }
    Ok(plan)
}

fn act(u: &mut Unstructured<'_>) -> Result<Act> {
    let key = u.int_in_range(0..=KEYS.len() - 1)?;
    let of = usize::from(u.arbitrary::<u8>()?.leading_zeros() as u8 / 3);
    Ok(match u.int_in_range(0..=15)? {
        0..=7 => Act::Lock { key, lease: lease(u)?, wait: wait(u)? },
        8 => Act::Dropped { key, wait: wait(u)?, after: ms(u, 1_000)? },
        9..=11 => Act::Unlock { of },
        12 => Act::Extend { of, lease: lease(u)? },
        _ => Act::Sleep(ms(u, 1_000)?),
    })
}

fn ms(u: &mut Unstructured<'_>, most: u64) -> Result<Duration> {
    Ok(Duration::from_millis(u.int_in_range(0..=most)?))
}

fn lease(u: &mut Unstructured<'_>) -> Result<Duration> {
    Ok(Duration::from_millis(u.int_in_range(3..=3_000)?))
}

fn wait(u: &mut Unstructured<'_>) -> Result<Duration> {
    if u.ratio(1, 4)? { Ok(Duration::ZERO) } else { ms(u, 3_000) }
}

fn fault(u: &mut Unstructured<'_>) -> Result<Fault> {
    let (one, other) = (u.int_in_range(0..=2)?, u.int_in_range(0..=2)?);
    Ok(match u.int_in_range(0..=7)? {
        0 => Fault::Isolate(one),
        1 => Fault::Cut(one, other),
        2 => Fault::Partition(one, other),
        3 => Fault::Heal,
        _ => Fault::Delay(ms(u, 200)?),
    })
}

/// Every call, and those with an illegal outcome.
#[derive(Default)]
pub(super) struct Record {
    operations: Vec<Operation>,
    /// The error of a call that ended too late, or with an outcome that no call of its kind has.
    illegal: Vec<String>,
    /// Calls that ended as only faults explain.
    unserved: Vec<String>,
}

/// Checks all calls by the history checker; `faulty` where frames were dropped or delayed.
pub(super) fn check_record(record: Record, faulty: bool) -> Result<(), String> {
    let unserved = if faulty { &[][..] } else { &record.unserved[..] };
    if let Some(illegal) = record.illegal.iter().chain(unserved).next() {
        return Err(illegal.clone());
    }
    // One clock for all: deadlines are exact.
    let drift = Drift::from_ppm(0).expect("no drift is a drift");
    let settings = Settings { drift, ..Settings::default() };
    let history = History::new(record.operations).map_err(|malformed| malformed.to_string())?;
    let report = check(&history, &[ModelKind::Fenced, ModelKind::Leased], &settings);
    if report.passed() { Ok(()) } else { Err(format!("{report}\nin\n{history:#?}")) }
}

/// Runs all clients at once, heals, and checks that nothing is left.
///
/// # Panics
///
/// When something is left in the end, or a key is not free.
pub(super) async fn run(backend: Backend, plan: Plan) -> Record {
    let record = Arc::new(Mutex::new(Record::default()));
    let client = |number: usize| Client {
        number: u32::try_from(number).expect("a few clients"),
        handle: backend.handle(number).clone(),
        clock: backend.clock.clone(),
        locks: Vec::new(),
        record: record.clone(),
    };
    let mut clients = Vec::new();
    for (number, acts) in plan.clients.into_iter().enumerate() {
        clients.push(tokio::spawn(client(number).run(acts)));
    }
    let (network, names) = (backend.faults.clone(), backend.names.clone());
    let faults = tokio::spawn(async move {
        for (after, fault) in plan.faults {
            sleep(after).await;
            let name = |number: usize| &names[number % names.len()];
            match fault {
                Fault::Delay(delay) => network.set_delay(delay),
                Fault::Isolate(one) => network.isolate(name(one)),
                Fault::Cut(one, other) => network.cut(name(one), name(other)),
                Fault::Partition(one, other) => {
                    network.cut(name(one), name(other));
                    network.cut(name(other), name(one));
                }
                Fault::Heal => network.heal(),
            }
        }
    });
    for client in clients {
        client.await.expect("a client does not panic");
    }
    faults.abort();
    backend.faults.heal();
    backend.faults.set_delay(Duration::ZERO);
    // A leader is found, and every withdrawal arrives.
    sleep(Duration::from_secs(3)).await;
    backend.settle().await;
    for (number, key) in KEYS.iter().enumerate() {
        let mut last = client(number);
        last.lock(key, Duration::from_secs(1), Duration::ZERO, None).await;
        let outcome = |record: &Record| record.operations.last().map(ToString::to_string);
        assert_eq!(last.locks.len(), 1, "{key} is free in the end: {:?}", outcome(&last.record()));
        last.unlock(0).await;
    }
    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *record)
}

struct Client {
    number: u32,
    handle: Arc<dyn KeyedMutex>,
    clock: Arc<dyn Clock>,
    locks: Vec<Lock>,
    record: Arc<Mutex<Record>>,
}

impl Client {
    async fn run(mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Lock { key, lease, wait } => self.lock(KEYS[key], lease, wait, None).await,
                Act::Dropped { key, wait, after } => {
                    self.lock(KEYS[key], Duration::from_secs(2), wait, Some(after)).await;
                }
                Act::Unlock { of } => self.unlock(of).await,
                Act::Extend { of, lease } => self.extend(of, lease).await,
                Act::Sleep(pause) => sleep(pause).await,
            }
        }
    }

    async fn lock(
        &mut self,
        key: &str,
        lease: Duration,
        wait: Duration,
        dropped: Option<Duration>,
    ) {
        let options = LockOptions::default().duration(lease).max_wait(wait);
        let invoked = self.now();
        let call = Call::Lock { duration: lease, max_wait: Some(wait) };
        let locking = self.handle.lock(key, options);
        let locked = timeout(dropped.unwrap_or(Duration::MAX / 4), locking).await;
        let (nonce, outcome) = match &locked {
            Ok(Ok(lock)) => (Some(lock.nonce()), Outcome::granted(lock)),
            Ok(Err(error)) => (None, self.failed(call, invoked, error)),
            Err(_) => (None, Outcome::Unknown),
        };
        self.note(key, nonce, call, invoked, outcome);
        self.locks.extend(locked.ok().and_then(Result::ok));
    }

    async fn unlock(&mut self, of: usize) {
        let Some(lock) = self.latest(of).cloned() else { return };
        let invoked = self.now();
        let unlocked = self.handle.unlock(&lock).await;
        let failed = unlocked.err().map(|error| self.failed(Call::Unlock, invoked, &error));
        let outcome = failed.unwrap_or(Outcome::Done);
        self.note(lock.key(), Some(lock.nonce()), Call::Unlock, invoked, outcome);
    }

    async fn extend(&mut self, of: usize, duration: Duration) {
        let Some(lock) = self.latest(of).cloned() else { return };
        let (call, invoked) = (Call::Extend { duration }, self.now());
        let outcome = match self.handle.extend(&lock, duration).await {
            Ok(extended) => {
                let outcome = Outcome::extended(&extended);
                let at = self.locks.len() - 1 - of;
                self.locks[at] = extended;
                outcome
            }
            Err(error) => self.failed(call, invoked, &error),
        };
        self.note(lock.key(), Some(lock.nonce()), call, invoked, outcome);
    }

    /// The outcome of an error in a history. Checks that this call may end with it, and so late.
    fn failed(&self, call: Call, invoked: Duration, error: &Error) -> Outcome {
        let took = self.now() - invoked;
        let limit = match call {
            Call::Lock { max_wait: Some(wait), .. } if !wait.is_zero() => wait,
            _ => REQUEST_TIMEOUT,
        };
        let text = format!("client {}: {call} ended after {took:?}: {error}", self.number);
        let mut record = self.record();
        match error {
            _ if took > limit + SLACK => record.illegal.push(text),
            Error::TimedOut(_) | Error::Held(_) if call.is_lock() => {}
            Error::NotHolder | Error::Expired if !call.is_lock() => {}
            Error::Unavailable { .. } | Error::Unknown => record.unserved.push(text),
            _ => record.illegal.push(text),
        }
        call.failed(error)
    }

    fn note(
        &self,
        key: &str,
        nonce: Option<Nonce>,
        call: Call,
        invoked: Duration,
        outcome: Outcome,
    ) {
        let completed = Some(self.now());
        let mut record = self.record();
        // A LOCK without a grant has not shown its nonce: any that no other call has will do.
        let fresh = Nonce::from_u128(record.operations.len() as u128);
        record.operations.push(Operation {
            client: self.number,
            key: key.into(),
            nonce: nonce.unwrap_or(fresh),
            call,
            invoked,
            queued: None,
            completed,
            outcome,
        });
    }

    fn latest(&self, of: usize) -> Option<&Lock> {
        self.locks.len().checked_sub(1 + of).map(|at| &self.locks[at])
    }

    fn now(&self) -> Duration {
        self.clock.now().since_origin()
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
