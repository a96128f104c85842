//! What a run may do, and which bug is planted in it.

use gaggle_strategies::lock_table::{TableConfig, Wait};

/// One tick of every clock, in milliseconds of the lock table.
pub(crate) const TICK_MS: u64 = 1000;
/// Every lease, in ticks.
pub(crate) const LEASE_TICKS: u64 = 2;
/// A client's clock is as slow against cluster time as the default drift allows: 1 %.
pub(crate) const CLIENT_TICK_MS: u64 = 990;
/// The one key.
pub(crate) const KEY: &str = "k";

/// A bug of the model's own layers: the abstract Raft, the leader's clock, the client and the
/// resource. The real lock table stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A candidate wins, and an entry is committed, without any other node.
    QuorumOfOne,
    /// A leader counts copies of entries of earlier terms (Raft §5.4.2 forbids it).
    OldTermCommittedByCount,
    /// A voter does not compare logs (Raft §5.4.1).
    VoteForLogBehind,
    /// A voter forgets that it voted in this term.
    SecondVote,
    /// A leader stamps with the clock of its own node, which may be behind the log.
    ClockNotClamped,
    /// The holder counts its lease from the reply's arrival.
    DeadlineFromReply,
    /// The holder trusts its clock's rate.
    DriftIgnored,
    /// A leader answers from entries that are not committed.
    ReplyBeforeCommit,
    /// A late copy of a LOCK carries the time of its delivery, not that of its sending.
    CopyCarriesFreshTime,
    /// The resource takes every write.
    TokenNotChecked,
}

/// The bounds of one configuration. Within them the search is exhaustive.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// How long each client's LOCK queues; their number is the number of clients.
    pub(crate) waits: Vec<Wait>,
    /// The greatest term.
    pub(crate) terms: u8,
    /// Entries in a log.
    pub(crate) slots: u8,
    /// Ticks of real time.
    pub(crate) ticks: u8,
    /// How often one LOCK may be appended: a retry or a duplicate that comes late.
    pub(crate) lock_copies: u8,
    /// How often one UNLOCK may be appended.
    pub(crate) unlock_copies: u8,
    /// How many clients may die, at any moment.
    pub(crate) deaths: u8,
    /// How many clients may extend, once each.
    pub(crate) extends: u8,
    /// Whether a leader's clock may miss a tick: slow, or its entries late.
    pub(crate) slow_clocks: bool,
    /// Whether each holder may write to the resource once; the write lands at any later moment.
    pub(crate) writes: bool,
    /// How long ended nonces are remembered, in ticks; the whole run by default.
    pub(crate) nonce_memory: u8,
    /// Whether equivalent states count once.
    pub(crate) reduced: bool,
    /// The planted bug.
    pub(crate) fault: Option<Fault>,
}

impl Bounds {
    pub(crate) fn clients(waits: &[Wait]) -> Self {
        Self {
            waits: waits.to_vec(),
            terms: 2,
            slots: 5,
            ticks: 3,
            lock_copies: 1,
            unlock_copies: 1,
            deaths: 0,
            extends: 0,
            slow_clocks: false,
            writes: false,
            nonce_memory: 200,
            reduced: true,
            fault: None,
        }
    }

    pub(crate) fn with(mut self, fault: Fault) -> Self {
        // The reduction presumes the rules that a bug breaks.
        self.reduced = false;
        self.fault = Some(fault);
        self
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(crate) fn table(&self) -> TableConfig {
        let nonce_memory_ms = u64::from(self.nonce_memory) * TICK_MS;
        TableConfig { nonce_memory_ms, ..TableConfig::default() }
    }
}
