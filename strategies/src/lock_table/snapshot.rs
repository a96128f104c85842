//! The table as bytes.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    ClusterTime, Ended, LockTable, TableConfig,
    claim::{Claim, Waiter},
    config::{FIRST_TOKEN_MAX, TIME_MAX},
    index::Index,
    key::digest,
    nonces::{Nonces, Place},
    row::{Hold, Row},
    rows::Rows,
};
use crate::{
    Nonce,
    planted::{Bug, planted},
};

/// The first byte of every snapshot.
const VERSION: u8 = 1;
/// Tokens and places beyond this were never granted: as many again would be left.
const COUNTER_MAX: u64 = FIRST_TOKEN_MAX + (1 << 62);

/// Why a snapshot was refused. Nothing of it was taken over.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Written by a version that this one does not know (contract, rule 12).
    #[error("snapshot of version {found}, this one reads version {VERSION}")]
    Version {
        /// The version it names.
        found: u8,
    },
    /// Not a snapshot, cut off, or followed by something else.
    #[error("snapshot does not decode")]
    Malformed {
        /// What the decoder said; `None` where it is empty or too long.
        #[source]
        source: Option<postcard::Error>,
    },
    /// It decodes, but no table can be in this state.
    #[error("snapshot contradicts itself: {what}")]
    Inconsistent {
        /// The rule that it breaks.
        what: &'static str,
    },
}

/// What is written after the version: the rows, from which the indexes follow, by their
/// [`digest`] and then their text, so that equal tables give equal bytes.
#[derive(Serialize, Deserialize)]
struct Image {
    config: TableConfig,
    now: ClusterTime,
    last_token: u64,
    last_place: u64,
    floor: Option<ClusterTime>,
    rows: Vec<RowImage>,
    /// The oldest first.
    ended: Vec<(ClusterTime, Nonce, Ended)>,
}

#[derive(Serialize, Deserialize)]
struct RowImage {
    key: Arc<str>,
    holder: Hold,
    queue: Vec<Waiter>,
}

impl LockTable {
    /// The table as bytes, versioned; equal tables give equal bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let rows = self.rows.in_order().into_iter().map(|(_, row)| RowImage {
            key: row.key.clone(),
            holder: row.holder.clone(),
            queue: match planted(Bug::SnapshotWithoutQueue) {
                true => Vec::new(),
                false => row.queue.values().cloned().collect(),
            },
        });
        let image = Image {
            config: self.config.clone(),
            now: self.now,
            last_token: self.last_token,
            last_place: self.last_place,
            floor: self.nonces.floor(),
            rows: rows.collect(),
            ended: self.nonces.ended().collect(),
        };
        postcard::to_allocvec(&(VERSION, image)).expect("a vector takes every byte")
    }

    /// The table of a [snapshot](Self::snapshot).
    ///
    /// Hostile bytes neither panic nor allocate more than a small multiple of their length.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]: an unknown version, bytes that do not decode, or a state that
    /// contradicts itself.
    pub fn restore(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let (version, body) =
            bytes.split_first().ok_or(SnapshotError::Malformed { source: None })?;
        if *version != VERSION {
            return Err(SnapshotError::Version { found: *version });
        }
        let (image, rest) = postcard::take_from_bytes::<Image>(body)
            .map_err(|source| SnapshotError::Malformed { source: Some(source) })?;
        if !rest.is_empty() {
            return Err(SnapshotError::Malformed { source: None });
        }
        image.into_table()
    }
}

