use std::sync::Arc;

use super::signal::Signal;
use crate::{Instant, Nonce};

/// For how many acquisitions room is kept when nobody waits.
const ROOM_KEPT: usize = 1024;

/// The calls that wait, for each acquisition that has not ended. The table carries the number under which they
/// are, as that of the LOCK, and so they are found without a search. Who sees the grant in time takes
/// the lock without the table, so that the entry stays until the lock ends.
///
/// Numbers are given anew, also those of LOCKs that never waited: an entry is only that of its nonce. Memory
/// goes when nobody waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    entries: Vec<Option<Calls>>,
    free: Vec<u32>,
}

/// The calls that wait for one acquisition; several may ask with one nonce.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) nonce: Nonce,
    /// A call that took the lock without the table stays counted, so that none of the others withdraws
    /// it.
    pub(super) count: usize,
    /// A call that asked the table has returned the lock: the others must not withdraw it.
    pub(super) taken: bool,
    /// When the last of them looks at the table although nobody tells it to.
    pub(super) looks_at: Instant,
    pub(super) signal: Arc<Signal>,
}

impl Waiting {
    /// A number that nothing is under, until it is [inserted](Self::insert) or [given back](Self::give_back).
    pub(super) fn reserve(&mut self) -> u64 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("so many calls fit into no memory")
        });
        number.into()
    }

    pub(super) fn give_back(&mut self, reserved: u64) {
        self.free.push(u32::try_from(reserved).expect("it was reserved"));
        if self.is_empty() && self.entries.len() > ROOM_KEPT {
            *self = Self::default();
        }
    }

    pub(super) fn insert(&mut self, reserved: u64, calls: Calls) {
        let place = usize::try_from(reserved).expect("it was reserved");
        let before = self.entries[place].replace(calls);
        assert!(before.is_none(), "a number that was reserved is nobody else's");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    pub(super) fn get(&self, number: u64, nonce: Nonce) -> Option<&Calls> {
        let entry = self.entries.get(usize::try_from(number).ok()?)?.as_ref();
        entry.filter(|calls| calls.nonce == nonce)
    }

    pub(super) fn get_mut(&mut self, number: u64, nonce: Nonce) -> Option<&mut Calls> {
        let entry = self.entries.get_mut(usize::try_from(number).ok()?)?.as_mut();
        entry.filter(|calls| calls.nonce == nonce)
    }

    pub(super) fn remove(&mut self, number: u64, nonce: Nonce) -> Option<Calls> {
        let entry = self.entries.get_mut(usize::try_from(number).ok()?)?;
        let calls = entry.take_if(|calls| calls.nonce == nonce)?;
        self.give_back(number);
        Some(calls)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Calls> {
        self.entries.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(nonce: u128) -> Calls {
        let nonce = Nonce::from_u128(nonce);
        let (looks_at, signal) = (Instant::default(), Arc::default());
        Calls { nonce, count: 1, taken: false, looks_at, signal }
    }

    fn is_under(waiting: &mut Waiting, number: u64, nonce: u128) -> bool {
        let nonce = Nonce::from_u128(nonce);
        let found = waiting.get(number, nonce).map(|calls| calls.nonce);
        assert_eq!(waiting.get_mut(number, nonce).map(|calls| calls.nonce), found);
        found.is_some()
    }

    #[test]
    fn an_entry_is_found_by_its_number_and_nonce_alone() {
        let mut waiting = Waiting::default();
        let (one, two) = (waiting.reserve(), waiting.reserve());
        assert!(!waiting.is_empty(), "a number is out");
        waiting.insert(two, calls(2));
        waiting.insert(one, calls(1));
        assert_eq!(waiting.all().count(), 2);
        for (number, nonce, is) in
            [(one, 1, true), (two, 2, true), (one, 2, false), (two, 1, false), (9, 1, false)]
        {
            assert_eq!(is_under(&mut waiting, number, nonce), is, "{number} {nonce}");
        }
        let nonce = Nonce::from_u128(1);
        assert!(waiting.get(u64::MAX, nonce).is_none());
        assert!(waiting.remove(two, nonce).is_none());
        assert!(waiting.remove(9, nonce).is_none());
        assert!(waiting.remove(one, nonce).is_some());
        assert!(waiting.remove(one, nonce).is_none());
        assert!(!is_under(&mut waiting, one, 1));
        assert_eq!(waiting.reserve(), one, "numbers are given anew");
        waiting.give_back(one);
        assert!(waiting.remove(two, Nonce::from_u128(2)).is_some());
        assert!(waiting.is_empty());
    }

    #[test]
    fn memory_goes_when_nobody_waits() {
        let mut waiting = Waiting::default();
        let fill = |waiting: &mut Waiting, count: u64| {
            for number in 0..count {
                assert_eq!(waiting.reserve(), number);
            }
            (0..count).rev().for_each(|number| waiting.give_back(number));
        };
        fill(&mut waiting, 1024);
        assert!(waiting.entries.capacity() >= 1024);
        fill(&mut waiting, 1025);
        assert_eq!((waiting.entries.capacity(), waiting.free.capacity()), (0, 0));
    }
}
