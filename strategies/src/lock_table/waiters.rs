//! Who waits: each in the queue of its key, and among the waiters of its process.

use std::{
    collections::BTreeMap,
    iter,
    ops::{Index, IndexMut},
};

use super::{
    ProcessId,
    claim::Waiter,
    slab::{Slab, Slot},
};

/// All waiters of a table. Each is in memory once, and linked with its neighbours in both of its lines, so that
/// joining and leaving them costs the same however long they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiters {
    slab: Slab<Entry>,
    /// Of each process that has any.
    processes: BTreeMap<ProcessId, Line>,
}

#[derive(Clone, Debug)]
struct Entry {
    waiter: Waiter,
    row: Slot,
    /// By [`Kind`].
    links: [Links; 2],
}

/// The neighbours in a line.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    before: Option<Slot>,
    behind: Option<Slot>,
}

/// What a line is of.
#[derive(Clone, Copy)]
enum Kind {
    Key,
    Process,
}

/// The two ends of a line, and how many stand in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    first: Option<Slot>,
    last: Option<Slot>,
    len: u32,
}

impl Line {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn first(&self) -> Option<Slot> {
        self.first
    }
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds one at the end of a queue, which is that of `row`.
    pub(super) fn push(&mut self, queue: &mut Line, row: Slot, waiter: Waiter) -> Slot {
        let slot = self.slab.insert(Entry { waiter, row, links: [Links::default(); 2] });
        append(&mut self.slab, queue, slot, Kind::Key);
        self.join_process(slot);
        slot
    }

    /// Takes one out for good.
    pub(super) fn remove(&mut self, queue: &mut Line, slot: Slot) -> Waiter {
        unlink(&mut self.slab, queue, slot, Kind::Key);
        self.leave_process(slot);
        self.slab.remove(slot).waiter
    }

    /// Changes a waiter, of which the process may be another then. It keeps its place in the queue.
    pub(super) fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Waiter)) {
        self.leave_process(slot);
        change(&mut self[slot]);
        self.join_process(slot);
    }

    /// Whose queue it is in.
    pub(super) fn row(&self, slot: Slot) -> Slot {
        self.slab[slot].row
    }

    /// A queue from its head on.
    pub(super) fn queue(&self, line: &Line) -> impl Iterator<Item = (Slot, &Waiter)> {
        self.line(line, Kind::Key)
    }

    /// The processes that have any, in order.
    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.processes.keys().copied()
    }

    /// Those of a process, in the order of their places, which is not that of its line where one of them
    /// has changed.
    pub(super) fn of(&self, process: ProcessId) -> Vec<(u64, Slot)> {
        let Some(line) = self.processes.get(&process) else { return Vec::new() };
        let all = self.line(line, Kind::Process);
        let mut all: Vec<_> = all.map(|(slot, waiter)| (waiter.claim.place, slot)).collect();
        all.sort_unstable();
        all
    }

    fn line(&self, line: &Line, kind: Kind) -> impl Iterator<Item = (Slot, &Waiter)> {
        let slots =
            iter::successors(line.first, move |slot| self.slab[*slot].links[kind as usize].behind);
        slots.map(|slot| (slot, &self[slot]))
    }

    fn join_process(&mut self, slot: Slot) {
        let line = self.processes.entry(self[slot].claim.process).or_default();
        append(&mut self.slab, line, slot, Kind::Process);
    }

    fn leave_process(&mut self, slot: Slot) {
        let process = self[slot].claim.process;
        let line = self.processes.get_mut(&process).expect("a process that waits has a line");
        unlink(&mut self.slab, line, slot, Kind::Process);
        if line.is_empty() {
            self.processes.remove(&process);
        }
    }

    /// Asserts that the lines say what the waiters say. Of queues those of the rows, each with its row.
    pub(super) fn check<'a>(&self, queues: impl Iterator<Item = (Slot, &'a Line)>) {
        self.slab.check();
        let mut queued = 0;
        for (row, queue) in queues {
            queued += self.check_line(queue, Kind::Key, |entry| entry.row == row);
        }
        assert_eq!(queued, self.len(), "each stands in the queue of its row");
        let mut of_processes = 0;
        for (process, line) in &self.processes {
            assert!(!line.is_empty(), "a process without waiters leaves");
            let is_of = |entry: &Entry| entry.waiter.claim.process == *process;
            of_processes += self.check_line(line, Kind::Process, is_of);
        }
        assert_eq!(of_processes, self.len(), "each stands in the line of its process");
    }

    fn check_line(&self, line: &Line, kind: Kind, belongs: impl Fn(&Entry) -> bool) -> usize {
        let mut before = None;
        let mut len = 0;
        for (slot, _) in self.line(line, kind) {
            let entry = &self.slab[slot];
            assert!(belongs(entry), "a waiter stands in its own lines");
            assert_eq!(entry.links[kind as usize].before, before, "both links agree");
            before = Some(slot);
            len += 1;
        }
        assert_eq!((before, len), (line.last, line.len as usize), "a line has its ends");
        len
    }
}

