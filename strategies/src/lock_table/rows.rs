//! The rows of a table, found by their keys. Nonces and orders refer to them by slot, and a key is in
//! memory once.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::{Index, IndexMut},
    sync::Arc,
};

use super::{
    key::digest,
    row::Row,
    slab::{Slab, Slot},
};

/// All rows.
///
/// They are found by the digests of their keys: the search for one among a million stays within the
/// nodes of a small tree, where comparing texts would fetch one from elsewhere at every comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    slab: Slab<Row>,
    /// By the digest of the key.
    by_digest: BTreeMap<u64, Slot>,
    /// Rows that came when another had their digest. Keys made to collide cost a search by text, and
    /// nothing else.
    collided: BTreeMap<Arc<str>, Slot>,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
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
        let slot = self.slab.insert(row);
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
        let row = self.slab.remove(slot);
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

    /// Asserts that slots and ways to them agree.
    pub(super) fn check(&self) {
        self.slab.check();
        let ways = self.by_digest.len() + self.collided.len();
        assert_eq!(ways, self.len(), "every row is found, and every slot has its row");
        let mut slots = BTreeSet::new();
        for (slot, row) in self.in_order() {
            assert!(slots.insert(slot), "a slot has one way to it");
            assert_eq!(self.find(&row.key), Some(slot), "a row is found by its key");
        }
    }
}

impl Index<Slot> for Rows {
    type Output = Row;

    fn index(&self, slot: Slot) -> &Row {
        &self.slab[slot]
    }
}

impl IndexMut<Slot> for Rows {
    fn index_mut(&mut self, slot: Slot) -> &mut Row {
        &mut self.slab[slot]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lock_table::{
        ClusterTime, LockRequest, Wait, claim::Claim, row::Hold, tests::request, waiters::Line,
    };

    fn row(key: &str) -> Row {
        let request = LockRequest { key: key.into(), ..request(1, 1000, Wait::No) };
        let holder = Hold::new(Claim::new(1, &request, ClusterTime(0)), 1, ClusterTime(0));
        Row { key: request.key, holder, queue: Line::default() }
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
    fn their_order_does_not_depend_on_where_they_stand() {
        let keys = colliding(3);
        let listed = |order: [usize; 3]| {
            let mut rows = Rows::default();
            for key in order {
                rows.insert(row(&keys[key]));
            }
            let listed = rows.in_order().into_iter().map(|(_, row)| row.key.clone());
            listed.collect::<Vec<_>>()
        };
        assert_eq!(listed([0, 1, 2]), listed([2, 0, 1]));
    }

    #[test]
    fn broken_rows_do_not_pass_the_check() {
        type Break = fn(&mut Rows);
        let breaks: [Break; 2] = [
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
