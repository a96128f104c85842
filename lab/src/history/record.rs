//! Records calls, and refuses malformed histories.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gaggle_strategies::lock::Nonce;

use super::{Call, Operation, Outcome};

/// Collects the observations of clients, and makes a [`History`] of them.
///
/// ```
/// use std::time::Duration;
///
/// use gaggle_lab::history::{Call, ModelKind, Outcome, Recorder, Settings, check};
/// use gaggle_strategies::lock::Nonce;
///
/// const fn ms(ms: u64) -> Duration {
///     Duration::from_millis(ms)
/// }
///
/// let mut recorder = Recorder::new();
/// for (client, at) in [(1, ms(0)), (2, ms(5))] {
///     let nonce = Nonce::from_u128(client.into());
///     let call = Call::Lock { duration: ms(100), max_wait: None };
///     recorder.invoke(client, at, "orders/42", nonce, call);
///     let outcome = Outcome::Granted { token: client.into(), until: at + ms(90) };
///     recorder.complete(client, at + ms(1), outcome);
/// }
/// let history = recorder.finish()?;
/// // Two hold the key at once: that was no lock.
/// let report = check(&history, &[ModelKind::Leased], &Settings::default());
/// assert!(!report.passed(), "{report}");
/// # Ok::<_, gaggle_lab::history::Malformed>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    operations: Vec<Operation>,
    /// For each client with an open call, its place in `operations`.
    open: BTreeMap<u32, usize>,
    /// The first thing that cannot be.
    malformed: Option<Malformed>,
}

/// Why events or operations are no history: the recorder is wrong, and nothing about the lock can
/// be concluded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A client invokes while another of its calls is open (a call without a reply stays open).
    #[error("client {client} invokes at {at:?} while its call of {open:?} is open")]
    TwoOpenCalls {
        /// The client.
        client: u32,
        /// When it invokes.
        at: Duration,
        /// When its open call was invoked.
        open: Duration,
    },
    /// A reply, or a place in the queue, for a client that has no call open.
    #[error("client {client} has no call open at {at:?}")]
    NothingOpen {
        /// The client.
        client: u32,
        /// When.
        at: Duration,
    },
    /// A call ends before it began, or is queued outside of its time.
    #[error("an event of {at:?} is outside its call: {operation}")]
    OutsideCall {
        /// The event's time.
        at: Duration,
        /// The call.
        operation: Box<Operation>,
    },
    /// The outcome is none of this call's, such as a grant for an unlock.
    #[error("the outcome cannot end the call: {operation}")]
    ForeignReply {
        /// The call with its outcome.
        operation: Box<Operation>,
    },
    /// An outcome is known though no reply came.
    #[error("an outcome without a reply: {operation}")]
    OutcomeWithoutReply {
        /// The call with its outcome.
        operation: Box<Operation>,
    },
    /// Only a LOCK is queued.
    #[error("an unlock or extend cannot be queued: {operation}")]
    QueuedWithoutLock {
        /// The call.
        operation: Box<Operation>,
    },
    /// A nonce names one acquisition of one key, and here two.
    #[error("nonce {nonce} is used for two keys, {one:?} and {other:?}")]
    NonceOfTwoKeys {
        /// The nonce.
        nonce: Nonce,
        /// A key.
        one: Arc<str>,
        /// Another.
        other: Arc<str>,
    },
    /// More operations than a history can number.
    #[error("more than {limit} operations")]
    TooLong {
        /// The limit.
        limit: u32,
    },
}

