//! The operations of a history, grouped by key and nonce.

use std::{collections::BTreeMap, sync::Arc};

use super::{History, Operation};

/// The acquisitions of one key. Each is the operations of one nonce, in order of invocation.
pub(super) struct Key<'h> {
    history: &'h History,
    acquisitions: Vec<&'h [u32]>,
}

impl<'h> Key<'h> {
    /// All keys of a history.
    pub(super) fn all(history: &'h History) -> Vec<Self> {
        let operation = |number: u32| &history.operations()[number as usize];
        let mut keys = BTreeMap::<&str, Self>::new();
        let by_nonce = history.by_nonce();
        for of_nonce in
            by_nonce.chunk_by(|one, other| operation(*one).nonce == operation(*other).nonce)
        {
            let key = keys.entry(&operation(of_nonce[0]).key);
            let key = key.or_insert(Self { history, acquisitions: Vec::new() });
            key.acquisitions.push(of_nonce);
        }
        keys.into_values().collect()
    }

    /// The key.
    pub(super) fn name(&self) -> Arc<str> {
        let first = self.operations().next().expect("a key has an operation");
        first.key.clone()
    }

    /// The operations of each acquisition.
    pub(super) fn acquisitions(
        &self,
    ) -> impl Iterator<Item = impl Iterator<Item = &'h Operation> + use<'h>> {
        let operations = self.history.operations();
        let of =
            move |numbers: &&'h [u32]| numbers.iter().map(|&number| &operations[number as usize]);
        self.acquisitions.iter().map(of)
    }

    /// All its operations.
    pub(super) fn operations(&self) -> impl Iterator<Item = &'h Operation> {
        self.acquisitions().flatten()
    }
}
