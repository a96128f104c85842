//! The table as bytes.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Holder, Index, LockTable, Nonces, Row, Waiter, check::require, command::ClusterTime,
    config::TableConfig, key::Key, nonces::Known,
};
use crate::lock::Nonce;

/// Why a snapshot was refused. Nothing of it was used.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes are not a snapshot, or are cut off.
    #[error("snapshot does not decode")]
    Malformed(#[from] postcard::Error),
    /// The snapshot decodes, but no table can be in this state.
    #[error("snapshot contradicts itself: {0}")]
    Inconsistent(&'static str),
}

impl From<&'static str> for SnapshotError {
    fn from(what: &'static str) -> Self {
        Self::Inconsistent(what)
    }
}

/// The content: the rows, from which the index follows, in the order of their
/// [`Key`]s, so that equal tables give equal bytes.
#[derive(Serialize, Deserialize)]
struct Image {
    config: TableConfig,
    now: ClusterTime,
    last_token: u64,
    last_position: u64,
    floor: Option<ClusterTime>,
    rows: Vec<(Arc<str>, Holder, Vec<Waiter>)>,
    /// The oldest first.
    ended: Vec<(ClusterTime, Nonce)>,
}

impl LockTable {
    /// The table as bytes; equal tables give equal bytes. The version stands before them, in a
    /// snapshot of the group (contract, rule 12).
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let rows = self.rows.iter().map(|(key, row)| {
            (key.text.clone(), row.holder.clone(), row.queue.values().cloned().collect())
        });
        let image = Image {
            config: self.config.clone(),
            now: self.now,
            last_token: self.last_token,
            last_position: self.last_position,
            floor: self.nonces.floor,
            rows: rows.collect(),
            ended: self.nonces.ended.iter().copied().collect(),
        };
        postcard::to_allocvec(&image).expect("a vector takes every byte")
    }

    /// The table of a [snapshot](Self::snapshot).
    ///
    /// Hostile bytes neither panic nor allocate more than a small multiple of their length.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]: bytes that do not decode, or a state that contradicts itself.
    pub fn restore(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let (image, rest) = postcard::take_from_bytes::<Image>(bytes)?;
        require(rest.is_empty(), "bytes after its end")?;
        let mut table = Self {
            config: image.config,
            now: image.now,
            last_token: image.last_token,
            last_position: image.last_position,
            rows: BTreeMap::new(),
            nonces: Nonces::default(),
            index: Index::default(),
        };
        table.nonces.floor = image.floor;
        for (key, holder, queue) in image.rows {
            table.restore_row(Key::new(&key), holder, queue)?;
        }
        for (at, nonce) in image.ended {
            require(table.nonces.get(nonce).is_none(), "nonce that occurs twice")?;
            table.nonces.end(nonce, at);
        }
        table.verify()?;
        Ok(table)
    }

    fn restore_row(
        &mut self,
        key: Key,
        holder: Holder,
        queue: Vec<Waiter>,
    ) -> Result<(), &'static str> {
        let last = self.rows.last_key_value();
        require(last.is_none_or(|(last, _)| *last < key), "keys out of order")?;
        let mut row = Row { holder, queue: BTreeMap::new() };
        self.nonces.set(row.holder.acquisition.nonce, Known::Holds);
        self.index.add_lease(&key, &row);
        let mut last = None;
        for waiter in queue {
            let position = waiter.acquisition.position;
            require(last < Some(position), "queue out of order")?;
            last = Some(position);
            self.nonces.set(waiter.acquisition.nonce, Known::Waits { position });
            self.index.enqueue(&key, &mut row, waiter);
        }
        self.rows.insert(key, row);
        Ok(())
    }
}
