//! Snapshot messages in pieces: a snapshot may be longer than a frame, and a piece may be lost.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;

use super::wire::{Body, Chunk};
use crate::Instant;

/// Pieces under way to one peer: enough to fill a link, few enough for any queue.
const WINDOW: u32 = 8;
/// After this long without an acknowledgement, the window is sent again.
const RESEND_AFTER: Duration = Duration::from_millis(50);
/// A transfer that made no progress for this long begins anew: its receiver may have forgotten what it
/// had acknowledged.
const RESTART_AFTER: Duration = Duration::from_secs(2);
/// The longest snapshot message taken, in bytes: it bounds what a peer can make us allocate.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct Transfers {
    outgoing: BTreeMap<u64, Outgoing>,
    incoming: BTreeMap<u64, Incoming>,
    begun: u64,
}

#[derive(Debug)]
struct Outgoing {
    transfer: u64,
    bytes: Bytes,
    piece: usize,
    acked: u32,
    sent: u32,
    sent_at: Instant,
    progress_at: Instant,
}

#[derive(Debug)]
struct Incoming {
    transfer: u64,
    received: u32,
    bytes: Vec<u8>,
}

impl Transfers {
    /// Begins to send `bytes` to a peer in pieces, unless a transfer to it is under way.
    pub(super) fn begin(&mut self, now: Instant, to: u64, bytes: Bytes, piece: usize) {
        self.begun += 1;
        let transfer = self.begun;
        let outgoing =
            Outgoing { transfer, bytes, piece, acked: 0, sent: 0, sent_at: now, progress_at: now };
        self.outgoing.entry(to).or_insert(outgoing);
    }

    /// Ends the transfers to peers that are no members any more.
    pub(super) fn retain(&mut self, mut is_member: impl FnMut(u64) -> bool) {
        self.outgoing.retain(|id, _| is_member(*id));
        self.incoming.retain(|id, _| is_member(*id));
    }

    /// This member's lead is over, or another's has begun. What is being received goes on: its
    /// sender, if it leads again, goes on from what was acknowledged.
    pub(super) fn stop_sending(&mut self) {
        self.outgoing.clear();
    }

