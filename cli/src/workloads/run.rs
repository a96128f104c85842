//! Running a workload, in one process or in several.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Barrier, task::JoinSet, time::sleep};

use super::{
    contender::{Contender, Failed},
    figures::Figures,
    ledger::KeyLedger,
    recorder::{Live, Recorder, SPANS_MAX, Span, Spans, Tally},
    workload::{Keys, Until, Window, Workload, now},
};

/// Runs the workload in this process; task `n` uses contender `n` modulo their number. Keys begin
/// with `prefix`.
///
/// # Errors
///
/// Whatever ends a lock or an unlock. Tasks are then dropped wherever they are.
///
/// # Panics
///
/// Without a contender.
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
    let tallies: Vec<_> = all(running).await?.into_iter().map(|live| live.tally).collect();
    let ledgers: Vec<_> = ledgers.into_iter().map(sole).collect();
    Ok(Figures::new(workload, window, &tallies, &ledgers))
}

/// Runs the tasks `tasks` of the workload, which begins at `begin`, and returns all they did: for
/// one process of several.
///
/// # Errors
///
/// As [`run()`]; also where a task made more than [`SPANS_MAX`].
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
    let spans = all(running).await?;
    if spans.iter().any(|spans| spans.0.len() >= SPANS_MAX) {
        return Err(format!("more than {SPANS_MAX} locks of one task: run it shorter").into());
    }
    Ok(spans.into_iter().flat_map(|spans| spans.0).collect())
}

/// Judges what the processes of one run recorded.
#[must_use]
pub fn replay(workload: &Workload, begin: u64, mut spans: Vec<Span>) -> Figures {
    let window = workload.window(begin);
    let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
    let mut ledgers: BTreeMap<u32, KeyLedger> = BTreeMap::new();
    for task in 0..workload.tasks {
        tallies.insert(task, Tally::new(window));
    }
    spans.sort_unstable_by_key(|span| span.granted);
    // In the order of time; what ends at the moment at which another begins did not overlap it.
    let mut held: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::new();
    let key = |span: &Span| if workload.keys == Keys::Same { 0 } else { span.task };
    for (index, span) in spans.iter().enumerate() {
        tallies.entry(span.task).or_insert_with(|| Tally::new(window)).add(span);
        while let Some(Reverse((released, before, seen))) = held.pop() {
            if released > span.granted {
                held.push(Reverse((released, before, seen)));
                break;
            }
            let before = &spans[before];
            let ledger = ledgers.get_mut(&key(before)).expect("it was granted there");
            ledger.released(before.task, released, seen);
        }
        let ledger = ledgers.entry(key(span)).or_insert_with(|| KeyLedger::new(window));
        let seen = ledger.granted(span.task, span.asked, span.granted, span.token);
        held.push(Reverse((span.released, index, seen)));
    }
    for Reverse((released, index, seen)) in held.into_sorted_vec().into_iter().rev() {
        let span = &spans[index];
        let ledger = ledgers.get_mut(&key(span)).expect("it was granted there");
        ledger.released(span.task, released, seen);
    }
    let tallies: Vec<_> = tallies.into_values().collect();
    let ledgers: Vec<_> = ledgers.into_values().collect();
    Figures::new(workload, window, &tallies, &ledgers)
}

/// What all tasks made, or the first failure.
async fn all<R: 'static>(mut running: JoinSet<Result<R, Failed>>) -> Result<Vec<R>, Failed> {
    let mut made = Vec::new();
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(outcome) => made.push(outcome?),
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
    Ok(made)
}

fn sole(ledger: Arc<Mutex<KeyLedger>>) -> KeyLedger {
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
        let mut made = 0;
        let mut moment = now();
        while self.goes_on(made, moment) {
            moment = self.once(moment, &mut recorder).await?;
            if moment == 0 {
                break;
            }
            made += 1;
            if !self.workload.away.is_zero() {
                sleep(self.workload.away).await;
                moment = now();
            }
        }
        Ok(recorder)
    }

    fn goes_on(&self, made: u32, moment: u64) -> bool {
        match self.workload.until {
            Until::Each(locks) => made < locks,
            Until::For(_) => moment < self.window.until,
        }
    }

    /// One lock and unlock. Returns when it ended; 0 where the recorder has no room for another.
    async fn once<R: Recorder>(&self, asked: u64, recorder: &mut R) -> Result<u64, Failed> {
        let hold = self.contender.lock(&self.key).await?;
        let granted = now();
        let (task, token) = (self.number, C::token(&hold));
        let mut span = Span { task, asked, granted, released: 0, unlocked: 0, token };
        recorder.granted(&span);
        for _ in 0..self.workload.steps {
            sleep(self.workload.step).await;
        }
        span.released = now();
        recorder.released(&span);
        self.contender.unlock(hold).await?;
        span.unlocked = now();
        let room = recorder.unlocked(&span);
        Ok(if room { span.unlocked } else { 0 })
    }
}
