//! The rows of a table, each in a slot of its own, and found by its key.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::{Index, IndexMut},
    sync::Arc,
};

use super::{key::digest, row::Row};

/// Names a row for as long as it is in the table: nonces and indexes refer to it so, and a key is in
/// memory once.
///
/// Which slot a row got says nothing about the table, and nothing that leaves it depends on slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

/// All rows.
///
/// They are found by the digests of their keys: the search for one among a million stays within the
/// nodes of a small tree, where comparing texts would fetch one from elsewhere at every comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    blocks: Vec<Block>,
    /// The blocks that have room. The first is filled first, so that the last empty and go.
    roomy: BTreeSet<u32>,
    /// The block that was the last to lose all its rows, and keeps their memory for the next.
    spare: Option<u32>,
    /// By the digest of the key.
    by_digest: BTreeMap<u64, Slot>,
    /// Rows that came when another had their digest. Keys made to collide cost a search by text, and
    /// nothing else.
    collided: BTreeMap<Arc<str>, Slot>,
}

/// Some rows, in memory that goes with the last of them.
#[derive(Clone, Debug, Default)]
struct Block {
    rows: Vec<Option<Row>>,
    /// A bit for each row.
    taken: u16,
}

/// Two kilobytes: what one row that is left can keep from others.
const BLOCK_ROWS: u32 = u16::BITS;

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.by_digest.len() + self.collided.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn find(&self, key: &str) -> Option<Slot> {
        let first = self.by_digest.get(&digest(key)).copied();
        first.filter(|slot| *self[*slot].key == *key).or_else(|| self.collided.get(key).copied())
    }

    /// Adds the row of a key that has none.
    pub(super) fn insert(&mut self, row: Row) -> Slot {
        let key = row.key.clone();
        let slot = self.place(row);
        match self.by_digest.entry(digest(&key)) {
            Entry::Vacant(vacant) => {
                vacant.insert(slot);
            }
            Entry::Occupied(_) => {
                self.collided.insert(key, slot);
            }
        }
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let (block, bit) = slot.parts();
        let Block { rows, taken } = &mut self.blocks[block];
        let row = rows[bit].take().expect(REFERRED);
        let number = slot.0 / BLOCK_ROWS;
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
        match self.by_digest.entry(digest(&row.key)) {
            Entry::Occupied(first) if *first.get() == slot => {
                first.remove();
            }
            _ => {
                self.collided.remove(&row.key);
            }
        }
    }

    /// All rows, by the digests of their keys, and then by their texts.
    pub(super) fn in_order(&self) -> Vec<(Slot, &Row)> {
        let slots = self.by_digest.values().chain(self.collided.values());
        let mut rows: Vec<_> = slots.map(|slot| (*slot, &self[*slot])).collect();
        if !self.collided.is_empty() {
            rows.sort_by_cached_key(|(_, row)| (digest(&row.key), row.key.clone()));
        }
        rows
    }

    fn place(&mut self, row: Row) -> Slot {
        let number = self.roomy.first().copied().unwrap_or_else(|| {
            let rows = u32::try_from(self.blocks.len() * BLOCK_ROWS as usize);
            let number = rows.expect("so many rows fit into no memory") / BLOCK_ROWS;
            self.blocks.push(Block::default());
            self.roomy.insert(number);
            number
        });
        let block = &mut self.blocks[number as usize];
        let bit = block.taken.trailing_ones();
        block.taken |= 1 << bit;
        if block.rows.is_empty() {
            block.rows = (0..BLOCK_ROWS).map(|_| None).collect();
        }
        block.rows[bit as usize] = Some(row);
        if block.taken == u16::MAX {
            self.roomy.remove(&number);
        }
        Slot(number * BLOCK_ROWS + bit)
    }

    /// Frees the memory of a block that has no rows (any more), and the blocks at the end that have none.
    fn give_back(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        if block.taken == 0 {
            block.rows = Vec::new();
        }
        while self.blocks.last().is_some_and(|block| block.rows.is_empty()) {
            self.blocks.pop();
            self.roomy.pop_last();
        }
    }

    /// Asserts that slots and ways to them agree.
    pub(super) fn check(&self) {
        let mut rows = 0;
        for (number, block) in (0..).zip(&self.blocks) {
            let Block { rows: slots, taken } = block;
            let bits = |bit: usize| taken >> bit & 1 == 1;
            assert!(slots.iter().enumerate().all(|(bit, row)| row.is_some() == bits(bit)));
            assert_eq!(self.roomy.contains(&number), *taken != u16::MAX, "what has room is known");
            assert!(*taken != 0 || slots.is_empty() || self.spare == Some(number), "memory goes");
            rows += taken.count_ones() as usize;
        }
        assert_eq!(rows, self.len(), "every row is found, and every slot has its row");
        assert!(self.roomy.iter().all(|number| (*number as usize) < self.blocks.len()));
        let mut slots = BTreeSet::new();
        for (slot, row) in self.in_order() {
            assert!(slots.insert(slot), "a slot has one way to it");
            assert_eq!(self.find(&row.key), Some(slot), "a row is found by its key");
        }
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        let mut pairs = self.in_order().into_iter().zip(other.in_order());
        self.len() == other.len() && pairs.all(|((_, one), (_, other))| one == other)
    }
}

