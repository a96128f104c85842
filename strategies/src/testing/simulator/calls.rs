use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::plan::{Clocks, Plan};
use crate::{
    Drift, Lock, Nonce,
    member::Policy,
    testing::history::{
        self, Call, History, Malformed, ModelKind, Operation, Outcome, Recorder, Refusal, Report,
    },
};

/// Every call of a run with its outcome, for the history checker; times are virtual.
#[derive(Debug, Default)]
pub(super) struct Calls {
    recorder: Recorder,
    /// Whose LOCK of the nonce has no answer so far.
    asking: BTreeMap<Nonce, u32>,
    nonces: BTreeMap<u32, Nonce>,
    /// Counts those that gave up without a word.
    silent: u32,
}

/// Steps for one key and model: what is undecided then is counted, and no pass.
const BUDGET: u64 = 200_000;

impl Calls {
    pub(super) fn invoke(
        &mut self,
        now: u64,
        client: u32,
        key: Arc<str>,
        nonce: Nonce,
        call: Call,
    ) {
        if call.is_lock() {
            self.asking.insert(nonce, client);
            self.nonces.insert(client, nonce);
        }
        self.recorder.invoke(client, Duration::from_nanos(now), key, nonce, call);
    }

    pub(super) fn complete(&mut self, now: u64, client: u32, outcome: Outcome) {
        self.forget(client);
        self.recorder.complete(client, Duration::from_nanos(now), outcome);
    }

    /// The nonce has a place in a queue.
    pub(super) fn queued(&mut self, now: u64, nonce: Nonce) {
        if let Some(client) = self.asking.get(&nonce) {
            self.recorder.queued(*client, Duration::from_nanos(now));
        }
    }

    /// The nonce has lost its place.
    pub(super) fn dropped(&mut self, nonce: Nonce) {
        if let Some(client) = self.asking.get(&nonce) {
            self.recorder.dropped(*client);
        }
    }

    /// All queues were lost together with their group.
    pub(super) fn all_dropped(&mut self) {
        self.asking.values().for_each(|client| self.recorder.dropped(*client));
    }

    /// The client will never have its answer.
    pub(super) fn forget(&mut self, client: u32) {
        if let Some(nonce) = self.nonces.remove(&client) {
            self.asking.remove(&nonce);
        }
    }

    /// Holders that no longer hold, whatever becomes of their leases: told of a loss, or dead.
    pub(super) fn gave_up(&mut self, now: u64, locks: &[Lock]) {
        let at = Duration::from_nanos(now);
        for lock in locks {
            self.silent += 1;
            let client = u32::MAX - self.silent;
            self.recorder.invoke(client, at, lock.key().clone(), lock.nonce(), Call::Unlock);
            self.recorder.complete(client, at, Outcome::Unknown);
        }
    }

    /// What the history checker judges: every call, with what the log knows of it.
    ///
    /// Calls that nobody answered are what makes a search endless; here the log knows their fate:
    /// what concerns a nonce that was never `granted` had no effect. One that was granted `anew` by a
    /// group that knows nothing of a former one names another acquisition from that call on.
    ///
    /// Beyond the drift bound an unlock may say that it freed the key although its lease was over: of
    /// an answer that left that open its caller's own deadline decides. There `freed` decides, every
    /// nonce that the log saw hold until its unlock; within the bound the answer itself is judged.
    pub(super) fn history(
        self,
        granted: &BTreeMap<Nonce, u128>,
        anew: &BTreeSet<(Nonce, u64)>,
        freed: Option<&BTreeSet<Nonce>>,
    ) -> Result<History, Malformed> {
        let mut operations = self.recorder.finish()?.operations().to_vec();
        // By the names that the log knows.
        let was: Vec<bool> = operations.iter().map(|o| granted.contains_key(&o.nonce)).collect();
        for operation in &mut operations {
            let done = operation.outcome == Outcome::Done;
            if done && freed.is_some_and(|freed| !freed.contains(&operation.nonce)) {
                operation.outcome = Outcome::Refused(Refusal::NoEffect);
            }
        }
        part_acquisitions(&mut operations, anew);
        for (operation, was_granted) in operations.iter_mut().zip(was) {
            let open = matches!(
                operation.outcome,
                Outcome::Unknown | Outcome::Refused(Refusal::TimedOut | Refusal::Withdrawn)
            );
            // A late copy of a LOCK that was refused may be granted to nobody, for as long as it
            // takes to pass it on: a refusal says nothing of who among the callers held.
            if matches!(operation.outcome, Outcome::Refused(Refusal::Held)) {
                operation.outcome = match was_granted {
                    true => Outcome::Unknown,
                    false => Outcome::Refused(Refusal::NoEffect),
                };
            }
            if open && !was_granted {
                operation.completed.get_or_insert(operation.invoked);
                operation.outcome = Outcome::Refused(Refusal::NoEffect);
                operation.queued = None;
            }
        }
        History::new(operations)
    }
}

/// Gives a nonce another name from each grant of `anew` on. The operations are in the order of their
/// calls.
fn part_acquisitions(operations: &mut [Operation], anew: &BTreeSet<(Nonce, u64)>) {
    let mut names: BTreeMap<Nonce, Nonce> = BTreeMap::new();
    for operation in operations {
        let nonce = operation.nonce;
        if let Outcome::Granted { token, .. } = operation.outcome
            && anew.contains(&(nonce, token))
        {
            names.insert(nonce, Nonce::from_u128(nonce.as_u128() ^ u128::from(token)));
        }
        operation.nonce = names.get(&nonce).copied().unwrap_or(nonce);
    }
}

/// A history with what it is judged by.
#[derive(Clone, Debug)]
pub struct Judged {
    /// All calls, with what the log knows of those that nobody answered.
    pub history: History,
    /// What the seed's strategy must meet.
    pub models: &'static [ModelKind],
    /// How far clocks may have drifted apart.
    pub drift: Drift,
}

impl Judged {
    pub(super) fn new(history: History, plan: &Plan) -> Self {
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
        Self { history, models, drift }
    }

    pub(super) fn judge(&self) -> Report {
        let settings =
            history::Settings { budget: BUDGET, drift: self.drift, ..history::Settings::default() };
        history::check(&self.history, self.models, &settings)
    }
}
