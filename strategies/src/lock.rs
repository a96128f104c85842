//! What a granted lock is as a value: its nonce, token and deadline, and what an inspection shows.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::Instant;

/// Names one acquisition: a UUID, never a client, a thread or a task.
///
/// A generated one is of version 7 (RFC 9562 §5.7): 48 bits of time, which are its first, and 74
/// that are random. Its time decides nothing, and a wrong clock does no harm. It makes nonces of
/// one moment neighbours in the ordered tables, where they are looked up together: with random ones
/// a hand-off among 100,000 waiters takes three times as long, because each lookup misses the
/// caches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nonce(uuid::Uuid);

impl Nonce {
    /// Generates a fresh one, from the thread's generator: the system's own costs a system call for
    /// every lock. Its time is that of the system's last tick, a few milliseconds old, which costs
    /// less to read.
    #[must_use]
    pub fn random() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = rustix::time::ClockId::RealtimeCoarse;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = rustix::time::ClockId::Realtime;
        let time = rustix::time::clock_gettime(id);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        let ms = seconds.saturating_mul(1000) + nanos / 1_000_000;
        Self(uuid::Builder::from_unix_timestamp_millis(ms, &rand::random()).into_uuid())
    }

    /// The nonce of these 128 bits, for seeded tests and for a nonce that was stored.
    #[must_use]
    pub const fn from_u128(bits: u128) -> Self {
        Self(uuid::Uuid::from_u128(bits))
    }

    /// Its 128 bits.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0.as_u128()
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.simple(), f)
    }
}

/// One granted acquisition, as a plain value.
///
/// It can be cloned, stored and sent to another process. Serialised, it leaves its deadline
/// behind, because a monotonic clock does not travel: the process that receives it can unlock and
/// extend, and counts as holding only after a successful extend.
///
/// A `Lock` does nothing when dropped; `gaggle::Guard` does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    key: Arc<str>,
    nonce: Nonce,
    fencing_token: u64,
    #[serde(skip)]
    deadline: Option<Instant>,
}

impl Lock {
    /// What a strategy returns when it has granted; users receive locks, they do not make them.
    #[must_use]
    pub fn new(
        key: impl Into<Arc<str>>,
        nonce: Nonce,
        fencing_token: u64,
        deadline: Option<Instant>,
    ) -> Self {
        Self { key: key.into(), nonce, fencing_token, deadline }
    }

    /// The key that is locked.
    #[must_use]
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The name of this acquisition.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Grows with every grant of the key. Pass it to the resource with every request, reads
    /// included; the resource refuses a smaller token than the greatest it has seen. That, and only
    /// that, stops a write already in flight.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// Until when the holder may rely on the lock, on the strategy's own clock; `None` in a
    /// process that received the lock and has not extended it.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The same acquisition with another deadline: what a strategy returns from `extend`.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }
}

/// The process that requested a lock: for people, never for decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The host's name.
    pub host: String,
    /// The operating system's process id.
    pub pid: u32,
    /// [`LockOptions::label`](crate::LockOptions).
    pub label: Option<String>,
}

impl Owner {
    /// This process, with a label.
    #[must_use]
    pub fn this_process(label: Option<String>) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { host, pid: std::process::id(), label }
    }
}

/// What an inspection of a key shows: a moment's view, which may be outdated when it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The holder's fencing token.
    pub fencing_token: u64,
    /// The holder's nonce.
    pub nonce: Nonce,
    /// Who holds it.
    pub owner: Owner,
    /// How long the lease still lasts if it is not extended.
    pub remaining: Duration,
    /// How many waiters the key has.
    pub waiters: u64,
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::Nonce;

    #[test]
    fn nonces_differ_and_follow_time() {
        let draw = || (0..10_000).map(|_| Nonce::random()).collect::<BTreeSet<_>>();
        let earlier = draw();
        // More than a tick of the system.
        std::thread::sleep(Duration::from_millis(50));
        let later = draw();
        assert_eq!(earlier.union(&later).count(), 20_000);
        assert!(earlier.last() < later.first());
        for nonce in earlier.union(&later) {
            assert_eq!(
                (nonce.0.get_version_num(), nonce.0.get_variant()),
                (7, uuid::Variant::RFC4122)
            );
        }
    }
}
