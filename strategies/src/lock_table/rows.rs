//! The rows of a table, each in a slot of its own, and found by its key.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::{Index, IndexMut},
};

use super::{
    key::{Key, Ordered, digest},
    row::Row,
};

/// Names a row for as long as it is in the table: nonces and indexes refer to it so, and a key is in
/// memory once.
///
/// Which slot a row got says nothing about the table, and nothing that leaves it depends on slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    collided: BTreeMap<Key, Slot>,
}

/// Some rows, in memory that goes with the last of them.
#[derive(Clone, Debug, Default)]
struct Block {
    rows: Vec<Option<Row>>,
    /// A bit for each row.
    taken: u64,
}

const BLOCK_ROWS: u32 = u64::BITS;

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.by_digest.len() + self.collided.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn find(&self, key: &str) -> Option<Slot> {
        let first = self.by_digest.get(&digest(key)).copied();
        match first.filter(|slot| *self[*slot].key == *key) {
            None if !self.collided.is_empty() => self.collided.get(&key as &dyn Ordered).copied(),
            found => found,
        }
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
                self.collided.insert(Key::new(&key), slot);
            }
        }
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let (block, bit) = slot.parts();
        let Block { rows, taken } = &mut self.blocks[block];
        let row = rows[bit].take().expect(REFERRED);
        let number = slot.0 / BLOCK_ROWS;
        if *taken == u64::MAX {
            self.roomy.insert(number);
        }
        *taken &= !(1 << bit);
        if *taken == 0
            && let Some(before) = self.spare.replace(number)
            && before != number
        {
            self.blocks[before as usize].give_back();
        }
        match self.by_digest.entry(digest(&row.key)) {
            Entry::Occupied(first) if *first.get() == slot => {
                first.remove();
            }
            _ => {
                self.collided.remove(&Key::new(&row.key));
            }
        }
    }

    /// All rows, in the order of their keys.
    pub(super) fn in_order(&self) -> Vec<(Slot, &Row)> {
        let slots = self.by_digest.values().chain(self.collided.values());
        let mut rows: Vec<_> = slots.map(|slot| (*slot, &self[*slot])).collect();
        if !self.collided.is_empty() {
            rows.sort_by_cached_key(|(_, row)| Key::new(&row.key));
        }
        rows
    }

    fn place(&mut self, row: Row) -> Slot {
        let number = self.roomy.first().copied().unwrap_or_else(|| {
            let number = u32::try_from(self.blocks.len()).expect("so many rows fit into no memory");
            self.blocks.push(Block::default());
            self.roomy.insert(number);
            number
        });
        let block = &mut self.blocks[number as usize];
        let bit = block.taken.trailing_ones();
        block.taken |= 1 << bit;
        if block.rows.is_empty() {
            block.rows.reserve_exact(BLOCK_ROWS as usize);
            block.rows.resize_with(BLOCK_ROWS as usize, || None);
        }
        block.rows[bit as usize] = Some(row);
        if block.taken == u64::MAX {
            self.roomy.remove(&number);
        }
        Slot(number * BLOCK_ROWS + bit)
    }
}

impl Block {
    fn give_back(&mut self) {
        if self.taken == 0 {
            self.rows = Vec::new();
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
mod tests {
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
    fn colliding(count: usize) -> Vec<String> {
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
            steps in prop::collection::vec((0..8_usize, any::<bool>()), 0..60)
        ) {
            let mut keys = colliding(5);
            keys.extend(["a", "b", "c"].map(str::to_owned));
            let (mut rows, mut model) = (Rows::default(), BTreeMap::new());
            for (key, enters) in steps {
                let key = &keys[key];
                prop_assert_eq!(rows.find(key), model.get(key).copied());
                match (enters, model.remove(key)) {
                    (true, None) => {
                        model.insert(key.clone(), rows.insert(row(key)));
                    }
                    (_, Some(slot)) => rows.remove(slot),
                    (false, None) => {}
                }
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
        other.remove(slot);
        assert_ne!(one, other, "two are the beginning of three");
    }

    #[test]
    fn memory_goes_with_the_rows_of_its_block_and_the_first_is_filled_first() {
        let mut rows = Rows::default();
        let slots = (0..200).map(|key| rows.insert(row(&key.to_string()))).collect::<Vec<_>>();
        let held = |rows: &Rows| rows.blocks.iter().filter(|block| !block.rows.is_empty()).count();
        assert_eq!(held(&rows), 4, "64 in each");
        slots[64..192].iter().for_each(|slot| rows.remove(*slot));
        assert_eq!(held(&rows), 3, "of those that are empty one is kept");
        rows.remove(slots[10]);
        assert_eq!(rows.insert(row("in its place")), slots[10]);
        assert_eq!(rows.insert(row("and on")), slots[64]);
        for key in 65..128 {
            rows.insert(row(&key.to_string()));
        }
        slots[192..].iter().for_each(|slot| rows.remove(*slot));
        assert_eq!(held(&rows), 3, "the other one is kept now");
    }
}
