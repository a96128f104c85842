use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arbitrary::{Result, Unstructured};
use gaggle_channels::Faults;
use gaggle_strategies::{Clock, KeyedMutex, Lock, LockOptions};
use tokio::time::{sleep, timeout};

use super::{
    backend::Backend,
    rules::{Event, History, What},
    sequential::name,
};

const CLIENTS_MAX: usize = 4;
const ACTS_MAX: usize = 12;
const KEYS: [&str; 2] = ["a", "b"];

/// What each client does, and what happens meanwhile.
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
    Frames(Faults),
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
    Ok(Duration::from_millis(u.int_in_range(1..=3_000)?))
}

fn wait(u: &mut Unstructured<'_>) -> Result<Duration> {
    if u.ratio(1, 4)? { Ok(Duration::ZERO) } else { ms(u, 3_000) }
}

fn fault(u: &mut Unstructured<'_>) -> Result<Fault> {
    let (one, other) = (u.int_in_range(0..=2)?, u.int_in_range(0..=2)?);
    let mut share =
        |most: f64| -> Result<f64> { Ok(f64::from(u.arbitrary::<u8>()?) / 255.0 * most) };
    let faults = Faults {
        loss: share(0.4)?,
        repeat: share(0.4)?,
        reorder: share(1.0)?,
        ..Faults::default()
    };
    Ok(match u.int_in_range(0..=7)? {
        0 => Fault::Isolate(one),
        1 => Fault::Cut(one, other),
        2 => Fault::Partition(one, other),
        3 => Fault::Heal,
        _ => Fault::Frames(Faults { delay: (Duration::ZERO, ms(u, 200)?), ..faults }),
    })
}

/// Runs all clients at once, heals, and sees that nothing is left.
///
/// # Panics
///
/// When something is left in the end, or a key is not free.
pub(super) async fn run(backend: Backend, plan: Plan) -> History {
    let events = Arc::new(Mutex::new(Vec::new()));
    let mut clients = Vec::new();
    for (number, acts) in plan.clients.into_iter().enumerate() {
        let (handle, clock) = (backend.handle(number).clone(), backend.clock.clone());
        let client = Client { number, handle, clock, locks: Vec::new(), events: events.clone() };
        clients.push(tokio::spawn(client.run(acts)));
    }
    let (hub, names) = (backend.hub.clone(), backend.names.clone());
    let faults = tokio::spawn(async move {
        for (after, fault) in plan.faults {
            sleep(after).await;
            let name = |number: usize| &names[number % names.len()];
            match fault {
                Fault::Frames(faults) => hub.set_faults(faults),
                Fault::Isolate(one) => hub.isolate(name(one)),
                Fault::Cut(one, other) => hub.cut(name(one), name(other)),
                Fault::Partition(one, other) => hub.partition(name(one), name(other)),
                Fault::Heal => hub.heal(),
            }
        }
    });
    for client in clients {
        client.await.expect("a client does not panic");
    }
    faults.abort();
    backend.hub.heal();
    backend.hub.set_faults(Faults::default());
    // A leader is found, and every withdrawal arrives.
    sleep(Duration::from_secs(3)).await;
    backend.settle().await;
    for (number, key) in KEYS.iter().enumerate() {
        let (handle, clock) = (backend.handle(number).clone(), backend.clock.clone());
        let mut last = Client { number, handle, clock, locks: Vec::new(), events: events.clone() };
        let lease = Duration::from_secs(1);
        last.lock(key, lease, Duration::ZERO, None).await;
        assert_eq!(last.locks.len(), 1, "{key} is free in the end: {:?}", take(&events).last());
        last.unlock(0).await;
    }
    History { events: take(&events) }
}

fn take(events: &Mutex<Vec<Event>>) -> Vec<Event> {
    events.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

struct Client {
    number: usize,
    handle: Arc<dyn KeyedMutex>,
    clock: Arc<dyn Clock>,
    locks: Vec<Lock>,
    events: Arc<Mutex<Vec<Event>>>,
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
        let invoked = self.clock.now();
        let locking = self.handle.lock(key, options);
        let locked = timeout(dropped.unwrap_or(Duration::MAX / 4), locking).await;
        let (mut nonce, mut granted) = (None, None);
        let outcome = match &locked {
            Ok(Ok(lock)) => {
                nonce = Some(lock.nonce());
                granted = Some((lock.fencing_token(), lock.deadline().expect("a fresh grant")));
                "Ok"
            }
            Ok(Err(error)) => name(error),
            Err(_) => "dropped",
        };
        let returned = self.clock.now();
        let what = What::Lock { wait, granted };
        self.note(Event {
            client: self.number,
            key: key.into(),
            nonce,
            what,
            outcome,
            invoked,
            returned,
        });
        self.locks.extend(locked.ok().and_then(std::result::Result::ok));
    }

    async fn unlock(&mut self, of: usize) {
        let Some(lock) = self.newest(of).cloned() else { return };
        let invoked = self.clock.now();
        let outcome = self.handle.unlock(&lock).await;
        let outcome = outcome.as_ref().map_or_else(name, |()| "Ok");
        let what = What::Unlock { deadline: lock.deadline() };
        self.note_on(&lock, what, outcome, invoked);
    }

    async fn extend(&mut self, of: usize, lease: Duration) {
        let Some(lock) = self.newest(of).cloned() else { return };
        let invoked = self.clock.now();
        let extended = self.handle.extend(&lock, lease).await;
        let outcome = extended.as_ref().map_or_else(name, |_| "Ok");
        let to = extended.as_ref().ok().and_then(Lock::deadline);
        self.note_on(&lock, What::Extend { deadline: lock.deadline(), to }, outcome, invoked);
        if let Ok(extended) = extended {
            let at = self.locks.len() - 1 - of;
            self.locks[at] = extended;
        }
    }

    fn newest(&self, of: usize) -> Option<&Lock> {
        self.locks.len().checked_sub(1 + of).map(|at| &self.locks[at])
    }

    fn note_on(
        &self,
        lock: &Lock,
        what: What,
        outcome: &'static str,
        invoked: gaggle_strategies::Instant,
    ) {
        let (key, nonce) = (lock.key().to_string(), Some(lock.nonce()));
        let returned = self.clock.now();
        self.note(Event { client: self.number, key, nonce, what, outcome, invoked, returned });
    }

    fn note(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}
