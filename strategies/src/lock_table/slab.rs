//! Values that stay in one place each, in memory that goes with the last of its neighbours.

use std::{
    collections::BTreeSet,
    num::NonZeroU32,
    ops::{Index, IndexMut},
};

/// Names a value for as long as it is in its slab, and nothing else: which slot a value got says nothing about
/// the table, and nothing that leaves the table depends on slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(NonZeroU32);

/// Values in blocks of [`BLOCK`]; one that is there is found by its slot.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    blocks: Vec<Block<T>>,
    /// The blocks that have room. The first is filled first, so that the last empty and go.
    roomy: BTreeSet<u32>,
    /// The block that was the last to lose all its values, and keeps their memory for the next.
    spare: Option<u32>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Block<T> {
    values: Vec<Option<T>>,
    /// A bit for each value.
    taken: u16,
}

/// What one value that is left can keep from others: of rows two kilobytes.
const BLOCK: u32 = u16::BITS;

const REFERRED: &str = "a slot that is referred to has its value";

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { blocks: Vec::new(), roomy: BTreeSet::new(), spare: None, len: 0 }
    }
}

impl<T> Slab<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, value: T) -> Slot {
        let number = self.roomy.first().copied().unwrap_or_else(|| {
            let number = u32::try_from(self.blocks.len()).expect(FITS);
            self.blocks.push(Block { values: Vec::new(), taken: 0 });
            self.roomy.insert(number);
            number
        });
        let block = &mut self.blocks[number as usize];
        let bit = block.taken.trailing_ones();
        block.taken |= 1 << bit;
        if block.values.is_empty() {
            block.values = (0..BLOCK).map(|_| None).collect();
        }
        block.values[bit as usize] = Some(value);
        if block.taken == u16::MAX {
            self.roomy.remove(&number);
        }
        self.len += 1;
        Slot::new(number, bit)
    }

    pub(super) fn remove(&mut self, slot: Slot) -> T {
        let (number, bit) = slot.parts();
        let Block { values, taken } = &mut self.blocks[number as usize];
        let value = values[bit as usize].take().expect(REFERRED);
        if *taken == u16::MAX {
            self.roomy.insert(number);
        }
        *taken &= !(1 << bit);
        if *taken == 0
            && let Some(before) = self.spare.replace(number)
            && before != number
        {
            self.give_back(before);
        }
        self.len -= 1;
        value
    }

    /// Frees the memory of a block that has no values (any more), and the blocks at the end that have none.
    fn give_back(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        if block.taken == 0 {
            block.values = Vec::new();
        }
        while self.blocks.last().is_some_and(|block| block.values.is_empty()) {
            self.blocks.pop();
            self.roomy.pop_last();
        }
    }

    /// Asserts that what is known of the blocks is so.
    pub(super) fn check(&self) {
        let mut len = 0;
        for (number, block) in (0..).zip(&self.blocks) {
            let Block { values, taken } = block;
            let bits = |bit: usize| taken >> bit & 1 == 1;
            assert!(values.iter().enumerate().all(|(bit, value)| value.is_some() == bits(bit)));
            assert_eq!(self.roomy.contains(&number), *taken != u16::MAX, "what has room is known");
            assert!(*taken != 0 || values.is_empty() || self.spare == Some(number), "memory goes");
            len += taken.count_ones() as usize;
        }
        assert_eq!(len, self.len, "all are counted");
        assert!(self.roomy.iter().all(|number| (*number as usize) < self.blocks.len()));
    }
}

const FITS: &str = "so many values fit into no memory";

impl Slot {
    fn new(block: u32, bit: u32) -> Self {
        let before = block.checked_mul(BLOCK).and_then(|first| first.checked_add(bit));
        Self(before.and_then(|before| NonZeroU32::MIN.checked_add(before)).expect(FITS))
    }

    fn parts(self) -> (u32, u32) {
        let before = self.0.get() - 1;
        (before / BLOCK, before % BLOCK)
    }
}

impl<T> Index<Slot> for Slab<T> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        let (block, bit) = slot.parts();
        self.blocks[block as usize].values[bit as usize].as_ref().expect(REFERRED)
    }
}

impl<T> IndexMut<Slot> for Slab<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        let (block, bit) = slot.parts();
        self.blocks[block as usize].values[bit as usize].as_mut().expect(REFERRED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(slab: &mut Slab<u32>, values: std::ops::Range<u32>) -> Vec<Slot> {
        values.map(|value| slab.insert(value)).collect()
    }

    #[test]
    fn memory_goes_with_the_values_of_its_block_and_the_first_is_filled_first() {
        let mut slab = Slab::default();
        let held =
            |slab: &Slab<_>| slab.blocks.iter().filter(|block| !block.values.is_empty()).count();
        let slots = fill(&mut slab, 0..50);
        assert_eq!(held(&slab), 4, "16 in each");
        slots[16..48].iter().for_each(|slot| _ = slab.remove(*slot));
        assert_eq!(held(&slab), 3, "of those that are empty one is kept");
        slab.remove(slots[10]);
        assert_eq!(fill(&mut slab, 50..52), [slots[10], slots[16]]);
        fill(&mut slab, 52..67);
        slots[48..].iter().for_each(|slot| _ = slab.remove(*slot));
        assert_eq!((held(&slab), slab.blocks.len()), (3, 4), "the last is kept now");
        slab.check();
        slots[..16].iter().for_each(|slot| _ = slab.remove(*slot));
        assert_eq!((held(&slab), slab.blocks.len()), (2, 2), "and the first, and none at the end");
        slab.check();
    }

    #[test]
    fn a_block_that_was_kept_and_filled_again_is_not_freed_with_the_next() {
        let mut slab = Slab::default();
        let slots = fill(&mut slab, 0..32);
        slots[..16].iter().for_each(|slot| _ = slab.remove(*slot));
        assert_eq!(slab.insert(77), slots[0]);
        slots[16..].iter().for_each(|slot| _ = slab.remove(*slot));
        assert_eq!((slab[slots[0]], slab.len()), (77, 1));
        slab.check();
    }

    #[test]
    fn a_broken_slab_does_not_pass_the_check() {
        type Break = fn(&mut Slab<u32>);
        let breaks: [Break; 5] = [
            |slab| slab.blocks[0].taken = 0,
            |slab| slab.roomy.clear(),
            |slab| _ = slab.roomy.insert(9),
            |slab| slab.spare = None,
            |slab| slab.len += 1,
        ];
        let mut good = Slab::default();
        let slots = fill(&mut good, 0..40);
        slots[16..32].iter().for_each(|slot| _ = good.remove(*slot));
        good.check();
        for (place, broken) in breaks.into_iter().enumerate() {
            let mut slab = good.clone();
            broken(&mut slab);
            let checked = std::panic::catch_unwind(|| slab.check());
            assert!(checked.is_err(), "break {place} passes");
        }
    }
}