    /// Whether nothing is being sent.
    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.outgoing.clear();
        self.incoming.clear();
    }

    /// The pieces to send now, by receiver.
    pub(super) fn take_due(&mut self, now: Instant, mut send: impl FnMut(u64, Body)) {
        for (to, outgoing) in &mut self.outgoing {
            if now.since(outgoing.progress_at) >= RESTART_AFTER {
                self.begun += 1;
                outgoing.transfer = self.begun;
                (outgoing.acked, outgoing.sent, outgoing.progress_at) = (0, 0, now);
            }
            if outgoing.sent > outgoing.acked && now.since(outgoing.sent_at) >= RESEND_AFTER {
                outgoing.sent = outgoing.acked;
            }
            while outgoing.sent < outgoing.count().min(outgoing.acked + WINDOW) {
                send(*to, Body::Chunk(outgoing.chunk(outgoing.sent)));
                outgoing.sent += 1;
                outgoing.sent_at = now;
            }
        }
    }

    /// Takes an acknowledgement. Returns whether it told of progress.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        from: u64,
        transfer: u64,
        received: u32,
    ) -> bool {
        let Some(outgoing) = self.outgoing.get_mut(&from).filter(|o| o.transfer == transfer) else {
            return false;
        };
        let progress = received > outgoing.acked && received <= outgoing.count();
        if progress {
            outgoing.acked = received;
            outgoing.progress_at = now;
            outgoing.sent = outgoing.sent.max(received);
        }
        if outgoing.acked == outgoing.count() {
            self.outgoing.remove(&from);
        }
        progress
    }

    /// Takes a piece. Pieces count only in order; the acknowledgement says what is missing.
    /// Returns it, and the whole message once it is there.
    pub(super) fn receive(&mut self, from: u64, chunk: &Chunk) -> (Option<Body>, Option<Vec<u8>>) {
        let fresh = || Incoming { transfer: chunk.transfer, received: 0, bytes: Vec::new() };
        let incoming = self.incoming.entry(from).or_insert_with(fresh);
        if incoming.transfer > chunk.transfer {
            return (None, None);
        }
        if incoming.transfer < chunk.transfer {
            *incoming = fresh();
        }
        if chunk.index == incoming.received && chunk.index < chunk.count {
            if incoming.bytes.len() + chunk.bytes.len() > SNAPSHOT_BYTES_MAX {
                tracing::warn!("a snapshot exceeds the limit of {SNAPSHOT_BYTES_MAX} bytes");
                return (None, None);
            }
            incoming.bytes.extend_from_slice(&chunk.bytes);
            incoming.received += 1;
        }
        let received = incoming.received;
        let ack = Body::ChunkAck { transfer: chunk.transfer, received };
        let whole = (received == chunk.count && chunk.index + 1 == chunk.count)
            .then(|| std::mem::take(&mut incoming.bytes))
            .filter(|bytes| !bytes.is_empty());
        (Some(ack), whole)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::random::mix;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    /// Carries pieces and acknowledgements, dropping those for which `lost` says so.
    fn carry(bytes: &Bytes, mut lost: impl FnMut(u32) -> bool) -> Option<Vec<u8>> {
        let (mut sender, mut receiver) = (Transfers::default(), Transfers::default());
        sender.begin(at(0), 2, bytes.clone(), 10);
        let (mut n, mut whole) = (0, None);
        for ms in (0..10_000).step_by(10) {
            let mut chunks = Vec::new();
            sender.take_due(at(ms), |_, body| chunks.push(body));
            for body in chunks {
                let Body::Chunk(chunk) = body else { unreachable!("only chunks are sent") };
                n += 1;
                if lost(n) {
                    continue;
                }
                let (ack, done) = receiver.receive(1, &chunk);
                whole = whole.or(done);
                n += 1;
                if let Some(Body::ChunkAck { transfer, received }) = ack
                    && !lost(n)
                {
                    sender.acknowledged(at(ms), 2, transfer, received);
                }
            }
        }
        assert_eq!(sender.outgoing.contains_key(&2), whole.is_none());
        whole
    }

    #[test]
    fn a_long_message_arrives_whole() {
        let bytes: Bytes = (0..=255).cycle().take(1003).collect::<Vec<u8>>().into();
        assert_eq!(carry(&bytes, |_| false), Some(bytes.to_vec()));
    }

    #[test]
    fn lost_pieces_and_acknowledgements_are_sent_again() {
        let bytes: Bytes = (0..=255).cycle().take(1003).collect::<Vec<u8>>().into();
        assert_eq!(carry(&bytes, |n| mix(&[n.into()]).is_multiple_of(3)), Some(bytes.to_vec()));
        assert_eq!(carry(&bytes, |_| true), None);
    }

    /// A receiver that lost what it had acknowledged asked for its first piece for ever, and its
    /// sender went on from the last: the member never came back (simulator seed 2005347).
    #[test]
    fn a_receiver_that_forgot_what_it_acknowledged_gets_it_anew() {
        let bytes = Bytes::from_iter(0..200_u8);
        let (mut sender, mut receiver) = (Transfers::default(), Transfers::default());
        sender.begin(at(0), 2, bytes.clone(), 10);
        let mut whole = None;
        for ms in (0..6_000).step_by(10) {
            let mut chunks = Vec::new();
            sender.take_due(at(ms), |_, body| chunks.push(body));
            for body in chunks {
                let Body::Chunk(chunk) = body else { unreachable!("only chunks are sent") };
                let (ack, done) = receiver.receive(1, &chunk);
                whole = whole.or(done);
                if let Some(Body::ChunkAck { transfer, received }) = ack {
                    sender.acknowledged(at(ms), 2, transfer, received);
                }
            }
            if ms == 10 {
                receiver = Transfers::default();
            }
        }
        assert_eq!(whole.as_deref(), Some(&bytes[..]));
    }
}