fn append(slab: &mut Slab<Entry>, line: &mut Line, slot: Slot, kind: Kind) {
    slab[slot].links[kind as usize] = Links { before: line.last, behind: None };
    match line.last.replace(slot) {
        Some(last) => slab[last].links[kind as usize].behind = Some(slot),
        None => line.first = Some(slot),
    }
    line.len += 1;
}

fn unlink(slab: &mut Slab<Entry>, line: &mut Line, slot: Slot, kind: Kind) {
    let Links { before, behind } = slab[slot].links[kind as usize];
    match before {
        Some(before) => slab[before].links[kind as usize].behind = behind,
        None => line.first = behind,
    }
    match behind {
        Some(behind) => slab[behind].links[kind as usize].before = before,
        None => line.last = before,
    }
    line.len -= 1;
}

impl Index<Slot> for Waiters {
    type Output = Waiter;

    fn index(&self, slot: Slot) -> &Waiter {
        &self.slab[slot].waiter
    }
}

impl IndexMut<Slot> for Waiters {
    fn index_mut(&mut self, slot: Slot) -> &mut Waiter {
        &mut self.slab[slot].waiter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Nonce,
        lock_table::{ClusterTime, LockRequest, Wait, claim::Claim, tests::request},
    };

    fn waiter(place: u64, process: u64) -> Waiter {
        let request = LockRequest {
            nonce: Nonce::from_u128(place.into()),
            process: ProcessId(process),
            ..request(1, 1000, Wait::Forever)
        };
        Waiter { claim: Claim::new(place, &request, ClusterTime(0)), deadline: None }
    }

    /// Five of two processes, which take turns, in one queue.
    fn five() -> (Waiters, Line, Vec<Slot>, Slot) {
        let (mut waiters, mut queue) = (Waiters::default(), Line::default());
        let row = Slab::default().insert(());
        let slots = (0..5).map(|place| waiters.push(&mut queue, row, waiter(place, place % 2)));
        let slots = slots.collect();
        (waiters, queue, slots, row)
    }

    fn places(waiters: &Waiters, queue: &Line) -> Vec<u64> {
        waiters.queue(queue).map(|(_, waiter)| waiter.claim.place).collect()
    }

    #[test]
    fn whoever_leaves_leaves_both_lines_and_the_others_keep_their_order() {
        for left in 0..5 {
            let (mut waiters, mut queue, slots, row) = five();
            assert_eq!(waiters.remove(&mut queue, slots[left]).claim.place, left as u64);
            waiters.check([(row, &queue)].into_iter());
            let others = (0..5).filter(|place| *place != left as u64).collect::<Vec<_>>();
            assert_eq!(places(&waiters, &queue), others);
            for process in [0, 1] {
                let of = waiters.of(ProcessId(process)).into_iter().map(|(place, _)| place);
                let expected = others.iter().copied().filter(|place| place % 2 == process);
                assert_eq!(of.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn of_a_process_the_order_is_that_of_places_also_of_one_that_came_from_another() {
        let (mut waiters, queue, slots, row) = five();
        waiters.change(slots[1], |waiter| waiter.claim.process = ProcessId(0));
        waiters.change(slots[3], |waiter| waiter.claim.process = ProcessId(0));
        waiters.check([(row, &queue)].into_iter());
        let of = waiters.of(ProcessId(0)).into_iter().map(|(place, _)| place);
        assert_eq!(of.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(places(&waiters, &queue), [0, 1, 2, 3, 4]);
        assert_eq!(waiters.processes().collect::<Vec<_>>(), [ProcessId(0)]);
        assert!(waiters.of(ProcessId(1)).is_empty());
    }

    #[test]
    fn broken_lines_do_not_pass_the_check() {
        type Break = fn(&mut Waiters, &mut Line, &[Slot]);
        let breaks: [Break; 6] = [
            |_, queue, _| queue.len += 1,
            |_, queue, slots| queue.last = Some(slots[1]),
            |_, queue, slots| queue.first = Some(slots[1]),
            |waiters, _, slots| waiters.slab[slots[2]].links[0].before = None,
            |waiters, _, slots| waiters.slab[slots[2]].links[1].behind = None,
            |waiters, _, _| _ = waiters.processes.insert(ProcessId(7), Line::default()),
        ];
        for (place, broken) in breaks.into_iter().enumerate() {
            let (mut waiters, mut queue, slots, row) = five();
            waiters.check([(row, &queue)].into_iter());
            broken(&mut waiters, &mut queue, &slots);
            let check = || waiters.check([(row, &queue)].into_iter());
            assert!(std::panic::catch_unwind(check).is_err(), "break {place} passes");
        }
    }
}