impl Image {
    fn into_table(self) -> Result<LockTable, SnapshotError> {
        let first_token = self.config.first_token;
        require((1..=FIRST_TOKEN_MAX).contains(&first_token), "first token out of range")?;
        require(self.last_token >= first_token - 1, "last token before the first")?;
        require(self.last_token <= COUNTER_MAX, "last token out of range")?;
        require(self.last_place <= COUNTER_MAX, "last place out of range")?;
        require(self.now <= TIME_MAX, "time out of range")?;
        require(self.floor.is_none_or(|floor| floor <= self.now), "floor after now")?;
        let mut table = LockTable {
            config: self.config,
            now: self.now,
            last_token: self.last_token,
            last_place: self.last_place,
            rows: Rows::default(),
            nonces: Nonces::default(),
            index: Index::default(),
        };
        table.nonces.set_floor(self.floor);
        let mut places = Vec::new();
        let mut last = None;
        for row in self.rows {
            let key = (digest(&row.key), row.key.clone());
            require(last.is_none_or(|last| last < key), "keys out of order")?;
            last = Some(key);
            let waiting = row.queue.iter().map(|waiter| waiter.claim.place);
            places.extend(waiting.chain([row.holder.claim.place]));
            table.restore_row(row)?;
        }
        // The orders in time tell claims apart by their places.
        places.sort_unstable();
        require(places.is_sorted_by(|one, next| one < next), "place that was taken twice")?;
        table.restore_ended(self.ended)?;
        require(table.rows.len() as u64 <= table.config.keys_max, "more keys than the limit")?;
        let nonces = table.nonces.len() as u64;
        require(nonces <= table.config.nonces_max, "more nonces than the limit")?;
        Ok(table)
    }
}

impl LockTable {
    fn restore_row(&mut self, image: RowImage) -> Result<(), SnapshotError> {
        let RowImage { key, holder, queue } = image;
        require(holder.token <= self.last_token, "token that was never granted")?;
        require(holder.token >= self.config.first_token, "token before the first")?;
        require(holder.granted_at <= self.now, "grant after now")?;
        require(holder.expires_at > self.now, "lease that has ended")?;
        let waiters = queue.len() as u64;
        require(waiters <= self.config.waiters_per_key_max, "more waiters than the limit")?;
        let mut before = holder.claim.place;
        self.check_claim(&holder.claim)?;
        let nonce = holder.claim.nonce;
        let id = self.rows.insert(Row { key, holder, queue: BTreeMap::new() });
        self.index.add_lease(id, &self.rows[id]);
        self.restore_nonce(nonce, Place::Holds { row: id })?;
        for waiter in queue {
            let place = waiter.claim.place;
            // A holder came before those who wait behind it.
            require(place > before, "queue out of order")?;
            require(waiter.deadline.is_none_or(|end| end > self.now), "waiter that is dead")?;
            before = place;
            self.check_claim(&waiter.claim)?;
            let nonce = waiter.claim.nonce;
            self.enqueue(id, waiter);
            self.restore_nonce(nonce, Place::Waits { row: id, place })?;
        }
        Ok(())
    }

    fn check_claim(&self, claim: &Claim) -> Result<(), SnapshotError> {
        require(claim.place <= self.last_place, "place that was never taken")?;
        require(claim.asked_at <= self.now, "LOCK after now")?;
        require(claim.duration_ms > 0, "lease of nothing")
    }

    fn restore_nonce(&mut self, nonce: Nonce, place: Place) -> Result<(), SnapshotError> {
        require(self.nonces.set(nonce, place), "nonce that occurs twice")
    }

    fn restore_ended(
        &mut self,
        ended: Vec<(ClusterTime, Nonce, Ended)>,
    ) -> Result<(), SnapshotError> {
        let mut before = ClusterTime(0);
        for (at, nonce, how) in ended {
            require(before <= at && at <= self.now, "ends out of order")?;
            require(self.nonces.place(nonce).is_none(), "nonce that occurs twice")?;
            let ends = matches!(how, Ended::Unlocked | Ended::Withdrawn | Ended::Expired);
            require(ends, "end that is none")?;
            before = at;
            self.nonces.end(nonce, how, at);
        }
        Ok(())
    }
}

fn require(holds: bool, what: &'static str) -> Result<(), SnapshotError> {
    if holds { Ok(()) } else { Err(SnapshotError::Inconsistent { what }) }
}