impl Recorder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A call begins; `at` is read before anything is sent.
    pub fn invoke(
        &mut self,
        client: u32,
        at: Duration,
        key: impl Into<Arc<str>>,
        nonce: Nonce,
        call: Call,
    ) {
        if let Some(&open) = self.open.get(&client) {
            let open = self.operations[open].invoked;
            self.refuse(Malformed::TwoOpenCalls { client, at, open });
            return;
        }
        self.open.insert(client, self.operations.len());
        self.operations.push(Operation {
            client,
            key: key.into(),
            nonce,
            call,
            invoked: at,
            queued: None,
            completed: None,
            outcome: Outcome::Unknown,
        });
    }

    /// The client's open LOCK has a place in the queue; said again, the last one counts.
    pub fn queued(&mut self, client: u32, at: Duration) {
        match self.open.get(&client) {
            Some(&open) => self.operations[open].queued = Some(at),
            None => self.refuse(Malformed::NothingOpen { client, at }),
        }
    }

    /// The client's open LOCK has lost its place: its process was taken for dead, or its wait was
    /// over. It may queue again.
    pub fn dropped(&mut self, client: u32) {
        if let Some(&open) = self.open.get(&client) {
            self.operations[open].queued = None;
        }
    }

    /// The client's open call has ended; `at` is read after the reply came.
    pub fn complete(&mut self, client: u32, at: Duration, outcome: Outcome) {
        match self.open.remove(&client) {
            Some(open) => {
                let operation = &mut self.operations[open];
                (operation.completed, operation.outcome) = (Some(at), outcome);
            }
            None => self.refuse(Malformed::NothingOpen { client, at }),
        }
    }

    /// The history of all that was recorded; calls that are still open have no known outcome.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: the first thing that cannot be.
    pub fn finish(self) -> Result<History, Malformed> {
        match self.malformed {
            Some(malformed) => Err(malformed),
            None => History::new(self.operations),
        }
    }

    fn refuse(&mut self, malformed: Malformed) {
        self.malformed.get_or_insert(malformed);
    }
}

/// Operations that can have happened as recorded, in the order of invocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    operations: Vec<Operation>,
    /// The numbers of all operations, those of one nonce together, in order of invocation.
    by_nonce: Vec<u32>,
}

impl History {
    /// The history of these operations, in any order.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: the first thing that cannot be.
    pub fn new(mut operations: Vec<Operation>) -> Result<Self, Malformed> {
        if u32::try_from(operations.len()).is_err() {
            return Err(Malformed::TooLong { limit: u32::MAX });
        }
        operations.iter().try_for_each(check_alone)?;
        operations.sort_by_key(|operation| {
            (operation.invoked, operation.completed.unwrap_or(Duration::MAX))
        });
        check_clients(&operations)?;
        let by_nonce = group_by_nonce(&operations)?;
        Ok(Self { operations, by_nonce })
    }

    /// The operations, in the order of invocation.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The numbers of all operations, those of one nonce together, in order of invocation.
    pub(super) fn by_nonce(&self) -> &[u32] {
        &self.by_nonce
    }
}

fn check_alone(operation: &Operation) -> Result<(), Malformed> {
    let Operation { call, invoked, queued, completed, outcome, .. } = operation;
    let boxed = || Box::new(operation.clone());
    let last = completed.unwrap_or(Duration::MAX);
    for at in [*queued, *completed].into_iter().flatten() {
        if at < *invoked || at > last {
            return Err(Malformed::OutsideCall { at, operation: boxed() });
        }
    }
    if queued.is_some() && !call.is_lock() {
        return Err(Malformed::QueuedWithoutLock { operation: boxed() });
    }
    if completed.is_none() && *outcome != Outcome::Unknown {
        return Err(Malformed::OutcomeWithoutReply { operation: boxed() });
    }
    if !call.admits(outcome) {
        return Err(Malformed::ForeignReply { operation: boxed() });
    }
    Ok(())
}

/// In order of invocation, each client's call comes after the end of its last.
fn check_clients(operations: &[Operation]) -> Result<(), Malformed> {
    let mut last: BTreeMap<u32, &Operation> = BTreeMap::new();
    for operation in operations {
        let Operation { client, invoked: at, .. } = *operation;
        if let Some(before) = last.insert(client, operation)
            && before.completed.is_none_or(|end| at < end)
        {
            return Err(Malformed::TwoOpenCalls { client, at, open: before.invoked });
        }
    }
    Ok(())
}

fn group_by_nonce(operations: &[Operation]) -> Result<Vec<u32>, Malformed> {
    let mut order: Vec<(Nonce, u32)> =
        (0..).zip(operations).map(|(number, operation)| (operation.nonce, number)).collect();
    order.sort_unstable();
    for pair in order.windows(2) {
        let ((nonce, number), (next, other)) = (pair[0], pair[1]);
        let (one, other) = (&operations[number as usize].key, &operations[other as usize].key);
        if nonce == next && !Arc::ptr_eq(one, other) && one != other {
            let (one, other) = (Arc::clone(one), Arc::clone(other));
            return Err(Malformed::NonceOfTwoKeys { nonce, one, other });
        }
    }
    Ok(order.into_iter().map(|(_, number)| number).collect())
}
