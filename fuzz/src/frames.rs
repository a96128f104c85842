//! Every decoder, and a cluster of live nodes behind the member's.
//!
//! The first byte chooses. Bytes for the decoders go to all of them: rubbish for one is
//! nearly valid for another, and a committed input in one format is a start for its neighbours. The
//! formats of members are dense (any few bytes are a valid beginning), so mutation builds values as
//! well as a generator would.
//!
//! - *Never panic*: as it stands.
//! - *Never allocate out of proportion*: all that the decoders and the round trip allocate
//!   together, freed or not, stays below a fixed sum and a multiple of the input's length.
//! - *`decode(encode(x)) == x`*: for each `x` that any bytes decode to.
//! - *Live nodes*: one to three real ones form in virtual time; then come calls, faults, and frames
//!   that are forged, altered, sent again, or rubbish. No node panics, and every table stays whole.

use gaggle_strategies::{Lock, testing::decoders::Hostilities};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// The bytes that any input may allocate: errors, examples, a URL's parts.
const ALLOCATED_MAX: usize = 64 * 1024;
/// And for each byte of the input: a byte that stands for an element of a list costs the size of
/// that element, several times over.
const ALLOCATED_PER_BYTE_MAX: usize = 2 * 1024;

/// A password that no message may show.
const SECRET: &str = "Xq7Zr2Vw9Kp4Nt6B";

/// The target that the first byte of an input chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// For every decoder of bytes.
    Decoders(&'a [u8]),
    /// For the parser of URLs.
    Url(&'a [u8]),
    /// For live nodes.
    Cluster(&'a [u8]),
}

impl<'a> Input<'a> {
    /// Reads an input; every sequence of bytes is one.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Self {
        match data.split_first() {
            Some((choice, rest)) if choice % 4 == 1 => Self::Cluster(rest),
            Some((choice, rest)) if choice % 4 == 2 => Self::Url(rest),
            Some((_, rest)) => Self::Decoders(rest),
            None => Self::Decoders(&[]),
        }
    }

    /// Runs it.
    ///
    /// # Panics
    ///
    /// See [`frames`](fn@crate::frames).
    pub fn run(self) {
        match self {
            Self::Decoders(bytes) => {
                decoders(bytes);
            }
            Self::Url(bytes) => in_proportion(bytes, ALLOCATED_MAX, url),
            Self::Cluster(bytes) => {
                let _: Hostilities = gaggle_strategies::testing::decoders::live_cluster(bytes);
            }
        }
    }
}

fn in_proportion<T>(bytes: &[u8], base: usize, decode: impl Fn(&[u8]) -> T) -> T {
    let region = Region::new(ALLOCATOR);
    let result = decode(bytes);
    let stats = region.change();
    let allocated = stats.bytes_allocated + stats.bytes_reallocated.unsigned_abs();
    let limit = base + ALLOCATED_PER_BYTE_MAX * bytes.len();
    assert!(allocated <= limit, "{allocated} bytes allocated for {} bytes", bytes.len());
    result
}

/// Feeds every decoder of bytes. Returns how many took them.
pub fn decoders(bytes: &[u8]) -> u32 {
    in_proportion(bytes, ALLOCATED_MAX, gaggle_strategies::testing::decoders::feed)
        + u32::from(in_proportion(bytes, ALLOCATED_MAX, lock_as_text))
        + u32::from(in_proportion(bytes, ALLOCATED_MAX, lock_as_bytes))
}

fn lock_as_text(bytes: &[u8]) -> bool {
    let Ok(lock) = serde_json::from_slice::<Lock>(bytes) else { return false };
    assert_eq!(lock.deadline(), None, "a deadline does not travel");
    let again = serde_json::to_string(&lock).expect("a lock serialises");
    assert_eq!(serde_json::from_str::<Lock>(&again).expect("it is one of ours"), lock);
    true
}

fn lock_as_bytes(bytes: &[u8]) -> bool {
    let Ok(lock) = postcard::from_bytes::<Lock>(bytes) else { return false };
    let again = postcard::to_allocvec(&lock).expect("a lock serialises");
    assert_eq!(postcard::from_bytes::<Lock>(&again), Ok(lock));
    true
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
