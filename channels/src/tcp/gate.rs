//! Connections before authentication: the limits, and the log of refusals.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// The most unauthenticated connections from addresses that are not a peer's.
const UNKNOWN_MAX: usize = 128;
/// How many of them one address may have.
const PER_ADDRESS_MAX: usize = 8;
/// How often one reason is logged: after the first pause, which doubles up to the second while the
/// reason recurs.
const LOG_EVERY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3_600));
/// How many different reasons are kept: some contain text of a stranger.
const REASONS_MAX: usize = 32;

/// The slots of connections before authentication. A full gate evicts the oldest connection, so
/// that connections that send nothing never keep a peer out.
#[derive(Default)]
pub(super) struct Gate {
    slots: Mutex<Slots>,
    logged: Mutex<Logged>,
}

#[derive(Default)]
struct Slots {
    known: BTreeSet<IpAddr>,
    arrivals: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    address: IpAddr,
    evicted: Arc<Notify>,
}

/// A connection's slot, which is free again when this is dropped.
pub(super) struct Slot {
    gate: Arc<Gate>,
    number: u64,
    evicted: Arc<Notify>,
}

#[derive(Default)]
struct Logged {
    /// When each reason may be logged again, and the pause before that.
    recent: BTreeMap<String, (Instant, Duration)>,
    suppressed: u64,
}

impl Gate {
    /// Sets the addresses of peers, whose connections evict only those of the same address.
    pub(super) fn set_known(&self, known: BTreeSet<IpAddr>) {
        self.lock().known = known;
    }

    /// Gives a slot to a connection of this address, and evicts another if there are too many.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Slot {
        let mut slots = self.lock();
        if let Some(number) = slots.to_evict(address)
            && let Some(oldest) = slots.waiting.remove(&number)
        {
            oldest.evicted.notify_one();
        }
        slots.arrivals += 1;
        let (number, evicted) = (slots.arrivals, Arc::new(Notify::new()));
        slots.waiting.insert(number, Waiting { address, evicted: evicted.clone() });
        Slot { gate: self.clone(), number, evicted }
    }

    /// Whether to log a refusal for this reason, and how many others were suppressed.
    pub(super) fn logs(&self, reason: &str) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // A reason that has not recurred for its pause starts again at the first pause.
        logged.recent.retain(|_, (next, pause)| now < *next + *pause);
        let pause = match logged.recent.get(reason) {
            Some((next, pause)) if *next <= now => Some((*pause * 2).min(LOG_EVERY.1)),
            None if logged.recent.len() < REASONS_MAX => Some(LOG_EVERY.0),
            _ => None,
        };
        let Some(pause) = pause else {
            logged.suppressed += 1;
            return None;
        };
        logged.recent.insert(reason.to_owned(), (now + pause, pause));
        Some(std::mem::take(&mut logged.suppressed))
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn to_evict(&self, address: IpAddr) -> Option<u64> {
        let of = |same: &dyn Fn(IpAddr) -> bool, most: usize| {
            let mut numbers =
                self.waiting.iter().filter(|(_, waiting)| same(waiting.address)).map(|(n, _)| *n);
            let oldest = numbers.next()?;
            (numbers.count() + 1 >= most).then_some(oldest)
        };
        of(&|other| other == address, PER_ADDRESS_MAX).or_else(|| {
            if self.known.contains(&address) {
                return None;
            }
            of(&|other| !self.known.contains(&other), UNKNOWN_MAX)
        })
    }
}

impl Slot {
    /// Completes when the slot is given to another connection.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gate.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    fn evicted(slots: &[Slot]) -> Vec<usize> {
        let evicted = |slot: &&Slot| slot.evicted().now_or_never().is_some();
        slots.iter().enumerate().filter(|(_, slot)| evicted(slot)).map(|(at, _)| at).collect()
    }

    #[test]
    fn ninth_of_an_address_evicts_its_oldest() {
        let gate = Arc::new(Gate::default());
        let other = gate.enter(address(2));
        let mut slots: Vec<Slot> = (0..8).map(|_| gate.enter(address(1))).collect();
        assert_eq!(evicted(&slots), []);
        slots.push(gate.enter(address(1)));
        assert_eq!(evicted(&slots), [0]);
        assert_eq!(evicted(&[other]), []);
        drop(slots);
        assert!(gate.lock().waiting.is_empty());
    }

    #[test]
    fn strangers_evict_strangers_and_no_peer() {
        let gate = Arc::new(Gate::default());
        gate.set_known([address(1)].into());
        let peer = gate.enter(address(1));
        let strangers: Vec<Slot> = (0..128).map(|at| gate.enter(address(2 + at / 8))).collect();
        let more = gate.enter(address(1));
        assert_eq!(evicted(&strangers), []);
        let last = gate.enter(address(99));
        assert_eq!(evicted(&strangers), [0]);
        assert_eq!(gate.lock().waiting.len(), 130);
        assert_eq!(evicted(&[peer, more, last]), []);
    }

    #[tokio::test(start_paused = true)]
    async fn recurring_reason_is_logged_ever_less_often() {
        let gate = Gate::default();
        let mut logged = Vec::new();
        for second in 0..3 * 3_600 {
            if gate.logs("a").is_some() {
                logged.push(second);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged[..5], [0, 10, 30, 70, 150]);
        assert_eq!(logged[8..], [2_550, 5_110, 8_710], "an hour at most");
        // After two hours without it.
        tokio::time::advance(Duration::from_secs(7_200)).await;
        assert!(gate.logs("a").is_some());
        tokio::time::advance(LOG_EVERY.0).await;
        assert!(gate.logs("a").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_logged_once_in_ten_seconds() {
        let gate = Gate::default();
        assert_eq!(gate.logs("a"), Some(0));
        for _ in 0..3 {
            assert_eq!(gate.logs("a"), None);
        }
        assert_eq!(gate.logs("b"), Some(3));
        tokio::time::advance(2 * LOG_EVERY.0).await;
        for other in 0..REASONS_MAX {
            assert_eq!(gate.logs(&other.to_string()), Some(0));
        }
        assert_eq!(gate.logs("a"), None, "too many reasons");
    }
}