const REFERRED: &str = "a slot that is referred to has its row";

impl Slot {
    fn parts(self) -> (usize, usize) {
        ((self.0 / BLOCK_ROWS) as usize, (self.0 % BLOCK_ROWS) as usize)
    }
}

impl Index<Slot> for Rows {
    type Output = Row;

    fn index(&self, slot: Slot) -> &Row {
        let (block, bit) = slot.parts();
        self.blocks[block].rows[bit].as_ref().expect(REFERRED)
    }
}

impl IndexMut<Slot> for Rows {
    fn index_mut(&mut self, slot: Slot) -> &mut Row {
        let (block, bit) = slot.parts();
        self.blocks[block].rows[bit].as_mut().expect(REFERRED)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        Nonce, Owner,
        lock_table::{
            ClusterTime, LockRequest, ProcessId, Seen, Wait,
            row::{Claim, Hold},
        },
    };

    fn row(key: &str) -> Row {
        let request = LockRequest {
            key: key.into(),
            nonce: Nonce::from_u128(1),
            process: ProcessId(1),
            request: 1,
            duration_ms: 1000,
            wait: Wait::No,
            seen: Seen::Now,
            owner: Arc::new(Owner::default()),
        };
        let holder = Hold::new(Claim::new(1, &request, ClusterTime(0)), 1, ClusterTime(0));
        Row { key: request.key, holder, queue: BTreeMap::new() }
    }

    /// Texts of sixteen bytes, all with the digest of the first: the second half makes up for what
    /// the first half changes, where that gives a text.
    pub(in crate::lock_table) fn colliding(count: usize) -> Vec<String> {
        let half = |text: &[u8]| u64::from_le_bytes(text.try_into().unwrap());
        // What the digest is after the first half, and both halves are mixed alike.
        let after = |first: u64| {
            let product = (16 ^ first).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            product ^ (product >> 32)
        };
        let (first, second) = (half(b"orders/1"), half(b"the rest"));
        let texts = (0..).filter_map(|number| {
            let other = half(format!("{number:08}").as_bytes());
            let rest = second ^ after(first) ^ after(other);
            String::from_utf8([other.to_le_bytes(), rest.to_le_bytes()].concat()).ok()
        });
        let mut all = vec!["orders/1the rest".to_owned()];
        all.extend(texts.take(count - 1));
        assert!(all.iter().all(|text| digest(text) == digest(&all[0])));
        all
    }

    proptest! {
        #[test]
        fn keys_are_found_whether_their_digests_collide_or_not(
            steps in prop::collection::vec((0..90_usize, any::<bool>()), 0..300)
        ) {
            let mut keys = colliding(10);
            keys.extend((0..80).map(|key| key.to_string()));
            let (mut rows, mut model) = (Rows::default(), BTreeMap::new());
            for (key, enters) in steps {
                let key = &keys[key];
                match (enters, model.remove(key)) {
                    (true, None) => {
                        model.insert(key.clone(), rows.insert(row(key)));
                    }
                    (_, Some(slot)) => rows.remove(slot),
                    (false, None) => {}
                }
                rows.check();
                prop_assert_eq!(rows.len(), model.len());
                prop_assert_eq!(rows.is_empty(), model.is_empty());
                for key in &keys {
                    prop_assert_eq!(rows.find(key), model.get(key).copied());
                }
                let mut order = model.keys().map(|key| (digest(key), &**key)).collect::<Vec<_>>();
                order.sort_unstable();
                let listed = rows.in_order().into_iter().map(|(_, row)| (digest(&row.key), &*row.key));
                prop_assert_eq!(listed.collect::<Vec<_>>(), order);
            }
        }
    }

