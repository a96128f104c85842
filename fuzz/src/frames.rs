//! Bytes from the network, and from files, through the public entrances.
//!
//! The first byte chooses.
//!
//! - *Members*: one to three form a group in virtual time; then come calls, restarts, and frames
//!   that are altered, sent again, sent in another's name, or rubbish. No member panics, and every
//!   table stays whole. A process without a group also receives them as the end of a frame.
//! - *Redis*: a server that replies by hostile bytes from some reply on. No client panics.
//! - *Locks and URLs*: what decodes comes back from its own encoding, no message shows a password.
//!
//! No target allocates more than a fixed sum and a multiple of the input's length.

mod server;

use gaggle_channels::{FRAME_BYTES_MAX, NodeName};
use gaggle_lab::simulator::{Hostilities, attack};
use gaggle_strategies::{
    Lock, MemberOptions,
    clock::Instant,
    member::{Node, RunOptions},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// The bytes that any input may allocate: errors, examples, a URL's parts.
const ALLOCATED_MAX: usize = 64 * 1024;
/// The bytes that a client of Redis and its server may allocate in all.
const ALLOCATED_BY_CLIENT_MAX: usize = 4 * 1024 * 1024;
/// And for each byte of the input: a byte that stands for an element of a list costs the size of
/// that element, several times over.
const ALLOCATED_PER_BYTE_MAX: usize = 2 * 1024;

/// A password that no message may show.
const SECRET: &str = "Xq7Zr2Vw9Kp4Nt6B";

/// The target that the first byte of an input chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// For the decoders of locks.
    Locks(&'a [u8]),
    /// For the parser of URLs.
    Url(&'a [u8]),
    /// For members of a group.
    Members(&'a [u8]),
    /// For a client of Redis.
    Redis(&'a [u8]),
}

impl<'a> Input<'a> {
    /// Reads an input; every sequence of bytes is one.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Self {
        match data.split_first() {
            Some((choice, rest)) if choice % 4 == 1 => Self::Members(rest),
            Some((choice, rest)) if choice % 4 == 2 => Self::Url(rest),
            Some((choice, rest)) if choice % 4 == 3 => Self::Redis(rest),
            Some((_, rest)) => Self::Locks(rest),
            None => Self::Locks(&[]),
        }
    }

    /// Runs it.
    ///
    /// # Panics
    ///
    /// See [`frames`](fn@crate::frames).
    pub fn run(self) {
        match self {
            Self::Locks(bytes) => {
                in_proportion(bytes, ALLOCATED_MAX, lock_as_text);
                in_proportion(bytes, ALLOCATED_MAX, lock_as_bytes);
            }
            Self::Url(bytes) => in_proportion(bytes, ALLOCATED_MAX, url),
            Self::Members(bytes) => {
                let _: Hostilities = attack(bytes);
                let (mut member, frame) = (process("b"), frame_with_end(bytes));
                in_proportion(&frame, ALLOCATED_MAX, |frame| {
                    member.receive(Instant::default(), &name("a"), frame);
                });
            }
            Self::Redis(bytes) => {
                in_proportion(bytes, ALLOCATED_BY_CLIENT_MAX, server::reply_by);
            }
        }
    }
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).expect("a short name")
}

/// A process that is in no group.
fn process(me: &str) -> Node {
    let options = MemberOptions::named("fuzz", ["a", "b"].map(name));
    Node::new(name(me), &options, FRAME_BYTES_MAX, &RunOptions::new(1), Instant::default())
}

/// The first frame of the process `a`, with these bytes in place of its end. The first byte says
/// how much of it stays.
fn frame_with_end(bytes: &[u8]) -> Vec<u8> {
    let (mut a, now) = (process("a"), Instant::default());
    a.tick(now, 1);
    a.flush(now, &mut Vec::new()).expect("its name is not in use");
    let mut frame = a.end_turn(now).swap_remove(0).bytes.to_vec();
    let (first, end) = bytes.split_first().unwrap_or((&0, &[]));
    frame.truncate(usize::from(*first) % frame.len());
    frame.extend_from_slice(end);
    frame
}

fn in_proportion(bytes: &[u8], base: usize, mut decode: impl FnMut(&[u8])) {
    let region = Region::new(ALLOCATOR);
    decode(bytes);
    let stats = region.change();
    let allocated = stats.bytes_allocated + stats.bytes_reallocated.unsigned_abs();
    let limit = base + ALLOCATED_PER_BYTE_MAX * bytes.len();
    assert!(allocated <= limit, "{allocated} bytes allocated for {} bytes", bytes.len());
}

fn lock_as_text(bytes: &[u8]) {
    let Ok(lock) = serde_json::from_slice::<Lock>(bytes) else { return };
    assert_eq!(lock.deadline(), None, "a deadline does not travel");
    let again = serde_json::to_string(&lock).expect("a lock serialises");
    assert_eq!(serde_json::from_str::<Lock>(&again).expect("it is one of ours"), lock);
}

fn lock_as_bytes(bytes: &[u8]) {
    let Ok(lock) = postcard::from_bytes::<Lock>(bytes) else { return };
    let again = postcard::to_allocvec(&lock).expect("a lock serialises");
    assert_eq!(postcard::from_bytes::<Lock>(&again), Ok(lock));
}

/// Parses a URL, then the same with a password in it, which no message may show.
fn url(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = gaggle::Url::parse(&text) {
        assert!(error.to_string().len() <= 4 * text.len() + 4_096, "a message has bounds");
    }
    for scheme in ["redis", "gaggle+redis", "raft+tcp", "local"] {
        let secret = format!("{scheme}://user:{SECRET}@{text}");
        let Err(error) = gaggle::Url::parse(&secret) else { continue };
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(SECRET), "a password is shown: {shown}");
    }
}
