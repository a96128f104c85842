//! The history of all calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use gaggle_strategies::{Drift, lock::Nonce, member::Policy};

use super::{
    plan::{Clocks, Plan},
    recorder::Op,
};
use crate::history::{
    self, Call, History, Malformed, ModelKind, Outcome, Recorder, Refusal, Report,
};

/// Every call of a run with its outcome, for the history checker; times are virtual.
#[derive(Debug, Default)]
pub(super) struct Calls {
    recorder: Recorder,
    /// The clients whose LOCK has no reply so far, with the nonce that is in a queue for it.
    asking: BTreeMap<(Op, u32), Option<Nonce>>,
    ops: BTreeMap<u32, Op>,
    /// Counts holders that gave up without a call.
    silent: u32,
}

/// Steps for one key and model. A search that exceeds them is undecided, which is no pass.
const BUDGET: u64 = 200_000;

impl Calls {
    pub(super) fn invoke(&mut self, now: u64, client: u32, key: Arc<str>, op: Op, call: Call) {
        if call.is_lock() {
            self.asking.insert((op, client), None);
            self.ops.insert(client, op);
        }
        self.recorder.invoke(client, Duration::from_nanos(now), key, op.nonce(), call);
    }

    pub(super) fn complete(&mut self, now: u64, client: u32, outcome: Outcome) {
        self.forget(client);
        self.recorder.complete(client, Duration::from_nanos(now), outcome);
    }

    /// The operation waits in a queue under this nonce.
    pub(super) fn queued(&mut self, now: u64, op: Op, nonce: Nonce) {
        for ((_, client), position) in self.asking.range_mut((op, 0)..=(op, u32::MAX)) {
            *position = Some(nonce);
            self.recorder.queued(*client, Duration::from_nanos(now));
        }
    }

    /// Whether the client's LOCK is in a queue.
    pub(super) fn is_queued(&self, client: u32) -> bool {
        let asking = self.ops.get(&client).and_then(|op| self.asking.get(&(*op, client)));
        asking.is_some_and(|position| position.is_some())
    }

    /// The nonce has lost its position. The operation may wait under another.
    pub(super) fn dropped(&mut self, op: Op, nonce: Nonce) {
        for ((_, client), position) in self.asking.range((op, 0)..=(op, u32::MAX)) {
            if *position == Some(nonce) {
                self.recorder.dropped(*client);
            }
        }
    }

    /// All queues were lost together with the group.
    pub(super) fn all_dropped(&mut self) {
        self.asking.keys().for_each(|(_, client)| self.recorder.dropped(*client));
    }

    /// The client will never have its reply.
    pub(super) fn forget(&mut self, client: u32) {
        if let Some(op) = self.ops.remove(&client) {
            self.asking.remove(&(op, client));
        }
    }

    /// These holders no longer rely on their locks: they were notified of a loss, or have died.
    pub(super) fn gave_up(&mut self, now: u64, locks: &[(Op, Arc<str>)]) {
        let at = Duration::from_nanos(now);
        for (op, key) in locks {
            self.silent += 1;
            let client = u32::MAX - self.silent;
            self.recorder.invoke(client, at, key.clone(), op.nonce(), Call::Unlock);
            self.recorder.complete(client, at, Outcome::Unknown);
        }
    }

    /// The history for the checker: every call, with its effect by the log.
    ///
    /// Calls without a reply are what makes a search endless; here the log knows their fate:
    /// an operation that was never `granted` had no effect.
    pub(super) fn history(self, granted: &BTreeSet<Op>) -> Result<History, Malformed> {
        let granted: BTreeSet<Nonce> = granted.iter().map(|op| op.nonce()).collect();
        let mut operations = self.recorder.finish()?.operations().to_vec();
        for operation in &mut operations {
            let was_granted = granted.contains(&operation.nonce);
            let open = matches!(
                operation.outcome,
                Outcome::Unknown | Outcome::Refused(Refusal::TimedOut | Refusal::Withdrawn)
            );
            if open && !was_granted {
                operation.completed.get_or_insert(operation.invoked);
                operation.outcome = Outcome::Refused(Refusal::NoEffect);
                operation.queued = None;
            }
        }
        History::new(operations)
    }
}

/// Checks the history of a run of `plan` against the models of its strategy.
pub(super) fn check(history: &History, plan: &Plan) -> Report {
    let models: &[ModelKind] = match (plan.clocks, plan.policy) {
        (Clocks::BeyondBound, _) => &[ModelKind::Fenced],
        (Clocks::WithinBound, Policy::CompareAndSet) => &[ModelKind::Fenced, ModelKind::Leased],
        (Clocks::WithinBound, Policy::Queue) => {
            &[ModelKind::Fenced, ModelKind::Leased, ModelKind::Queued]
        }
    };
    // A deadline was turned into virtual time by the rate that its clock then had.
    let drift = match plan.drifts {
        false => Drift::from_ppm(0).expect("none is within the limit"),
        true => Drift::default(),
    };
    let settings = history::Settings { budget: BUDGET, drift };
    history::check(history, models, &settings)
}
