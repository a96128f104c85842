//! What is due, by time.

use std::collections::{BTreeMap, VecDeque};

/// Items by the time at which something happens to them; what tells those of one time apart is a part of the time.
///
/// Mostly what comes is due later than all that is there, since most ask for the same span, and mostly
/// what goes came early. So they stand in a line, in which entering at the end and leaving at the front
/// touch nothing else. What is due before many that are there already stands in a tree beside it.
#[derive(Clone, Debug)]
pub(crate) struct Timeline<W, T> {
    /// Ascending. `None` has left; neither end has.
    line: VecDeque<(W, Option<T>)>,
    /// How many of the line have left.
    left: usize,
    others: BTreeMap<W, T>,
}

/// Before how many of the line's last an item may enter: fewer are moved sooner than a tree is searched, and
/// a few that stay for long do not keep the others out.
const MOVED_MAX: usize = 16;

/// For how many items the line keeps room.
const ROOM_KEPT: usize = 1024;

impl<W, T> Default for Timeline<W, T> {
    fn default() -> Self {
        Self { line: VecDeque::new(), left: 0, others: BTreeMap::new() }
    }
}

impl<W: Copy + Ord, T: Copy + Ord> Timeline<W, T> {
    /// Enters an item. One that has exactly this time is replaced: only snapshots that are refused have such.
    pub(crate) fn insert(&mut self, when: W, item: T) {
        match self.line.back() {
            Some((last, _)) if *last >= when => self.insert_before(when, item),
            _ => self.line.push_back((when, Some(item))),
        }
    }

    fn insert_before(&mut self, when: W, item: T) {
        let last = self.line.iter().rev().take(MOVED_MAX + 1);
        let later = last.take_while(|(other, _)| *other > when).count();
        let place = self.line.len() - later;
        if later > MOVED_MAX {
            self.others.insert(when, item);
        } else if let Some(before) = place.checked_sub(1)
            && self.line[before].0 == when
        {
            if self.line[before].1.replace(item).is_none() {
                // It has been here before.
                self.left -= 1;
            }
        } else {
            self.line.insert(place, (when, Some(item)));
        }
    }

    /// Takes the item of this time out, which is there.
    pub(crate) fn remove(&mut self, when: W) {
        if self.line.front().is_some_and(|(first, _)| *first == when) {
            self.line.pop_front();
            return self.trim();
        }
        match self.line.binary_search_by_key(&when, |(other, _)| *other) {
            Ok(place) if self.line[place].1.is_some() => {
                self.line[place].1 = None;
                self.left += 1;
                self.trim();
            }
            _ => {
                let removed = self.others.remove(&when);
                debug_assert!(removed.is_some(), "who goes was there");
            }
        }
    }

    /// Takes those that have left out of the ends of the line, and out of all of it where they are the most.
    fn trim(&mut self) {
        if self.left > 0 {
            self.close_gaps();
        }
        let room = self.line.capacity();
        if room > ROOM_KEPT && self.line.len() < room / 4 {
            self.line.shrink_to(ROOM_KEPT.max(self.line.len() * 2));
        }
    }

    fn close_gaps(&mut self) {
        while let Some((_, None)) = self.line.front() {
            self.line.pop_front();
            self.left -= 1;
        }
        while let Some((_, None)) = self.line.back() {
            self.line.pop_back();
            self.left -= 1;
        }
        if self.left > self.line.len() / 2 {
            self.line.retain(|(_, item)| item.is_some());
            self.left = 0;
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.line.len() - self.left + self.others.len()
    }

    /// The first that is due, and when.
    pub(crate) fn first(&self) -> Option<(W, T)> {
        let of_line = self.line.front().map(|(when, item)| (*when, item.expect(ENDS)));
        let Some((when, item)) = self.others.first_key_value() else { return of_line };
        of_line.into_iter().chain([(*when, *item)]).min()
    }

    /// All, in order.
    pub(crate) fn all(&self) -> BTreeMap<W, T> {
        let of_line = self.line.iter().filter_map(|(when, item)| Some((*when, (*item)?)));
        of_line.chain(self.others.iter().map(|(when, item)| (*when, *item))).collect()
    }

    /// Loses count of those that have left, so that the check fails.
    #[cfg(test)]
    pub(crate) fn miscount(&mut self) {
        self.left += 1;
    }

    /// Asserts that the line is one.
    pub(crate) fn check(&self) {
        assert!(self.line.iter().is_sorted_by(|(one, _), (two, _)| one < two), "times ascend");
        let left = self.line.iter().filter(|(_, item)| item.is_none()).count();
        assert_eq!(left, self.left, "those that have left are counted");
        assert!(left <= self.line.len() / 2, "and are not the most");
        let ends = [self.line.front(), self.line.back()];
        assert!(ends.into_iter().flatten().all(|(_, item)| item.is_some()), "{ENDS}");
    }
}

const ENDS: &str = "what has left stands at neither end";

impl<W: Copy + Ord, T: Copy + Ord> PartialEq for Timeline<W, T> {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl<W: Copy + Ord, T: Copy + Ord> Eq for Timeline<W, T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A timeline on which an item is due at each of these times.
    fn of(times: impl IntoIterator<Item = u64>) -> Timeline<u64, u64> {
        let mut timeline = Timeline::default();
        for time in times {
            timeline.insert(time, time * 10);
            timeline.check();
        }
        timeline
    }

