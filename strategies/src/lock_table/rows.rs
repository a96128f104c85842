//! The rows of a table by key.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::{Index, IndexMut},
    sync::Arc,
};

use super::{key::digest, row::Row};

/// Names a row while its key is held. Ordered by the digest of the key, so that the search compares
/// numbers and not texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowId {
    digest: u64,
    /// 0, unless another row had this digest when this one was inserted.
    number: u64,
}

/// All rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    rows: BTreeMap<RowId, Row>,
    /// The rows whose number is not 0. Keys made to collide cost a search by text, and nothing else.
    collided: BTreeMap<Arc<str>, RowId>,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn find(&self, key: &str) -> Option<RowId> {
        let first = RowId { digest: digest(key), number: 0 };
        match self.rows.get(&first) {
            Some(row) if *row.key == *key => Some(first),
            _ => self.collided.get(key).copied(),
        }
    }

    /// Adds the row of a key that has none.
    pub(super) fn insert(&mut self, row: Row) -> RowId {
        let id = RowId { digest: digest(&row.key), number: 0 };
        match self.rows.entry(id) {
            Entry::Vacant(vacant) => {
                vacant.insert(row);
                id
            }
            Entry::Occupied(_) => {
                // The place of its first holder is its own.
                let id = RowId { number: row.holder.claim.place.saturating_add(1), ..id };
                self.collided.insert(row.key.clone(), id);
                self.rows.insert(id, row);
                id
            }
        }
    }

    pub(super) fn remove(&mut self, id: RowId) {
        let row = self.rows.remove(&id).expect(NAMED);
        if id.number > 0 {
            self.collided.remove(&row.key);
        }
    }

    /// All rows, by the digests of their keys, and then by their texts.
    pub(super) fn in_order(&self) -> Vec<(RowId, &Row)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(id, row)| (*id, row)).collect();
        if !self.collided.is_empty() {
            rows.sort_by_key(|(id, row)| (id.digest, &*row.key));
        }
        rows
    }

    /// Asserts that each row is found by its key.
    pub(super) fn check(&self) {
        for (id, row) in &self.rows {
            assert_eq!(self.find(&row.key), Some(*id), "a row is found by its key");
        }
        let collided = self.rows.keys().filter(|id| id.number > 0).count();
        assert_eq!(self.collided.len(), collided, "no entry outlives its row");
    }
}

const NAMED: &str = "a row that is named is in the table";

impl Index<RowId> for Rows {
    type Output = Row;

    fn index(&self, id: RowId) -> &Row {
        self.rows.get(&id).expect(NAMED)
    }
}

impl IndexMut<RowId> for Rows {
    fn index_mut(&mut self, id: RowId) -> &mut Row {
        self.rows.get_mut(&id).expect(NAMED)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lock_table::{
        ClusterTime, LockRequest, Wait, claim::Claim, row::Hold, tests::request,
    };

    fn row(key: &str, place: usize) -> Row {
        let request = LockRequest { key: key.into(), ..request(1, 1000, Wait::No) };
        let holder =
            Hold::new(Claim::new(place as u64, &request, ClusterTime(0)), 1, ClusterTime(0));
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
        fn keys_are_found_although_digests_collide(
            steps in prop::collection::vec((0..90_usize, any::<bool>()), 0..300)
        ) {
            let mut keys = colliding(10);
            keys.extend((0..80).map(|key| key.to_string()));
            let (mut rows, mut model) = (Rows::default(), BTreeMap::new());
            for (number, enters) in steps {
                let key = &keys[number];
                match (enters, model.remove(key)) {
                    (true, None) => {
                        model.insert(key.clone(), rows.insert(row(key, number)));
                    }
                    (_, Some(id)) => rows.remove(id),
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
    fn order_of_rows_does_not_depend_on_insertion() {
        let keys = colliding(3);
        let listed = |order: [usize; 3]| {
            let mut rows = Rows::default();
            for key in order {
                rows.insert(row(&keys[key], key));
            }
            let listed = rows.in_order().into_iter().map(|(_, row)| row.key.clone());
            listed.collect::<Vec<_>>()
        };
        assert_eq!(listed([0, 1, 2]), listed([2, 0, 1]));
    }

    #[test]
    fn broken_rows_fail_the_check() {
        let keys = colliding(3);
        let breaks: [fn(&mut Rows); 2] =
            [|rows| _ = rows.collided.pop_first(), |rows| _ = rows.rows.pop_last()];
        let mut good = Rows::default();
        keys.iter().enumerate().for_each(|(place, key)| _ = good.insert(row(key, place)));
        good.check();
        for (number, broken) in breaks.into_iter().enumerate() {
            let mut rows = good.clone();
            broken(&mut rows);
            let checked = std::panic::catch_unwind(|| rows.check());
            assert!(checked.is_err(), "break {number} passes");
        }
    }
}