    #[test]
    fn equal_are_rows_that_hold_the_same_wherever_they_stand() {
        let keys = colliding(3);
        let filled = |order: [usize; 3]| {
            let mut rows = Rows::default();
            for key in order {
                rows.insert(row(&keys[key]));
            }
            rows
        };
        let (one, mut other) = (filled([0, 1, 2]), filled([2, 0, 1]));
        assert_eq!(one, other);
        let slot = other.find(&keys[1]).unwrap();
        other[slot].holder.token = 2;
        assert_ne!(one, other);
        other[slot].holder.token = 1;
        let (last, _) = *other.in_order().last().unwrap();
        other.remove(last);
        assert_ne!(one, other, "two are the beginning of three");
        assert_ne!(other, one);
    }

    #[test]
    fn memory_goes_with_the_rows_of_its_block_and_the_first_is_filled_first() {
        let mut rows = Rows::default();
        let fill = |rows: &mut Rows, keys: std::ops::Range<u32>| {
            keys.map(|key| rows.insert(row(&key.to_string()))).collect::<Vec<_>>()
        };
        let held = |rows: &Rows| rows.blocks.iter().filter(|block| !block.rows.is_empty()).count();
        let slots = fill(&mut rows, 0..50);
        assert_eq!(held(&rows), 4, "16 in each");
        slots[16..48].iter().for_each(|slot| rows.remove(*slot));
        assert_eq!(held(&rows), 3, "of those that are empty one is kept");
        rows.remove(slots[10]);
        assert_eq!(fill(&mut rows, 50..52), [slots[10], slots[16]]);
        fill(&mut rows, 52..67);
        slots[48..].iter().for_each(|slot| rows.remove(*slot));
        assert_eq!((held(&rows), rows.blocks.len()), (3, 4), "the last is kept now");
        rows.check();
        slots[..16].iter().for_each(|slot| rows.remove(*slot));
        assert_eq!((held(&rows), rows.blocks.len()), (2, 2), "and the first, and none at the end");
        rows.check();
    }

    #[test]
    fn a_block_that_was_kept_and_filled_again_is_not_freed_with_the_next() {
        let mut rows = Rows::default();
        let slots = (0..32).map(|key| rows.insert(row(&key.to_string()))).collect::<Vec<_>>();
        slots[..16].iter().for_each(|slot| rows.remove(*slot));
        assert_eq!(rows.insert(row("again")), slots[0]);
        slots[16..].iter().for_each(|slot| rows.remove(*slot));
        assert_eq!(rows.find("again"), Some(slots[0]));
        assert_eq!(&*rows[slots[0]].key, "again");
        rows.check();
    }

    #[test]
    fn broken_rows_do_not_pass_the_check() {
        type Break = fn(&mut Rows);
        let breaks: [Break; 6] = [
            |rows| rows.blocks[0].taken = 0,
            |rows| rows.roomy.clear(),
            |rows| {
                rows.roomy.insert(9);
            },
            |rows| rows.spare = None,
            |rows| {
                rows.by_digest.pop_first();
            },
            |rows| {
                let other = *rows.by_digest.last_key_value().unwrap().1;
                rows.by_digest.first_entry().unwrap().insert(other);
            },
        ];
        let mut good = Rows::default();
        let slots = (0..40).map(|key| good.insert(row(&key.to_string()))).collect::<Vec<_>>();
        slots[16..32].iter().for_each(|slot| good.remove(*slot));
        good.check();
        for (place, broken) in breaks.into_iter().enumerate() {
            let mut rows = good.clone();
            broken(&mut rows);
            let checked = std::panic::catch_unwind(|| rows.check());
            assert!(checked.is_err(), "break {place} passes");
        }
    }
}
