//! Goal: whatever is called, dropped, polled late or repeated, at most one lock of a key is valid
//! at a time, tokens grow, and in the end nothing is left behind.
//!
//! Method: seeded random calls on few keys in virtual time; futures are polled by hand, so that
//! grants meet calls that are asleep, late or gone. A failure prints the command that replays it.
use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const KEYS: [&str; 2] = ["a", "b"];

struct Run<'a> {
    local: &'a Local,
    dice: StdRng,
    pending: Vec<Pending<'a>>,
    locks: Vec<Lock>,
    /// The greatest token seen valid, by key.
    tokens: BTreeMap<Arc<str>, u64>,
}

impl<'a> Run<'a> {
    async fn step(&mut self) {
        let some = |dice: &mut StdRng, len: usize| dice.random_range(0..len.max(1));
        match self.dice.random_range(0..12) {
            0..4 => {
                let key = KEYS[self.dice.random_range(0..KEYS.len())];
                let options = self.options();
                self.pending.push(Box::pin(self.local.lock(key, options)));
            }
            4..7 if !self.pending.is_empty() => {
                let at = some(&mut self.dice, self.pending.len());
                if let Poll::Ready(result) = once(&mut self.pending[at]).await {
                    drop(self.pending.swap_remove(at));
                    self.answered(result);
                }
            }
            7 if !self.pending.is_empty() => {
                let at = some(&mut self.dice, self.pending.len());
                drop(self.pending.swap_remove(at));
            }
            8 if !self.locks.is_empty() => {
                let at = some(&mut self.dice, self.locks.len());
                let lock = self.locks.swap_remove(at);
                if self.dice.random_bool(0.5) {
                    self.local.release(&lock);
                } else {
                    self.local.unlock(&lock).await.ok();
                }
                self.locks.retain(|other| other.nonce() != lock.nonce());
            }
            9 if !self.locks.is_empty() => {
                let at = some(&mut self.dice, self.locks.len());
                let duration = ms(self.dice.random_range(3..60));
                if let Ok(lock) = self.local.extend(&self.locks[at], duration).await {
                    self.locks[at] = lock;
                }
            }
            _ => {
                let micros = self.dice.random_range(0..20_000);
                tokio::time::advance(Duration::from_micros(micros)).await;
            }
        }
    }

    fn options(&mut self) -> LockOptions {
        let options = options(self.dice.random_range(1..60), self.dice.random_range(0..80));
        match self.dice.random_range(0..8) {
            0 => options.max_wait(MaxWait::Forever),
            _ => options,
        }
    }

    fn answered(&mut self, result: Result<Lock, Error>) {
        let now = self.local.clock().now();
        match result {
            Ok(lock) => {
                assert!(lock.deadline().unwrap() > now, "worth having");
                let greatest = self.tokens.entry(lock.key().clone()).or_default();
                assert!(lock.fencing_token() >= *greatest, "tokens grow");
                *greatest = lock.fencing_token();
                self.locks.push(lock);
            }
            Err(Error::TimedOut | Error::Held) => {}
            Err(other) => panic!("unexpected {other:?}"),
        }
    }

    /// At most one acquisition of a key is valid, and the table agrees with it.
    async fn check(&self) {
        let now = self.local.clock().now();
        self.local.shards.each().for_each(|access| access.shard.table.check());
        for key in KEYS {
            let holder = self.local.inspect(key).await.unwrap();
            for lock in self.locks.iter().filter(|lock| **lock.key() == *key) {
                if lock.deadline().unwrap() > now {
                    let holder = holder.as_ref().expect("a valid lock is held");
                    assert_eq!(holder.nonce, lock.nonce());
                    assert_eq!(holder.fencing_token, lock.fencing_token());
                }
            }
        }
    }
}

async fn run(seed: u64) -> u64 {
    let local = local();
    let dice = StdRng::seed_from_u64(seed);
    let tokens = BTreeMap::new();
    let mut run = Run { local: &local, dice, pending: Vec::new(), locks: Vec::new(), tokens };
    for _ in 0..300 {
        run.step().await;
        run.check().await;
    }
    drop(run);
    tokio::time::advance(ms(61)).await;
    let _ = local.sizes();
    let left = sizes(&local);
    assert_eq!((left.keys, left.waiters), (0, 0), "nothing outlives one lease");
    let grants = local.shards.each().map(|access| {
        assert!(access.shard.waiters.is_empty());
        let table = &access.shard.table;
        table.last_token() + 1 - table.config().first_token
    });
    grants.sum()
}

#[test]
fn at_most_one_lock_is_valid_whatever_is_called_dropped_or_late() {
    // contract rules 1, 2, 5 and 7
    let replay = std::env::var("GAGGLE_SEED").map(|seed| seed.parse::<u64>().expect("a number"));
    let base = replay.clone().unwrap_or_else(|_| rand::random());
    let count = if replay.is_ok() { 1 } else { 100 };
    let mut grants = 0;
    for seed in (0..count).map(|more| base.wrapping_add(more)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(run(seed)));
        grants += std::panic::catch_unwind(run).unwrap_or_else(|failure| {
            eprintln!(
                "replay: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --lib local::tests::random"
            );
            std::panic::resume_unwind(failure)
        });
    }
    assert!(grants > 10 * count, "the runs do grant: {grants}");
}
