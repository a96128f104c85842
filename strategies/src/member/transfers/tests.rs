//! Goal: a snapshot arrives whole, over slow and lossy links, and few copies leave.
//! Method: a sender and a receiver in virtual time, with a link between them.

use std::collections::VecDeque;

use super::*;
use crate::random::mix;

fn at(ms: u64) -> Instant {
    Instant::from_origin(Duration::from_millis(ms))
}

/// Carries pieces and acknowledgements, dropping those for which `lost` says so.
fn carry(bytes: &Bytes, mut lost: impl FnMut(u32) -> bool) -> Option<Vec<u8>> {
    let (mut sender, mut receiver) = (Transfers::default(), Transfers::default());
    sender.begin(at(0), 2, bytes.clone(), 10);
    let (mut n, mut whole) = (0, None);
    for ms in (0..2_000_000).step_by(10) {
        let mut chunks = Vec::new();
        sender.send(at(ms), |_, body| chunks.push(body));
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
fn lost_frames_are_retransmitted() {
    let bytes: Bytes = (0..=255).cycle().take(1003).collect::<Vec<u8>>().into();
    assert_eq!(carry(&bytes, |_| false), Some(bytes.to_vec()));
    assert_eq!(carry(&bytes, |n| mix(&[n.into()]).is_multiple_of(3)), Some(bytes.to_vec()));
    assert_eq!(carry(&bytes, |_| true), None);
}

/// How many pieces leave until the last of 24 is acknowledged, and when. A queue takes
/// `piece_ms` for each, then a link `delay_ms` each way.
fn over_a_queue(piece_ms: u64, delay_ms: u64, lost: impl Fn(u64) -> bool) -> (u64, u64) {
    let (mut sender, mut receiver) = (Transfers::default(), Transfers::default());
    sender.begin(at(0), 2, vec![7; 240].into(), 10);
    let (mut pieces, mut acks) = (VecDeque::new(), VecDeque::new());
    let (mut sent, mut free_at) = (0, 0);
    for ms in 0..200_000 {
        while let Some((_, body)) = pieces.pop_front_if(|(at, _)| *at <= ms) {
            let Body::Chunk(chunk) = body else { unreachable!("only chunks are sent") };
            acks.push_back((ms + delay_ms, receiver.receive(1, &chunk).0));
        }
        while let Some((_, ack)) = acks.pop_front_if(|(at, _)| *at <= ms) {
            if let Some(Body::ChunkAck { transfer, received }) = ack {
                sender.acknowledged(at(ms), 2, transfer, received);
            }
        }
        if sender.is_idle() {
            return (sent, ms);
        }
        sender.send(at(ms), |_, body| {
            sent += 1;
            free_at = ms.max(free_at) + piece_ms;
            if !lost(sent) {
                pieces.push_back((free_at + delay_ms, body));
            }
        });
    }
    panic!("{sent} pieces left within 200 s");
}

/// Otherwise copies take all of the link.
#[test]
fn slow_link_carries_few_copies() {
    for piece_ms in [1, 10, 42, 84, 420, 800, 1_050, 2_100, 4_200] {
        for delay_ms in [1, 10, 50, 100] {
            let (sent, ms) = over_a_queue(piece_ms, delay_ms, |_| false);
            assert!(sent <= 24 + 8, "{sent} pieces of {piece_ms} ms, {delay_ms} ms each way");
            assert!(ms <= sent * piece_ms + 12 * delay_ms, "{ms} ms for {sent} pieces");
        }
    }
}

#[test]
fn lost_window_is_sent_again() {
    for piece_ms in [1, 42, 420] {
        for lost in [1..2, 3..4, 3..6, 10..18] {
            let (sent, ms) = over_a_queue(piece_ms, 10, |n| lost.contains(&n));
            assert!(sent <= 24 + 16, "{sent} pieces of {piece_ms} ms, {lost:?} are lost");
            assert!(ms <= sent * piece_ms + 2_000, "{ms} ms for {sent} pieces");
        }
    }
}

/// The numbers of the pieces that are sent at this time.
fn sends(sender: &mut Transfers, ms: u64) -> Vec<u32> {
    let mut indexes = Vec::new();
    sender.send(at(ms), |_, body| match body {
        Body::Chunk(chunk) => indexes.push(chunk.index),
        other => unreachable!("only chunks are sent, not {other:?}"),
    });
    indexes
}

/// Whether an acknowledgement shows progress.
fn progresses(sender: &mut Transfers, ms: u64, from: u64, transfer: u64, acked: u32) -> bool {
    let acked_of = |sender: &Transfers| sender.outgoing.get(&2).map(|o| o.acked);
    let before = acked_of(sender);
    sender.acknowledged(at(ms), from, transfer, acked);
    acked_of(sender) != before
}

fn of_twenty_pieces() -> (Transfers, u64) {
    let mut sender = Transfers::default();
    sender.begin(at(0), 2, vec![7; 200].into(), 10);
    let transfer = sender.outgoing[&2].transfer;
    (sender, transfer)
}

#[test]
fn acknowledgements_open_the_window() {
    let (mut sender, transfer) = of_twenty_pieces();
    assert_eq!(sends(&mut sender, 0), [0]);
    assert_eq!(sends(&mut sender, 1), [0; 0], "a window is in flight");
    for (acked, next) in [(1, vec![1, 2]), (2, vec![3, 4, 5]), (3, vec![6, 7, 8, 9, 10])] {
        assert!(progresses(&mut sender, 10, 2, transfer, acked));
        assert_eq!(sends(&mut sender, 10), next);
    }
    assert!(progresses(&mut sender, 20, 2, transfer, 5));
    assert_eq!(sends(&mut sender, 20), [11, 12], "one for each that arrived");
    assert!(progresses(&mut sender, 30, 2, transfer, 13));
    assert_eq!(sends(&mut sender, 30), [13, 14, 15, 16, 17, 18, 19], "there are no more");
    assert!(progresses(&mut sender, 31, 2, transfer, 20));
    assert_eq!(sends(&mut sender, 500), [0; 0], "all is there");
}

/// With as many pieces acknowledged by then, one by one.
fn after(ms: u64, pieces: u32) -> (Transfers, u64) {
    let (mut sender, transfer) = of_twenty_pieces();
    sends(&mut sender, 0);
    for acked in 1..=pieces {
        assert!(progresses(&mut sender, ms, 2, transfer, acked));
        sends(&mut sender, ms);
    }
    (sender, transfer)
}

#[test]
fn only_the_first_missing_piece_is_sent_again() {
    let (mut sender, transfer) = after(10, 3);
    for ms in [60, 160, 360, 760, 1_560, 3_160, 6_360, 12_760, 20_760, 28_760] {
        assert_eq!(sends(&mut sender, ms - 1), [0; 0], "at {ms} ms");
        assert_eq!(sends(&mut sender, ms), [3]);
    }
    assert!(progresses(&mut sender, 29_000, 2, transfer, 4));
    assert_eq!(sends(&mut sender, 29_000), [4, 5], "all that was in flight is lost");
    assert_eq!(sends(&mut sender, 36_999), [0; 0], "the link may be slow");
    assert_eq!(sends(&mut sender, 37_000), [4]);
}

#[test]
fn forgotten_pieces_are_sent_again() {
    let (mut sender, transfer) = after(1, 5);
    assert!(progresses(&mut sender, 2, 2, transfer, 2));
    assert_eq!(sends(&mut sender, 2), [2]);
    assert!(progresses(&mut sender, 3, 2, transfer, 0));
    assert_eq!(sends(&mut sender, 3), [0]);
    assert!(progresses(&mut sender, 4, 2, transfer, 6), "it was late");
    assert_eq!(sends(&mut sender, 4), [6, 7]);
}

#[test]
fn only_own_fresh_acks_are_progress() {
    let (mut sender, transfer) = of_twenty_pieces();
    sends(&mut sender, 0);
    assert!(!progresses(&mut sender, 1, 2, transfer + 1, 5), "of another transfer");
    assert!(!progresses(&mut sender, 1, 3, transfer, 5), "of another peer");
    assert!(!progresses(&mut sender, 1, 2, transfer, 0), "nothing arrived");
    assert!(!progresses(&mut sender, 1, 2, transfer, 21), "there are only twenty");
    assert!(progresses(&mut sender, 1, 2, transfer, 5));
    assert!(!progresses(&mut sender, 2, 2, transfer, 5), "a copy");
    assert!(progresses(&mut sender, 3, 2, transfer, 20), "all at once");
    assert!(sender.outgoing.is_empty());
}

#[test]
fn newer_snapshot_replaces_the_one_in_transfer() {
    let (mut sender, transfer) = of_twenty_pieces();
    sends(&mut sender, 0);
    sender.begin(at(5), 2, vec![8; 30].into(), 10);
    assert_eq!(sends(&mut sender, 5), [0]);
    assert!(!progresses(&mut sender, 6, 2, transfer, 8), "of the older one");
    assert!(progresses(&mut sender, 6, 2, transfer + 1, 3));
    assert!(sender.is_idle());
}

#[test]
fn transfer_ends_when_none_is_awaited() {
    let (mut sender, transfer) = of_twenty_pieces();
    assert!(!sender.is_idle() && Transfers::default().is_idle());
    sender.begin(at(5), 3, vec![8; 30].into(), 10);
    assert!(sender.outgoing[&3].transfer > transfer, "each has a number of its own");
    sender.receive(4, &piece(1, 0, 2));
    sender.retain(|id| id != 2);
    assert!(sender.is_sending_to(3) && !sender.is_sending_to(2));
    sender.retain(|_| false);
    assert!(sender.outgoing.is_empty());
    sender.retain_received(|id| id == 4);
    assert!(sender.incoming.is_some(), "what a member has sent stays");
    sender.retain_received(|id| id != 4);
    assert!(sender.incoming.is_none());
    sender.begin(at(6), 2, vec![7; 200].into(), 10);
    sender.receive(4, &piece(1, 0, 2));
    sender.clear();
    assert!(sender.outgoing.is_empty() && sender.incoming.is_none(), "the group is left");
}

#[test]
fn snapshot_is_at_most_a_gibibyte() {
    let limit = 1 << 30;
    assert!(fits(0, limit) && fits(limit - 3, 3) && fits(limit, 0));
    assert!(!fits(0, limit + 1) && !fits(limit - 3, 4) && !fits(limit, usize::MAX));
}

fn piece(transfer: u64, index: u32, count: u32) -> Chunk {
    let bytes = Bytes::from(vec![u8::try_from(index).unwrap(); 3]);
    Chunk { transfer, index, count, bytes }
}

/// How much of which transfer is said to have arrived, and whether it is whole.
fn receives(receiver: &mut Transfers, chunk: &Chunk) -> (Option<(u64, u32)>, Option<Vec<u8>>) {
    let (ack, whole) = receiver.receive(1, chunk);
    let ack = ack.map(|ack| match ack {
        Body::ChunkAck { transfer, received } => (transfer, received),
        other => unreachable!("a piece is acknowledged, not {other:?}"),
    });
    (ack, whole)
}

#[test]
fn pieces_count_in_order_and_once() {
    let mut receiver = Transfers::default();
    let mut takes = |index| receives(&mut receiver, &piece(5, index, 3));
    assert_eq!(takes(1), (Some((5, 0)), None), "the first is missing");
    assert_eq!(takes(0), (Some((5, 1)), None));
    assert_eq!(takes(0), (Some((5, 1)), None), "a copy");
    assert_eq!(takes(2), (Some((5, 1)), None), "the second is missing");
    assert_eq!(takes(1), (Some((5, 2)), None));
    let whole = vec![0, 0, 0, 1, 1, 1, 2, 2, 2];
    assert_eq!(takes(2), (Some((5, 3)), Some(whole)));
    assert_eq!(takes(2), (Some((5, 3)), None), "it is handed out once");
    assert_eq!(takes(1), (Some((5, 3)), None));
}

#[test]
fn newer_transfer_replaces_an_older_one() {
    let mut receiver = Transfers::default();
    assert_eq!(receives(&mut receiver, &piece(5, 0, 3)), (Some((5, 1)), None));
    assert_eq!(receives(&mut receiver, &piece(6, 0, 2)), (Some((6, 1)), None));
    assert_eq!(receives(&mut receiver, &piece(5, 1, 3)), (None, None), "a late piece");
    let whole = Some(vec![0, 0, 0, 1, 1, 1]);
    assert_eq!(receives(&mut receiver, &piece(6, 1, 2)), (Some((6, 2)), whole));
}

#[test]
fn piece_beyond_the_end_is_ignored() {
    let mut receiver = Transfers::default();
    assert_eq!(receives(&mut receiver, &piece(5, 0, 0)), (Some((5, 0)), None));
    assert_eq!(receives(&mut receiver, &piece(6, 0, 2)), (Some((6, 1)), None));
    assert_eq!(receives(&mut receiver, &piece(6, 1, 1)), (Some((6, 1)), None));
    assert_eq!(receiver.incoming.as_ref().unwrap().bytes.len(), 3);
    let forged = Chunk { transfer: 7, index: u32::MAX, count: 0, bytes: Bytes::new() };
    assert_eq!(receives(&mut receiver, &forged), (Some((7, 0)), None));
}

#[test]
fn new_leaders_snapshot_replaces_all() {
    let mut receiver = Transfers::default();
    receiver.receive(1, &piece(5, 0, 3));
    receiver.receive(2, &piece(1, 0, 2));
    let incoming = receiver.incoming.as_ref().unwrap();
    assert_eq!((incoming.from, incoming.transfer, incoming.bytes.len()), (2, 1, 3));
}
