//! The queue of future events.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{event::Event, random::mixed};

/// Future events in the order of virtual time. The seed decides the order of simultaneous events.
pub(super) struct Agenda {
    seed: u64,
    scheduled: u64,
    /// The times of all events but wakings, and the places in `events`: what moves in the heap
    /// is small.
    heap: BinaryHeap<Reverse<(When, u32)>>,
    events: Vec<Option<Event>>,
    free: Vec<u32>,
    /// The next waking of each slot's process: each of its turns sets another time, and only the
    /// last one counts.
    wakes: Vec<Option<When>>,
}

/// A virtual time, and a number for the order among events of that time: no two have the same, as
/// mixing loses nothing.
type When = (u64, u64);

impl Agenda {
    pub(super) fn new(seed: u64, slots: usize) -> Self {
        Self {
            seed,
            scheduled: 0,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            wakes: vec![None; slots],
        }
    }

    fn when(&mut self, at: u64) -> When {
        self.scheduled += 1;
        (at, mixed(self.seed ^ mixed(self.scheduled)))
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        let when = self.when(at);
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            u32::try_from(self.events.len() - 1).expect("events fit the memory")
        });
        self.events[place as usize] = Some(event);
        self.heap.push(Reverse((when, place)));
    }

    /// Wakes the process of `slot` at `at`, instead of at the time set before.
    pub(super) fn set_wake(&mut self, slot: usize, at: u64) {
        self.wakes[slot] = Some(self.when(at));
    }

    /// The process of `slot` has ended.
    pub(super) fn unset_wake(&mut self, slot: usize) {
        self.wakes[slot] = None;
    }

    /// Takes the next event, with its time, if it comes by `end`.
    pub(super) fn pop(&mut self, end: u64) -> Option<(u64, Event)> {
        let wakes = self.wakes.iter().enumerate();
        let wake = wakes.filter_map(|(slot, when)| Some(((*when)?, slot))).min();
        let first = self.heap.peek().map(|Reverse((when, _))| *when);
        if let Some((when, slot)) = wake
            && first.is_none_or(|first| when < first)
        {
            if when.0 > end {
                return None;
            }
            self.wakes[slot] = None;
            return Some((when.0, Event::Wake { slot }));
        }
        if first?.0 > end {
            return None;
        }
        let Reverse(((at, _), place)) = self.heap.pop()?;
        self.free.push(place);
        let event = self.events[place as usize].take().expect("a place in the heap is taken");
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_with_latest_wake_up() {
        let mut agenda = Agenda::new(7, 2);
        agenda.set_wake(0, 20);
        agenda.schedule(30, Event::Start { slot: 1 });
        agenda.schedule(10, Event::Start { slot: 0 });
        agenda.set_wake(0, 25);
        agenda.set_wake(1, 15);
        agenda.unset_wake(1);
        let times = |agenda: &mut Agenda, end| agenda.pop(end).map(|(at, _)| at);
        assert_eq!(times(&mut agenda, 9), None);
        assert_eq!(times(&mut agenda, 10), Some(10));
        assert_eq!(times(&mut agenda, 24), None);
        assert!(matches!(agenda.pop(99), Some((25, Event::Wake { slot: 0 }))));
        assert_eq!(times(&mut agenda, 99), Some(30));
        assert_eq!(times(&mut agenda, 99), None);
    }
}
