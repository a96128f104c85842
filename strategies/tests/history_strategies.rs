//! Goal: what real strategies do passes as a history, and what no lock does is found. Method: some
//! clients lock, extend, pause and unlock at random, in virtual time, on `Local` and on `Noop`.
//!
//! A failure prints its seed; `GAGGLE_SEED=<seed> cargo test -p gaggle-strategies --test
//! history_strategies` replays it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use gaggle_strategies::{
    Clock, Drift, KeyedMutex, Local, LockOptions, MaxWait, Nonce, Noop, TokioClock,
    testing::history::{Call, ModelKind, Outcome, Recorder, Report, Settings, check},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

struct Client {
    number: u32,
    rng: StdRng,
    mutex: Arc<dyn KeyedMutex>,
    clock: Arc<dyn Clock>,
    recorder: Arc<Mutex<Recorder>>,
}

impl Client {
    fn now(&self) -> Duration {
        self.clock.now().since_origin()
    }

    fn invoke(&self, nonce: Nonce, call: Call) {
        self.recorder.lock().unwrap().invoke(self.number, self.now(), "k", nonce, call);
    }

    fn complete(&self, outcome: Outcome) {
        self.recorder.lock().unwrap().complete(self.number, self.now(), outcome);
    }

    async fn pause(&mut self, most_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..most_ms))).await;
    }

    async fn run(mut self, turns: u32) {
        for _ in 0..turns {
            self.pause(200).await;
            // Names this acquisition in the history.
            let nonce = Nonce::from_u128(self.rng.random());
            let duration = Duration::from_millis(self.rng.random_range(20..300));
            let tries = self.rng.random_bool(0.2);
            let wait = if tries { 0 } else { self.rng.random_range(1..400) };
            let max_wait = Duration::from_millis(wait);
            let options = LockOptions::default().duration(duration);
            let options = LockOptions { max_wait: MaxWait::AtMost(max_wait), ..options };
            let call = Call::Lock { duration, max_wait: Some(max_wait) };
            self.invoke(nonce, call);
            let mut lock = match self.mutex.lock("k", options).await {
                Ok(lock) => lock,
                Err(error) => {
                    self.complete(call.failed(&error));
                    continue;
                }
            };
            self.complete(Outcome::granted(&lock));
            self.pause(150).await;
            if self.rng.random_bool(0.3) {
                let call = Call::Extend { duration };
                self.invoke(nonce, call);
                match self.mutex.extend(&lock, duration).await {
                    Ok(extended) => {
                        self.complete(Outcome::extended(&extended));
                        lock = extended;
                    }
                    Err(error) => self.complete(call.failed(&error)),
                }
                self.pause(150).await;
            }
            self.invoke(nonce, Call::Unlock);
            if self.rng.random_bool(0.2) {
                self.mutex.release(&lock);
                self.complete(Outcome::Unknown);
            } else {
                match self.mutex.unlock(&lock).await {
                    Ok(()) => self.complete(Outcome::Done),
                    Err(error) => self.complete(Call::Unlock.failed(&error)),
                }
            }
        }
    }
}

/// Five clients on one key.
async fn history_of(mutex: Arc<dyn KeyedMutex>, seed: u64, models: &[ModelKind]) -> Report {
    let recorder = Arc::new(Mutex::new(Recorder::new()));
    let clients = (0..5).map(|number| {
        let rng = StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(number.into()));
        let (mutex, recorder) = (Arc::clone(&mutex), Arc::clone(&recorder));
        let clock = mutex.clock();
        tokio::spawn(Client { number, rng, mutex, clock, recorder }.run(30))
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let history = std::mem::take(&mut *recorder.lock().unwrap()).finish().unwrap();
    // One clock for all.
    let settings = Settings { drift: Drift::from_ppm(0).unwrap(), ..Settings::default() };
    check(&history, models, &settings)
}

const MODELS: [ModelKind; 3] = [ModelKind::Fenced, ModelKind::Leased, ModelKind::Queued];

#[tokio::test(start_paused = true)]
async fn local_is_a_lock() {
    let replay = std::env::var("GAGGLE_SEED").map(|seed| seed.parse::<u64>().expect("a number"));
    let first = replay.clone().unwrap_or_else(|_| rand::random::<u32>().into());
    let mut outcomes = (0, 0, 0);
    for seed in first..first + if replay.is_ok() { 1 } else { 50 } {
        let local = Arc::new(Local::with_clock(Arc::new(TokioClock::new())));
        let report = history_of(local, seed, &MODELS).await;
        assert!(
            report.passed(),
            "{report}\nreplay: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --test \
             history_strategies"
        );
        outcomes.0 += report.granted;
        outcomes.1 += report.extended;
        outcomes.2 += report.refused.values().sum::<u64>();
    }
    assert!(
        replay.is_ok() || (outcomes.0 > 1000 && outcomes.1 > 200 && outcomes.2 > 500),
        "granted, extended, refused: {outcomes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn noop_is_none() {
    for model in [ModelKind::Owner, ModelKind::Leased, ModelKind::Queued] {
        let noop = Arc::new(Noop::with_clock(Arc::new(TokioClock::new())));
        let report = history_of(noop, 1, &[model]).await;
        assert!(report.violations_found > 0, "{model}: {report}");
    }
}

#[tokio::test(start_paused = true)]
async fn noop_unlocks_what_others_hold_too() {
    // Without a clock: an answer that says that two held.
    let noop = Arc::new(Noop::with_clock(Arc::new(TokioClock::new())));
    let report = history_of(noop, 1, &[ModelKind::Fenced]).await;
    assert!(report.violations_found > 0, "{report}");
}
