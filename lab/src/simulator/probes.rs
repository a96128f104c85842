//! After healing: checks that a queue in Redis works at once, in every process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gaggle_strategies::{KeyedMutex, LockOptions, MaxWait, clock::Clock as _};
use tokio::sync::oneshot;

use super::{
    clock::{MS, SimClock},
    plan::NetworkPlan,
    process::Process,
    recorder::{Observation, Recorder},
    world::World,
};

type Handle = (Arc<dyn KeyedMutex>, Arc<SimClock>);

const PROBE: &str = "probe of the queue";
/// Longer than a hand-off in a calm network, and shorter than the time to a waiter's own check.
const PROBE_WITHIN: Duration = Duration::from_millis(50);

impl World {
    pub(super) fn probe_queue(&mut self) {
        self.probe_hand_offs();
        self.probe_withdrawals();
    }

    /// The server notifies a waiter of its grant before the waiter would check by itself.
    fn probe_hand_offs(&mut self) {
        for waiting in 0..self.slots.len() {
            let holding = (waiting + 1) % self.slots.len();
            let unlocked_at = Arc::new(AtomicU64::new(u64::MAX));
            let hold = hold(self.handle(holding), 2 * PROBE_WITHIN, unlocked_at.clone());
            self.spawn(holding, 0, hold);
            let recorder = self.recorder.clone();
            self.spawn(waiting, 0, wait(self.handle(waiting), unlocked_at, recorder));
            let done = self.run_until(self.now() + 20_000 * MS, |world| !world.clients_run());
            assert!(done, "not healed: a hand-off never ended\n{}", self.state());
        }
    }

    /// A call that is cancelled while its process is not connected is withdrawn on the next
    /// connection.
    fn probe_withdrawals(&mut self) {
        for waiting in 0..self.slots.len() {
            let holding = (waiting + 1) % self.slots.len();
            let hold = hold(self.handle(holding), 40 * PROBE_WITHIN, Arc::default());
            self.spawn(holding, 0, hold);
            let (strategy, clock) = self.handle(waiting);
            let (leave, left) = oneshot::channel();
            self.spawn(waiting, 0, async move {
                clock.sleep_until(clock.now().after(PROBE_WITHIN)).await;
                tokio::select! {
                    _ = strategy.lock(PROBE, LockOptions::default()) => {}
                    _ = left => {}
                }
            });
            let within = nanos(PROBE_WITHIN);
            let queued = self
                .run_until(self.now() + 3 * within, |world| world.invariants.waiters(PROBE) > 0);
            assert!(queued, "not healed: a waiter is not in the queue\n{}", self.state());
            self.cut_connections(waiting);
            let cut = self.run_until(self.now() + within, |world| {
                !world.slots[waiting].process.as_ref().is_some_and(Process::is_connected)
            });
            assert!(cut, "a client does not see that its connection was cut");
            let _ = leave.send(());
            let withdrawn = self
                .run_until(self.now() + 20 * within, |world| world.invariants.waiters(PROBE) == 0);
            assert!(withdrawn, "not healed: a waiter was not withdrawn\n{}", self.state());
            let done = self.run_until(self.now() + 20_000 * MS, |world| !world.clients_run());
            assert!(done, "not healed: a hold never ended\n{}", self.state());
        }
    }

    /// A waiter whose server is so far that its signs of life come rarely, if each one waits for a
    /// reply, is granted a free key although a dead process waits before it (contract, rule 9).
    pub(super) fn probe_silence(&mut self) {
        let ttl = self.plan.options.waiter_ttl_ms * MS;
        let way = (ttl / 2).min(300 * MS);
        let calm = self.plan.calm_network();
        let [holding, dying, waiting] = [0, 1, 2];
        let forever = || LockOptions::default().max_wait(MaxWait::Forever);
        let unlocked_at = Arc::new(AtomicU64::new(u64::MAX));
        let hold = hold(self.handle(holding), Duration::from_nanos(4 * ttl), unlocked_at.clone());
        self.spawn(holding, 0, hold);
        for (slot, waiters) in [(dying, 1), (waiting, 2)] {
            let (strategy, clock) = self.handle(slot);
            let (unlocked_at, recorder) = (unlocked_at.clone(), self.recorder.clone());
            self.spawn(slot, 0, async move {
                clock.sleep_until(clock.now().after(PROBE_WITHIN)).await;
                let outcome = strategy.lock(PROBE, forever()).await;
                let now = clock.virtual_time(clock.now());
                let took = now.saturating_sub(unlocked_at.load(Ordering::Relaxed));
                match outcome {
                    // The ways of UNLOCK, grant, WAIT and its reply, and the drift of clocks.
                    Ok(lock) if took <= 5 * way => _ = strategy.unlock(&lock).await,
                    outcome => recorder.note(Observation::Unhealed(format!(
                        "a dead waiter delayed {outcome:?} by {took} ns"
                    ))),
                }
            });
            let queued = self.run_until(self.now() + 4 * nanos(PROBE_WITHIN), |world| {
                world.invariants.waiters(PROBE) == waiters
            });
            assert!(queued, "not healed: a waiter is not in the queue\n{}", self.state());
        }
        self.kill(dying);
        self.network.calm(NetworkPlan { delay: (way, way), ..calm.clone() });
        let done = self.run_until(self.now() + 60_000 * MS, |world| !world.clients_run());
        assert!(done, "not healed: a wait behind a dead process never ended\n{}", self.state());
        self.network.calm(calm);
        self.start(dying);
        let settled = self.run_until(self.now() + 20_000 * MS, Self::is_settled);
        assert!(settled, "not healed: a process does not connect\n{}", self.state());
    }

    fn handle(&self, slot: usize) -> Handle {
        let process = self.slots[slot].process.as_ref().expect("all processes run");
        (process.strategy.clone(), process.clock.clone())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("brief")
}

/// Holds a key for which another process will wait, and notes when it unlocks.
async fn hold((strategy, clock): Handle, duration: Duration, unlocked_at: Arc<AtomicU64>) {
    // An unlock that fails leaves the waiter waiting, which is seen.
    let lease = LockOptions::default().get_duration().max(duration * 2);
    let options = LockOptions::default().duration(lease);
    if let Ok(lock) = strategy.lock(PROBE, options).await {
        clock.sleep_until(clock.now().after(duration)).await;
        unlocked_at.store(clock.virtual_time(clock.now()), Ordering::Relaxed);
        let _ = strategy.unlock(&lock).await;
    }
}

/// Waits for the key that another process holds.
async fn wait((strategy, clock): Handle, unlocked_at: Arc<AtomicU64>, recorder: Arc<Recorder>) {
    clock.sleep_until(clock.now().after(PROBE_WITHIN)).await;
    let outcome = strategy.lock(PROBE, LockOptions::default()).await;
    let now = clock.virtual_time(clock.now());
    let took = Duration::from_nanos(now.saturating_sub(unlocked_at.load(Ordering::Relaxed)));
    match outcome {
        Ok(lock) if took < PROBE_WITHIN => _ = strategy.unlock(&lock).await,
        outcome => recorder.note(Observation::Unhealed(format!(
            "healed, and yet {outcome:?} came {took:?} after the unlock"
        ))),
    }
}
