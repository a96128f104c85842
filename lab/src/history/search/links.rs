//! A linked list of steps, from which a search removes and restores entries.

/// A list of numbers in order, from which any can be taken out and put back in reverse.
pub(super) struct Links {
    next: Vec<usize>,
    previous: Vec<usize>,
}

impl Links {
    /// A list of those numbers of `0..len` that it contains. Place 0 is the list's own; number `n`
    /// has place `n + 1`.
    pub(super) fn new(len: usize, contains: impl Fn(usize) -> bool) -> Self {
        let mut links = Self { next: vec![0; len + 1], previous: vec![0; len + 1] };
        let mut last = 0;
        for place in (1..=len).filter(|place| contains(place - 1)) {
            (links.next[last], links.previous[place]) = (place, last);
            last = place;
        }
        (links.next[last], links.previous[0]) = (0, last);
        links
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.next[0].checked_sub(1)
    }

    pub(super) fn after(&self, number: usize) -> Option<usize> {
        self.next[number + 1].checked_sub(1)
    }

    pub(super) fn take_out(&mut self, number: usize) {
        let (previous, next) = (self.previous[number + 1], self.next[number + 1]);
        (self.next[previous], self.previous[next]) = (next, previous);
    }

    pub(super) fn put_back(&mut self, number: usize) {
        let (previous, next) = (self.previous[number + 1], self.next[number + 1]);
        (self.next[previous], self.previous[next]) = (number + 1, number + 1);
    }
}
