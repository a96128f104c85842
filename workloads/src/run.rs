//! Runs a workload, in one process or in several.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Barrier, task::JoinSet, time::sleep};

use super::{
    contender::{BoxError, Contender},
    figures::Figures,
    ledger::KeyLedger,
    recorder::{LedgerRecorder, Recorder, SAMPLES_MAX, SampleRecorder, TaskTotals},
    sample::LockSample,
    workload::{Keys, Until, Window, Workload, now},
};

/// Runs the workload in this process. Task `n` uses contender `n` modulo the count. Keys begin
/// with `prefix`.
///
/// # Errors
///
/// The first error of a lock or an unlock. It drops the tasks.
///
/// # Panics
///
/// If there is no contender.
///
/// # Cancel safety
///
/// Dropping the future drops the tasks.
pub async fn run<C: Contender>(
    contenders: &[Arc<C>],
    workload: &Workload,
    prefix: &str,
) -> Result<Figures, BoxError> {
    let (begin, barrier) = (now(), Arc::new(Barrier::new(workload.tasks as usize)));
    let window = workload.window(begin);
    let key_count = match workload.keys {
        Keys::Same => 1,
        Keys::Distinct => workload.tasks,
    };
    let ledgers: Vec<_> =
        (0..key_count).map(|_| Arc::new(Mutex::new(KeyLedger::new(window)))).collect();
    let mut running = JoinSet::new();
    for task in 0..workload.tasks {
        let live = LedgerRecorder::new(Arc::clone(&ledgers[(task % key_count) as usize]), window);
        let task = Task::new(task, contenders, workload, window, prefix);
        let barrier = Arc::clone(&barrier);
        running.spawn(async move {
            barrier.wait().await;
            task.work(live).await
        });
    }
    let totals: Vec<_> = join_all(running).await?.into_iter().map(|live| live.totals).collect();
    let ledgers: Vec<_> = ledgers.into_iter().map(into_inner).collect();
    Ok(Figures::new(workload, window, &totals, &ledgers))
}

/// Runs these tasks of the workload in one process of several. The workload begins at `begin`.
/// Returns the samples of the tasks for [`replay`].
///
/// # Errors
///
/// As [`run()`], and if a task made [`SAMPLES_MAX`] samples.
///
/// # Cancel safety
///
/// Dropping the future drops the tasks.
pub async fn record<C: Contender>(
    contender: &Arc<C>,
    workload: &Workload,
    tasks: &[u32],
    begin: u64,
    prefix: &str,
) -> Result<Vec<LockSample>, BoxError> {
    let window = workload.window(begin);
    let mut running = JoinSet::new();
    for task in tasks {
        let task = Task::new(*task, std::slice::from_ref(contender), workload, window, prefix);
        running.spawn(async move {
            sleep(Duration::from_nanos(begin.saturating_sub(now()))).await;
            task.work(SampleRecorder::default()).await
        });
    }
    let samples = join_all(running).await?;
    if samples.iter().any(|samples| samples.0.len() >= SAMPLES_MAX) {
        return Err(format!(
            "a task made {SAMPLES_MAX} locks, the most it can record: use a shorter --duration"
        )
        .into());
    }
    Ok(samples.into_iter().flat_map(|samples| samples.0).collect())
}

