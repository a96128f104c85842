//! Snapshot messages in pieces: a snapshot may be longer than a frame, and a piece may be lost.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;

use super::wire::{Body, Chunk};
use crate::clock::Instant;

/// Pieces in flight to one peer: enough to fill a link, few enough for any queue.
const WINDOW: u32 = 8;
/// After this long without an acknowledgement, the first missing piece is sent again. Each
/// resend doubles the pause for this transfer: copies must not fill a slow link.
const RESEND_AFTER: Duration = Duration::from_millis(50);
/// The longest pause, enough for a link of 0.5 Mbit/s.
const RESEND_AFTER_MAX: Duration = Duration::from_secs(8);
/// The longest snapshot message taken, in bytes: it bounds what a peer can make us allocate.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct Transfers {
    outgoing: BTreeMap<u64, Outgoing>,
    /// Only the leader sends snapshots. A half-received one stays until another leader sends: the
    /// same one may lead again.
    incoming: Option<Incoming>,
    begun: u64,
}

#[derive(Debug)]
struct Outgoing {
    transfer: u64,
    bytes: Bytes,
    piece: usize,
    acked: u32,
    sent: u32,
    /// Pieces that may be in flight: one at first and after a loss, doubled by each progress.
    window: u32,
    /// When the last piece was sent, or its acknowledgement taken.
    active_at: Instant,
    resend_after: Duration,
}

#[derive(Debug)]
struct Incoming {
    from: u64,
    transfer: u64,
    received: u32,
    bytes: Vec<u8>,
}

impl Transfers {
    /// Begins to send `bytes` to a peer in pieces. They replace an older snapshot.
    pub(super) fn begin(&mut self, now: Instant, to: u64, bytes: Bytes, piece: usize) {
        self.begun += 1;
        let transfer = self.begun;
        let (acked, sent, window, resend_after) = (0, 0, 1, RESEND_AFTER);
        let outgoing =
            Outgoing { transfer, bytes, piece, acked, sent, window, active_at: now, resend_after };
        self.outgoing.insert(to, outgoing);
    }

    /// Ends the transfers to peers that no longer need one.
    pub(super) fn retain(&mut self, awaits_snapshot: impl Fn(u64) -> bool) {
        self.outgoing.retain(|id, _| awaits_snapshot(*id));
    }

    /// Drops the incoming transfer of a peer that is no longer a member.
    pub(super) fn retain_received(&mut self, is_member: impl Fn(u64) -> bool) {
        self.incoming.take_if(|incoming| !is_member(incoming.from));
    }

    /// Whether nothing is being sent.
    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.is_empty()
    }

    pub(super) fn is_sending_to(&self, id: u64) -> bool {
        self.outgoing.contains_key(&id)
    }

    pub(super) fn clear(&mut self) {
        *self = Self { begun: self.begun, ..Self::default() };
    }

    /// The pieces to send now, by receiver.
    pub(super) fn send(&mut self, now: Instant, mut send: impl FnMut(u64, Body)) {
        for (to, outgoing) in &mut self.outgoing {
            let silence = now.since(outgoing.active_at);
            if outgoing.sent > outgoing.acked && silence >= outgoing.resend_after {
                (outgoing.sent, outgoing.window) = (outgoing.acked, 1);
                outgoing.resend_after = RESEND_AFTER_MAX.min(outgoing.resend_after * 2);
            }
            while outgoing.sent < outgoing.count().min(outgoing.acked + outgoing.window) {
                send(*to, Body::Chunk(outgoing.chunk(outgoing.sent)));
                outgoing.sent += 1;
                outgoing.active_at = now;
            }
        }
    }

    pub(super) fn acknowledged(&mut self, now: Instant, from: u64, transfer: u64, received: u32) {
        let is_valid = |o: &&mut Outgoing| o.transfer == transfer && received <= o.count();
        let Some(outgoing) = self.outgoing.get_mut(&from).filter(is_valid) else { return };
        outgoing.active_at = now;
        if received > outgoing.acked {
            outgoing.acked = received;
            outgoing.sent = outgoing.sent.max(received);
            outgoing.window = WINDOW.min(outgoing.window * 2);
        } else if received < outgoing.acked {
            // The receiver has forgotten pieces, or this acknowledgement is late.
            (outgoing.acked, outgoing.sent, outgoing.window) = (received, received, 1);
        }
        if outgoing.acked == outgoing.count() {
            self.outgoing.remove(&from);
        }
    }

    /// Takes a piece from the leader. Pieces count only in order; the acknowledgement names the
    /// first missing one. Returns it, and the message once it is complete. A leader's newer
    /// transfer replaces its older one, and another leader's replaces any.
    pub(super) fn receive(&mut self, from: u64, chunk: &Chunk) -> (Option<Body>, Option<Vec<u8>>) {
        let transfer = chunk.transfer;
        if self.incoming.as_ref().is_some_and(|i| i.from == from && i.transfer > transfer) {
            return (None, None);
        }
        self.incoming.take_if(|i| i.from != from || i.transfer < transfer);
        let fresh = || Incoming { from, transfer, received: 0, bytes: Vec::new() };
        let incoming = self.incoming.get_or_insert_with(fresh);
        if chunk.index == incoming.received && chunk.index < chunk.count {
            if !fits(incoming.bytes.len(), chunk.bytes.len()) {
                tracing::warn!("a snapshot exceeds the limit of {SNAPSHOT_BYTES_MAX} bytes");
                return (None, None);
            }
            incoming.bytes.extend_from_slice(&chunk.bytes);
            incoming.received += 1;
        }
        let received = incoming.received;
        let ack = Body::ChunkAck { transfer: chunk.transfer, received };
        let whole = (received == chunk.count && chunk.index.checked_add(1) == Some(received))
            .then(|| std::mem::take(&mut incoming.bytes))
            .filter(|bytes| !bytes.is_empty());
        (Some(ack), whole)
    }
}

/// Whether `more` bytes may be added to a snapshot message of `bytes`.
fn fits(bytes: usize, more: usize) -> bool {
    bytes.checked_add(more).is_some_and(|all| all <= SNAPSHOT_BYTES_MAX)
}

impl Outgoing {
    fn count(&self) -> u32 {
        u32::try_from(self.bytes.len().div_ceil(self.piece)).expect("bounded by the frame limit")
    }

    fn chunk(&self, index: u32) -> Chunk {
        let from = index as usize * self.piece;
        let to = self.bytes.len().min(from + self.piece);
        let bytes = self.bytes.slice(from..to);
        Chunk { transfer: self.transfer, index, count: self.count(), bytes }
    }
}
