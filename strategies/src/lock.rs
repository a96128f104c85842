//! A lock as a value with nonce, token and deadline, and the result of an inspection.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{clock::Instant, fork::unshared_random, printable::Printable};

/// Names one acquisition: a UUID, never a client, a thread or a task.
///
/// A generated nonce is of version 7 (RFC 9562 §5.7): 48 bits of time and 74 random ones. A wrong
/// clock does no harm. The time makes nonces of one moment neighbours in ordered tables. With
/// random nonces, lookups miss the caches: a hand-off among 100,000 waiters takes three times as
/// long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nonce(uuid::Uuid);

impl Nonce {
    /// Generates a nonce that no other process has, not even a fork of this one. The nonce's time
    /// is that of the system's last tick, a few milliseconds old, which costs less to read.
    #[must_use]
    pub fn random() -> Self {
        Self::of_now(&unshared_random())
    }

    /// Generates a nonce that differs from all others of this process, with no system call. With a
    /// mask that a fork does not share, it also differs from the fork's nonces.
    pub(crate) fn masked(mask: &[u8; 10]) -> Self {
        let random: [u8; 10] = rand::random();
        Self::of_now(&std::array::from_fn(|at| random[at] ^ mask[at]))
    }

    fn of_now(random: &[u8; 10]) -> Self {
        let ms = u64::try_from(wall().as_millis()).unwrap_or(0);
        Self(uuid::Builder::from_unix_timestamp_millis(ms, random).into_uuid())
    }

    /// The nonce of these 128 bits, for seeded tests and stored nonces.
    #[must_use]
    pub const fn from_u128(bits: u128) -> Self {
        Self(uuid::Uuid::from_u128(bits))
    }

    /// The nonce of these 128 bits for [`LockOptions::nonce`](crate::LockOptions::nonce): of version
    /// 8, whose four bits are not taken from `bits`.
    #[doc(hidden)]
    #[must_use]
    pub const fn given(bits: u128) -> Self {
        Self::from_u128(with_version(bits, 8))
    }

    /// The generated nonce of these 128 bits: of version 7.
    #[cfg(any(feature = "http", feature = "raft", feature = "redis"))]
    pub(crate) const fn generated(bits: u128) -> Self {
        Self::from_u128(with_version(bits, 7))
    }

    /// Whether a caller gave the nonce. Only an `unlock` and the granting side's time end such an
    /// acquisition: another process may rely on it.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_given(self) -> bool {
        self.as_u128() >> VERSION_AT & 0xf == 8
    }

    /// The 128 bits of the nonce.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0.as_u128()
    }
}

/// The position of the version in the bits of a UUID (RFC 9562 §4.2).
const VERSION_AT: u32 = 76;

const fn with_version(bits: u128, version: u128) -> u128 {
    bits & !(0xf << VERSION_AT) | version << VERSION_AT
}

/// The time since 1970, which need not be exact.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn wall() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn wall() -> Duration {
    Duration::from_nanos(crate::clock::Clock::wall_nanos(&crate::clock::BootClock))
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

/// A granted acquisition, as a plain value.
///
/// It can be cloned, stored and sent to another process. Serialised, it loses its deadline, because
/// a monotonic clock does not travel: the receiver can unlock and extend, and counts as holding
/// only after a successful extend.
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
    /// Creates a lock. Only strategies call this: users receive locks.
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

    /// The nonce, which names this acquisition.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The fencing token, which grows with every grant of the key. Pass it to the resource with
    /// every request, reads included. The resource refuses a token smaller than the greatest it has
    /// seen: nothing else stops a write in flight.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// The time until which the holder may rely on the lock, on the strategy's clock. `None` in a
    /// process that received the lock and has not extended it.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The same acquisition with another deadline, as `extend` returns it.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }
}

/// The process that requested a lock: for diagnostics, never for decisions.
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
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        Self { host, pid: std::process::id(), label }
    }

    /// This owner, or a copy with the label of one call.
    pub(crate) fn labelled(self: &Arc<Self>, label: Option<&str>) -> Arc<Self> {
        match label {
            None => self.clone(),
            Some(label) => Arc::new(Self { label: Some(label.into()), ..(**self).clone() }),
        }
    }
}

/// For messages: `web-3, pid 711 (nightly)`. Characters that control a terminal or reorder text
/// are escaped: another process has chosen them.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, pid {}", Printable(&self.host), self.pid)?;
        let label = self.label.as_ref().filter(|label| !label.is_empty());
        label.map_or(Ok(()), |label| write!(f, " ({})", Printable(label)))
    }
}

/// The holder of a key at one moment; it may be outdated when it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The holder's fencing token.
    pub fencing_token: u64,
    /// The holder's nonce.
    pub nonce: Nonce,
    /// The holder's process.
    pub owner: Owner,
    /// How long ago the key was granted to it.
    pub held_for: Duration,
    /// How long the lease still lasts if it is not extended.
    pub remaining: Duration,
    /// How many waiters the key has.
    pub waiters: u64,
}

/// Why a lock can no longer be relied on, as a watch and the `loss` of a guard return it.
///
/// ```
/// use gaggle_strategies::{KeyedMutex, Local, LockOptions, lock::LossCause};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_strategies::Error> {
/// let mutex = Local::new();
/// let lock = mutex.lock("orders/42", LockOptions::default()).await?;
/// let watch = mutex.watch(&lock);
/// let operator = mutex.operator().expect("a Local has one");
/// operator.force_unlock("orders/42", None, "ticket 7: the job hangs").await?;
/// assert_eq!(watch.cause(), Some(LossCause::Forced));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The local deadline is reached.
    Deadline,
    /// The granting side no longer counts it as the holder, or the handle was closed.
    Ended,
    /// Another process unlocked it: an operator or, on members, the process to which it was
    /// transferred. Redis does not report the latter.
    Forced,
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::{Nonce, Owner};

    #[test]
    fn nonces_differ_and_follow_time() {
        let nonces = || (0..10_000).map(|_| Nonce::random()).collect::<BTreeSet<_>>();
        let earlier = nonces();
        // More than a tick of the system.
        std::thread::sleep(Duration::from_millis(50));
        let later = nonces();
        assert_eq!(earlier.union(&later).count(), 20_000);
        assert!(earlier.last() < later.first());
        for nonce in earlier.union(&later) {
            assert_eq!(
                (nonce.0.get_version_num(), nonce.0.get_variant()),
                (7, uuid::Variant::RFC4122)
            );
        }
    }

    #[test]
    fn owner_shows_no_control_character() {
        let label = Some("\u{1b}]0;x\u{7}\n\u{9b}2J \u{202e}\u{2066} zoë \\ 定时 👩‍🚀".to_owned());
        let owner = Owner { host: "h\r".into(), pid: 7, label };
        assert_eq!(
            owner.to_string(),
            "h\\r, pid 7 (\\u{1b}]0;x\\u{7}\\n\\u{9b}2J \\u{202e}\\u{2066} zoë \\ 定时 👩‍🚀)"
        );
    }

    #[test]
    fn owner_with_an_empty_label_shows_none() {
        let owner = Owner { host: "h".into(), pid: 7, label: Some(String::new()) };
        assert_eq!(owner.to_string(), "h, pid 7");
    }
}