/// Computes the figures of a run from the samples of all its processes.
#[must_use]
pub fn replay(workload: &Workload, begin: u64, mut samples: Vec<LockSample>) -> Figures {
    let window = workload.window(begin);
    let mut totals: BTreeMap<u32, TaskTotals> = BTreeMap::new();
    let mut ledgers: BTreeMap<u32, KeyLedger> = BTreeMap::new();
    for task in 0..workload.tasks {
        totals.insert(task, TaskTotals::new(window));
    }
    samples.sort_unstable_by_key(|sample| sample.granted_at);
    // Held samples by the unlock, each with the counter as its holder read it. A sample that ends
    // at the moment at which another begins does not overlap it.
    let mut held: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::new();
    let key = |sample: &LockSample| if workload.keys == Keys::Same { 0 } else { sample.task };
    for (index, sample) in samples.iter().enumerate() {
        totals.entry(sample.task).or_insert_with(|| TaskTotals::new(window)).add(sample);
        while let Some(Reverse((at, before, counter))) = held.pop() {
            if at > sample.granted_at {
                held.push(Reverse((at, before, counter)));
                break;
            }
            let before = &samples[before];
            let ledger = ledgers.get_mut(&key(before)).expect("the ledger of its grant");
            ledger.unlock(before, counter);
        }
        let ledger = ledgers.entry(key(sample)).or_insert_with(|| KeyLedger::new(window));
        let counter = ledger.grant(sample);
        held.push(Reverse((sample.unlock_called_at, index, counter)));
    }
    while let Some(Reverse((_, index, counter))) = held.pop() {
        let sample = &samples[index];
        let ledger = ledgers.get_mut(&key(sample)).expect("the ledger of its grant");
        ledger.unlock(sample, counter);
    }
    let totals: Vec<_> = totals.into_values().collect();
    let ledgers: Vec<_> = ledgers.into_values().collect();
    Figures::new(workload, window, &totals, &ledgers)
}

/// The results of all tasks, or the first failure.
async fn join_all<R: 'static>(
    mut running: JoinSet<Result<R, BoxError>>,
) -> Result<Vec<R>, BoxError> {
    let mut results = Vec::new();
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(outcome) => results.push(outcome?),
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
    Ok(results)
}

fn into_inner(ledger: Arc<Mutex<KeyLedger>>) -> KeyLedger {
    let ledger = Arc::into_inner(ledger).expect("the tasks have ended");
    ledger.into_inner().unwrap_or_else(PoisonError::into_inner)
}

struct Task<C> {
    number: u32,
    contender: Arc<C>,
    workload: Workload,
    window: Window,
    key: String,
}

impl<C: Contender> Task<C> {
    fn new(
        number: u32,
        contenders: &[Arc<C>],
        workload: &Workload,
        window: Window,
        prefix: &str,
    ) -> Self {
        let contender = Arc::clone(&contenders[number as usize % contenders.len()]);
        let key = workload.key(prefix, number);
        Self { number, contender, workload: workload.clone(), window, key }
    }

    async fn work<R: Recorder>(self, mut recorder: R) -> Result<R, BoxError> {
        let mut pairs = 0;
        let mut lock_called_at = now();
        while self.continues(pairs, lock_called_at) {
            let Some(unlocked_at) = self.lock_once(lock_called_at, &mut recorder).await? else {
                break;
            };
            pairs += 1;
            lock_called_at = unlocked_at;
            if !self.workload.pause.is_zero() {
                sleep(self.workload.pause).await;
                lock_called_at = now();
            }
        }
        Ok(recorder)
    }

    fn continues(&self, pairs: u32, now: u64) -> bool {
        match self.workload.until {
            Until::Each(locks) => pairs < locks,
            Until::For(_) => now < self.window.until,
        }
    }

    /// Locks and unlocks. Returns the end of the unlock; `None` once the recorder is full.
    async fn lock_once<R: Recorder>(
        &self,
        lock_called_at: u64,
        recorder: &mut R,
    ) -> Result<Option<u64>, BoxError> {
        let hold = self.contender.lock(&self.key).await?;
        let mut sample = LockSample {
            task: self.number,
            lock_called_at,
            granted_at: now(),
            unlock_called_at: 0,
            unlocked_at: 0,
            token: C::token(&hold),
        };
        recorder.on_granted(&sample);
        self.contender.work(&self.key, &self.workload).await?;
        sample.unlock_called_at = now();
        recorder.on_unlock(&sample);
        self.contender.unlock(hold).await?;
        sample.unlocked_at = now();
        Ok(recorder.on_unlocked(&sample).then_some(sample.unlocked_at))
    }
}
