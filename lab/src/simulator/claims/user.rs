//! A user of a client process: locks, holds, extends, unlocks, cancels, and leaves locks behind.

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{
    Error, KeyedMutex, Lock, LockOptions, clock::Clock as _, operator::ForcedUnlock,
};
use tokio::time::{sleep, timeout};

use super::{beliefs::Belief, clock::ProcessClock, world::Shared};
use crate::simulator::random::Random;

/// A user, and the handle of its process.
pub(super) struct User {
    pub(super) process: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) strategy: Arc<dyn KeyedMutex>,
    pub(super) clock: Arc<ProcessClock>,
    pub(super) random: Random,
}

impl User {
    /// Works until the faults are over.
    pub(super) async fn run(mut self) {
        while !self.shared.is_calm() {
            self.pause(self.shared.plan.think_max).await;
            if self.random.chance(self.shared.plan.force) {
                self.force().await;
            } else if let Some(lock) = self.lock().await {
                self.hold(lock).await;
            }
        }
    }

    /// Ends the grant of a key, as an operator does.
    async fn force(&mut self) {
        let key = self.key();
        let Ok(Some(holder)) = self.strategy.inspect(&key).await else { return };
        let token = holder.fencing_token;
        self.shared.force(&key, token, false);
        let operator = self.strategy.operator().expect("clients have one");
        if let Ok(ForcedUnlock::Unlocked(_)) =
            operator.force_unlock(&key, Some(token), "simulated").await
        {
            self.shared.reach("lock force-unlocked");
            self.shared.force(&key, token, true);
        }
    }

    fn key(&mut self) -> String {
        format!("key {}", self.random.between(1, self.shared.plan.keys))
    }

    async fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.random.between(0, most))).await;
    }

    fn lease(&mut self) -> Duration {
        let most = self.shared.plan.lease_max;
        Duration::from_millis(self.random.between(most / 4, most))
    }

    async fn lock(&mut self) -> Option<Lock> {
        let key = self.key();
        let wait = if self.random.chance(200_000) { 0 } else { self.shared.plan.wait_max };
        let wait = Duration::from_millis(self.random.between(0, wait));
        let options = LockOptions::default().duration(self.lease()).max_wait(wait);
        let patience = match self.random.chance(200_000) {
            true => Duration::from_millis(self.random.between(0, self.shared.plan.wait_max)),
            false => Duration::MAX,
        };
        let began = self.clock.now();
        self.shared.count(|totals| totals.operations += 1);
        let Ok(granted) = timeout(patience, self.strategy.lock(&key, options)).await else {
            self.shared.reach("call cancelled");
            return None;
        };
        match granted {
            Ok(lock) => {
                if self.clock.now().since(began) > Duration::from_millis(200) {
                    self.shared.reach("lock waited for");
                }
                self.shared.count(|totals| totals.granted += 1);
                let (process, clock) = (self.process, self.clock.clone());
                let watch = self.strategy.watch(&lock);
                let belief = Belief { process, clock, lock: lock.clone(), watch };
                self.shared.judge(|beliefs| beliefs.begin(belief));
                Some(lock)
            }
            Err(error) => {
                self.note(&error);
                None
            }
        }
    }

    fn note(&self, error: &Error) {
        match error {
            Error::Unknown => {
                self.shared.reach("outcome unknown");
                self.shared.count(|totals| totals.unknown += 1);
            }
            Error::NotHolder | Error::Expired => self.shared.reach("lock found lost"),
            _ => {}
        }
    }

    async fn hold(&mut self, mut lock: Lock) {
        let hold = self.shared.plan.lease_max / 2;
        loop {
            self.pause(hold).await;
            if !self.random.chance(400_000) {
                break;
            }
            let (lease, was_lost) = (self.lease(), self.shared.has_ended(&lock));
            match self.strategy.extend(&lock, lease).await {
                Ok(longer) => {
                    self.shared.reach("lock extended");
                    self.shared.judge(|beliefs| beliefs.extend(&longer, was_lost));
                    lock = longer;
                }
                Err(error) => {
                    self.note(&error);
                    if matches!(error, Error::NotHolder | Error::Expired) {
                        return self.shared.end(&lock);
                    }
                }
            }
        }
        if self.random.chance(350_000) {
            // Relies on the lock until its deadline.
            self.shared.reach("lock left to its lease");
            if let Some(deadline) = lock.deadline() {
                self.clock.sleep_until(deadline).await;
            }
            return self.shared.end(&lock);
        }
        self.shared.end(&lock);
        match self.strategy.unlock(&lock).await {
            Ok(()) => self.shared.reach("lock unlocked"),
            Err(error) => self.note(&error),
        }
    }
}
