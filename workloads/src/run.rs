//! Runs a workload, in one process or in several.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use gaggle::Locker;
use tokio::{sync::Barrier, task::JoinSet, time::sleep};

use super::{
    contender::{Contender, Failed},
    figures::Figures,
    ledger::KeyLedger,
    recorder::{Live, Recorder, SPANS_MAX, Spans, Tally},
    span::Span,
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
) -> Result<Figures, Failed> {
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
        let live = Live::new(Arc::clone(&ledgers[(task % key_count) as usize]), window);
        let task = Task::new(task, contenders, workload, window, prefix);
        let barrier = Arc::clone(&barrier);
        running.spawn(async move {
            barrier.wait().await;
            task.work(live).await
        });
    }
    let tallies: Vec<_> = join_all(running).await?.into_iter().map(|live| live.tally).collect();
    let ledgers: Vec<_> = ledgers.into_iter().map(into_inner).collect();
    Ok(Figures::new(workload, window, &tallies, &ledgers))
}

/// Runs these tasks of the workload in one process of several. The workload begins at `begin`.
/// Returns the spans of the tasks for [`replay`].
///
/// # Errors
///
/// As [`run()`], and if a task made [`SPANS_MAX`] spans.
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
) -> Result<Vec<Span>, Failed> {
    let window = workload.window(begin);
    let mut running = JoinSet::new();
    for task in tasks {
        let task = Task::new(*task, std::slice::from_ref(contender), workload, window, prefix);
        running.spawn(async move {
            sleep(Duration::from_nanos(begin.saturating_sub(now()))).await;
            task.work(Spans::default()).await
        });
    }
    let spans = join_all(running).await?;
    if spans.iter().any(|spans| spans.0.len() >= SPANS_MAX) {
        return Err(format!(
            "a task made {SPANS_MAX} locks, the most it can record: use a shorter --duration"
        )
        .into());
    }
    Ok(spans.into_iter().flat_map(|spans| spans.0).collect())
}

/// [`run()`] with guards, compiled in this package: a caller that is built without optimisation
/// would measure itself.
///
/// # Errors, panics, cancel safety
///
/// As [`run()`].
pub fn run_lockers<'a>(
    lockers: &'a [Arc<Locker>],
    workload: &'a Workload,
    prefix: &'a str,
) -> BoxFuture<'a, Result<Figures, Failed>> {
    Box::pin(run(lockers, workload, prefix))
}

/// [`record()`] with guards, compiled in this package as [`run_lockers()`] is.
///
/// # Errors, cancel safety
///
/// As [`record()`].
pub fn record_locker<'a>(
    locker: &'a Arc<Locker>,
    workload: &'a Workload,
    tasks: &'a [u32],
    begin: u64,
    prefix: &'a str,
) -> BoxFuture<'a, Result<Vec<Span>, Failed>> {
    Box::pin(record(locker, workload, tasks, begin, prefix))
}

/// Computes the figures of a run from the spans of all its processes.
#[must_use]
pub fn replay(workload: &Workload, begin: u64, mut spans: Vec<Span>) -> Figures {
    let window = workload.window(begin);
    let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
    let mut ledgers: BTreeMap<u32, KeyLedger> = BTreeMap::new();
    for task in 0..workload.tasks {
        tallies.insert(task, Tally::new(window));
    }
    spans.sort_unstable_by_key(|span| span.granted_at);
    // Held spans by the unlock, each with the counter as its holder read it. A span that ends at
    // the moment at which another begins does not overlap it.
    let mut held: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::new();
    let key = |span: &Span| if workload.keys == Keys::Same { 0 } else { span.task };
    for (index, span) in spans.iter().enumerate() {
        tallies.entry(span.task).or_insert_with(|| Tally::new(window)).add(span);
        while let Some(Reverse((at, before, counter))) = held.pop() {
            if at > span.granted_at {
                held.push(Reverse((at, before, counter)));
                break;
            }
            let before = &spans[before];
            let ledger = ledgers.get_mut(&key(before)).expect("the ledger of its grant");
            ledger.unlock(before, counter);
        }
        let ledger = ledgers.entry(key(span)).or_insert_with(|| KeyLedger::new(window));
        let counter = ledger.grant(span);
        held.push(Reverse((span.unlock_called_at, index, counter)));
    }
    while let Some(Reverse((_, index, counter))) = held.pop() {
        let span = &spans[index];
        let ledger = ledgers.get_mut(&key(span)).expect("the ledger of its grant");
        ledger.unlock(span, counter);
    }
    let tallies: Vec<_> = tallies.into_values().collect();
    let ledgers: Vec<_> = ledgers.into_values().collect();
    Figures::new(workload, window, &tallies, &ledgers)
}

/// The results of all tasks, or the first failure.
async fn join_all<R: 'static>(mut running: JoinSet<Result<R, Failed>>) -> Result<Vec<R>, Failed> {
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
        let key = match workload.keys {
            Keys::Same => prefix.to_owned(),
            Keys::Distinct => format!("{prefix}/{number}"),
        };
        Self { number, contender, workload: workload.clone(), window, key }
    }

    async fn work<R: Recorder>(self, mut recorder: R) -> Result<R, Failed> {
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
    ) -> Result<Option<u64>, Failed> {
        let hold = self.contender.lock(&self.key).await?;
        let mut span = Span {
            task: self.number,
            lock_called_at,
            granted_at: now(),
            unlock_called_at: 0,
            unlocked_at: 0,
            token: C::token(&hold),
        };
        recorder.on_granted(&span);
        for _ in 0..self.workload.steps {
            sleep(self.workload.step).await;
        }
        span.unlock_called_at = now();
        recorder.on_unlock(&span);
        self.contender.unlock(hold).await?;
        span.unlocked_at = now();
        Ok(recorder.on_unlocked(&span).then_some(span.unlocked_at))
    }
}