    fn sizes(timeline: &Timeline<u64, u64>) -> (usize, usize, usize) {
        (timeline.line.len(), timeline.left, timeline.others.len())
    }

    proptest! {
        /// By steps that enter what is not there and take out what is, near the end and far from it.
        #[test]
        fn it_does_what_a_tree_does(steps in prop::collection::vec((0..60_u64, 0..200_u64), 0..400)) {
            let (mut timeline, mut model) = (Timeline::default(), BTreeMap::new());
            for (step, (from_end, anywhere)) in steps.into_iter().enumerate() {
                let near = (step as u64 + 59 - from_end) / 2;
                let when = if from_end % 4 == 0 { anywhere } else { near };
                match model.remove(&when) {
                    Some(_) => timeline.remove(when),
                    None => {
                        model.insert(when, step);
                        timeline.insert(when, step);
                    }
                }
                timeline.check();
                prop_assert_eq!(timeline.len(), model.len());
                let first = model.first_key_value().map(|(when, item)| (*when, *item));
                prop_assert_eq!(timeline.first(), first);
            }
            prop_assert_eq!(timeline.all(), model);
        }
    }

    #[test]
    fn sixteen_may_be_due_later_and_what_comes_before_more_stands_in_the_tree() {
        let mut timeline = of((0..17).map(|ms| 100 - ms));
        assert_eq!(sizes(&timeline), (17, 0, 0));
        timeline.insert(1, 7);
        assert_eq!((sizes(&timeline), timeline.first().unwrap().0), ((17, 0, 1), 1));
        timeline.remove(1);
        assert_eq!((sizes(&timeline), timeline.first().unwrap().0), ((17, 0, 0), 84));
    }

    #[test]
    fn who_comes_back_to_its_time_has_its_place_again() {
        let mut timeline = of(0..30);
        timeline.remove(20);
        assert_eq!(sizes(&timeline), (30, 1, 0));
        timeline.insert(20, 7);
        assert_eq!(sizes(&timeline), (30, 0, 0));
        timeline.remove(5);
        timeline.insert(5, 7);
        assert_eq!(sizes(&timeline), (30, 1, 1), "too far from the end");
        timeline.remove(5);
        assert_eq!(sizes(&timeline), (30, 1, 0));
    }

    #[test]
    fn one_of_the_same_time_is_replaced_wherever_it_stands() {
        let mut timeline = of((0..20).map(|time| 2 * time));
        timeline.insert(1, 1);
        for time in [38, 20, 1] {
            timeline.insert(time, 7);
            timeline.check();
            assert_eq!((sizes(&timeline), timeline.all()[&time]), ((20, 0, 1), 7));
        }
    }

    #[test]
    fn those_that_have_left_go_from_the_ends_and_where_they_are_the_most() {
        let mut timeline = of(0..20);
        for (gone, expected) in [(1, 20), (0, 18), (18, 18), (19, 16)] {
            timeline.remove(gone);
            timeline.check();
            assert_eq!(timeline.line.len(), expected, "after {gone}");
        }
        for gone in 3..11 {
            timeline.remove(gone);
        }
        assert_eq!(sizes(&timeline), (16, 8, 0), "as many have left as are there");
        timeline.remove(11);
        assert_eq!(sizes(&timeline), (7, 0, 0));
    }

    #[test]
    fn memory_goes_with_those_who_needed_it() {
        let mut timeline = of(0..10_000);
        let most = timeline.line.capacity();
        let kept = most as u64 / 4;
        (0..10_000 - kept).for_each(|gone| timeline.remove(gone));
        assert_eq!(timeline.line.capacity(), most, "a quarter is used");
        timeline.remove(10_000 - kept);
        assert_eq!(timeline.line.capacity() as u64, 2 * (kept - 1), "and now it is not");
        (10_001 - kept..9_900).for_each(|gone| timeline.remove(gone));
        assert_eq!(timeline.line.capacity(), ROOM_KEPT);
        timeline.check();
    }

    #[test]
    fn a_broken_timeline_does_not_pass_the_check() {
        type Break = fn(&mut Timeline<u64, u64>);
        let breaks: [Break; 4] = [
            |timeline| timeline.line.swap(1, 2),
            |timeline| timeline.left += 1,
            |timeline| timeline.line[0].1 = None,
            |timeline| {
                timeline.line.range_mut(1..20).for_each(|(_, slot)| *slot = None);
                timeline.left = 19;
            },
        ];
        for (place, broken) in breaks.into_iter().enumerate() {
            let mut timeline = of(0..30);
            broken(&mut timeline);
            assert!(std::panic::catch_unwind(|| timeline.check()).is_err(), "break {place} passes");
        }
    }
}
