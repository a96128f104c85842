use std::{borrow::Cow, cell::RefCell, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{LABEL_BYTES_MAX, Lock, Nonce, Owner, options::HOST_BYTES_MAX};

/// Cluster time in milliseconds: the only clock that a lock table sees. Leaders stamp it into
/// entries; it never goes back, and it says nothing about the wall clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ClusterTime(pub u64);

impl ClusterTime {
    /// This time plus `ms` milliseconds, at most the end of time.
    #[must_use]
    pub const fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`, zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// One run of one process: a restarted process has another. Waiters of a process live and die
/// together.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ProcessId(pub u64);

/// One command, as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Grants the key to the nonce, or queues it, or refuses it.
    Lock(LockRequest),
    /// Frees the acquisition of `nonce`, whether it holds or waits; for a nonce never seen it
    /// leaves a tombstone, so that a LOCK that arrives later grants nothing.
    Unlock {
        /// The key.
        #[serde(deserialize_with = "shared")]
        key: Arc<str>,
        /// The acquisition.
        nonce: Nonce,
        /// The sender knows that no copy of its LOCK can be under way (sent once, and answered):
        /// then nothing need be remembered.
        forget: bool,
    },
    /// Ends the lease of `nonce` at the later of its present end and `duration_ms` from now.
    Extend {
        /// The key.
        #[serde(deserialize_with = "shared")]
        key: Arc<str>,
        /// The acquisition.
        nonce: Nonce,
        /// Who asks: it gets the answer, and holds from now on.
        process: ProcessId,
        /// Names this request among those of `process`, so that its answer can be told apart.
        request: u64,
        /// From now.
        duration_ms: u64,
    },
    /// Drops every waiter of a process that was replaced or not heard for `waiter_ttl`.
    Gone {
        /// The process.
        process: ProcessId,
    },
    /// Moves the time on, and ends what is due.
    Noop,
}

/// A LOCK command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRequest {
    /// The key.
    #[serde(deserialize_with = "shared")]
    pub key: Arc<str>,
    /// The acquisition. A repeated nonce keeps its grant or its place.
    pub nonce: Nonce,
    /// Who asks.
    pub process: ProcessId,
    /// Names this LOCK among the requests of `process`: copies of one have the same, and a later
    /// LOCK of the same nonce has a greater one, unless there is but one sender and its answers come in order
    /// ([`Local`](crate::Local)). An answer carries it, because a late copy of an
    /// earlier LOCK says nothing about when this one was sent.
    pub request: u64,
    /// The lease, from the grant on.
    pub duration_ms: u64,
    /// How long to queue.
    pub wait: Wait,
    /// The newest cluster time that the sender had seen when it drew the nonce's first send.
    pub seen: Seen,
    /// For inspection.
    #[serde(deserialize_with = "shared_owner")]
    pub owner: Arc<Owner>,
}

/// How long a LOCK queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Not at all: held means refused.
    No,
    /// This many milliseconds from the command's own stamp.
    Ms(u64),
    /// For ever.
    Forever,
}

/// How old a LOCK may be: it is refused once finished nonces of its age may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// The sender has seen no time of this group: refused with the present time, to be repeated
    /// at once.
    Never,
    /// The sender saw this time of this group.
    At {
        /// The group's random id; times of another group say nothing.
        group: u128,
        /// The time.
        time: ClusterTime,
    },
    /// No copy of this command can be under way besides this one, nor be delayed (the local
    /// strategy): always young enough.
    Now,
}

/// What applying a command did. Effects come in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// The nonce holds the key (also repeated in answer to a repeated LOCK).
    Granted(Grant),
    /// The nonce waits (also in answer to a repeated LOCK).
    Queued {
        /// The key.
        key: Arc<str>,
        /// The acquisition.
        nonce: Nonce,
        /// Who asked.
        process: ProcessId,
        /// Which request.
        request: u64,
    },
    /// The LOCK grants nothing. A refusal is not an outcome of the nonce: it is judged anew when
    /// repeated.
    Refused {
        /// The acquisition.
        nonce: Nonce,
        /// Who asked.
        process: ProcessId,
        /// Which request.
        request: u64,
        /// Why.
        reason: Refusal,
    },
    /// The answer to an UNLOCK.
    Unlocked {
        /// The key.
        key: Arc<str>,
        /// The acquisition.
        nonce: Nonce,
        /// Which LOCK of it, where it held or waited: the newest, or the EXTEND by which a lock was handed over;
        /// else 0.
        request: u64,
        /// What the nonce was before.
        was: Ended,
    },
    /// The answer to an EXTEND.
    Extended {
        /// The acquisition.
        nonce: Nonce,
        /// Who asked.
        process: ProcessId,
        /// Which request.
        request: u64,
        /// The token of the acquisition and the end of its lease now; `None` if the nonce does not
        /// hold the key.
        held: Option<(u64, ClusterTime)>,
    },
    /// A lease ran out.
    Expired {
        /// The key.
        key: Arc<str>,
        /// The acquisition.
        nonce: Nonce,
        /// Who held it.
        process: ProcessId,
        /// Which request of that process: as [`Unlocked`](Self::Unlocked) has it.
        request: u64,
        /// Its token.
        token: u64,
    },
    /// A waiter left the queue without a grant: its `max_wait` passed or its process was gone.
    Dropped {
        /// The key.
        key: Arc<str>,
        /// The acquisition.
        nonce: Nonce,
        /// Who waited.
        process: ProcessId,
        /// Which LOCK of that process: the newest.
        request: u64,
    },
}

/// A grant, with both stamps that the holder's deadline needs.
///
/// A repeated LOCK is answered with the stamps of the grant that it finds, which are independent of
/// the time at which the repetition was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The key.
    pub key: Arc<str>,
    /// The acquisition.
    pub nonce: Nonce,
    /// Who holds.
    pub process: ProcessId,
    /// The newest LOCK of the nonce that `process` sent.
    pub request: u64,
    /// The fencing token, greater than every token before it in this table.
    pub token: u64,
    /// The stamp of the newest LOCK of this nonce. The holder counts its deadline from its own
    /// send of that LOCK or of an earlier one: a LOCK repeated late, by whichever process, must
    /// not count the whole lease from its late send.
    pub asked_at: ClusterTime,
    /// The stamp of the grant.
    pub granted_at: ClusterTime,
    /// The end of the lease; the key is free from this time on.
    pub expires_at: ClusterTime,
}

impl Grant {
    /// Whether `lock` is what it granted: of its nonce, and not of a later acquisition by it.
    pub(crate) fn is_of(&self, lock: &Lock) -> bool {
        (self.nonce, self.token) == (lock.nonce(), lock.fencing_token())
    }
}

/// Why a LOCK grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Another nonce holds the key, and the LOCK does not wait.
    Held,
    /// The LOCK is older than `nonce_memory`, or of another group: repeat it with this time.
    Stale {
        /// The group.
        group: u128,
        /// The present time.
        now: ClusterTime,
    },
    /// The nonce was unlocked or withdrawn, or its lease ran out; with [`Ended::Unknown`]: it holds
    /// or waits for another key.
    Spent(Ended),
    /// A bound is reached.
    Limit {
        /// What is bounded.
        what: Bound,
        /// The bound.
        limit: u64,
    },
}

/// What is bounded in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Waiters on one key.
    WaitersPerKey,
    /// Keys that are held.
    Keys,
    /// Nonces remembered.
    Nonces,
}

/// What a nonce was when an UNLOCK reached it, or how it had ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// It held the key; now it does not.
    Held,
    /// It waited; now it does not.
    Waited,
    /// It had been unlocked (or withdrawn after a grant) before.
    Unlocked,
    /// It had been withdrawn before it was granted.
    Withdrawn,
    /// Its lease had run out.
    Expired,
    /// The table does not know it.
    Unknown,
}

/// A key as it stands in what is read, copied once: serde's own way to an `Arc<str>` copies it into a
/// box first, and every member reads the keys of every entry.
fn shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    struct Key;

    impl de::Visitor<'_> for Key {
        type Value = Arc<str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a key")
        }

        fn visit_str<E: de::Error>(self, key: &str) -> Result<Arc<str>, E> {
            Ok(key.into())
        }
    }

    from.deserialize_str(Key)
}

/// An owner as it stands in what is read. Mostly it is the one that was read before, and is shared then:
/// a process has many locks, and every member reads the owner of each.
pub(super) fn shared_owner<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Owner>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename = "Owner")]
    struct Read<'a> {
        #[serde(borrow)]
        host: Cow<'a, str>,
        pid: u32,
        #[serde(borrow)]
        label: Option<Text<'a>>,
    }
    // Within an option serde does not borrow a bare `Cow`.
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    thread_local! {
        static LAST: RefCell<Arc<Owner>> = RefCell::default();
    }

    let Read { host, pid, label } = Read::deserialize(from)?;
    let label = label.map(|Text(label)| label);
    LAST.with_borrow_mut(|last| {
        if (&*last.host, last.pid, last.label.as_deref()) != (&*host, pid, label.as_deref()) {
            let (host, label) = (host.into_owned(), label.map(Cow::into_owned));
            let owner = Arc::new(Owner { host, pid, label });
            // What is longer than any that is let in is not kept.
            if owner.host.len() > HOST_BYTES_MAX
                || owner.label.as_ref().is_some_and(|label| label.len() > LABEL_BYTES_MAX)
            {
                return Ok(owner);
            }
            *last = owner;
        }
        Ok(last.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_table::tests::request;

    #[test]
    fn a_span_is_never_negative_and_a_time_never_beyond_the_end() {
        let (early, late) = (ClusterTime(3), ClusterTime(10));
        assert_eq!((late.since(early), early.since(late), late.since(late)), (7, 0, 0));
        assert_eq!(ClusterTime(u64::MAX).after(1), ClusterTime(u64::MAX));
    }

    #[test]
    fn an_owner_is_shared_with_the_one_that_was_read_before_if_it_is_the_same() {
        let owner = |host: &str, pid, label: Option<&str>| {
            let owner = Owner { host: host.into(), pid, label: label.map(Into::into) };
            let request = LockRequest { owner: owner.into(), ..request(1, 1000, Wait::No) };
            let bytes = postcard::to_stdvec(&request).unwrap();
            let read: LockRequest = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(read, request);
            read.owner
        };
        for (host, pid, label) in [
            ("h", 1, None),
            ("h", 1, Some("l")),
            ("h", 1, Some("m")),
            ("h", 2, None),
            ("i", 2, None),
        ] {
            let first = owner(host, pid, label);
            assert!(Arc::ptr_eq(&first, &owner(host, pid, label)), "{first:?}");
        }
        for (host, label) in
            [(HOST_BYTES_MAX, LABEL_BYTES_MAX + 1), (HOST_BYTES_MAX + 1, LABEL_BYTES_MAX)]
        {
            let (host, label) = ("h".repeat(host), "l".repeat(label));
            let long = || owner(&host, 3, Some(&label));
            assert!(!Arc::ptr_eq(&long(), &long()), "what is too long is not kept");
        }
        let longest = || owner(&"h".repeat(HOST_BYTES_MAX), 3, Some(&"l".repeat(LABEL_BYTES_MAX)));
        assert!(Arc::ptr_eq(&longest(), &longest()));
    }
}
