//! One schedule of calls, time and faults, on every strategy.
//!
//! - *One call after another* (`sequential`): outcomes must agree on all strategies, tokens by
//!   their rank. Times lie on a grid, so that no strategy's few milliseconds decide anything.
//! - *At once* (`concurrent`): clients run as tasks; members meet delay, cuts and isolation, and
//!   the scripts of `Redis` lose publications. Which client wins is open;
//!   the history checker finds violations.
//!
//! Everything runs in a current-thread runtime with paused time, and the strategies draw from
//! seeds. `Local` and `Redis` generate nonces that no seed decides; nothing that is compared
//! depends on them.
//!
//! A short input stands for a long schedule where its first byte says so: an engine that begins
//! with four bytes, and lengthens them by and by, would run hardly a call in its first minute.

mod backend;
mod concurrent;
mod sequential;

use arbitrary::{Result, Unstructured};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use self::backend::{Backend, Kind};

/// In the first byte: the schedule goes on, after the bytes given, with bytes drawn from its seed.
const DRAWN: u8 = 0x80;
/// As long as an input becomes with bytes that are drawn: enough for all calls that a schedule
/// takes.
const DRAWN_TO: usize = 256;

/// The calls and faults of one run.
#[derive(Clone, Debug)]
pub struct Schedule {
    members: usize,
    seed: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Sequential(Vec<sequential::Op>),
    Concurrent(concurrent::Plan),
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    ///
    /// None in practice: [`Unstructured`] replies with zeros where bytes are missing.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let drawn;
        let mut u = Unstructured::new(match data {
            [first, seed @ ..] if first & DRAWN != 0 => {
                drawn = lengthened(data, seed);
                &drawn
            }
            _ => data,
        });
        let first: u8 = u.arbitrary()?;
        let members = [1, 3, 2, 3][usize::from(first >> 1) % 4];
        let seed = u64::from(u.arbitrary::<u16>()?) << 8;
        let what = if first & 1 == 0 {
            What::Sequential(sequential::decode(&mut u)?)
        } else {
            What::Concurrent(concurrent::decode(&mut u)?)
        };
        Ok(Self { members, seed, what })
    }

    /// Runs it on every strategy.
    ///
    /// # Panics
    ///
    /// See [`consistency`](fn@crate::consistency).
    pub fn run(&self) {
        match &self.what {
            What::Sequential(ops) => {
                let on = |kind| self.on(kind, |backend| sequential::run(backend, ops.clone()));
                let local = on(Kind::Local);
                for kind in [Kind::Redis, Kind::Gaggle, Kind::Raft] {
                    let other = on(kind);
                    assert!(
                        local == other,
                        "{kind:?} differs from Local:\n{}",
                        sequential::compared(ops, &local, &other)
                    );
                }
            }
            What::Concurrent(plan) => {
                for kind in [Kind::Local, Kind::Redis, Kind::Gaggle, Kind::Raft] {
                    let record = self.on(kind, |backend| concurrent::run(backend, plan.clone()));
                    let faulty = kind.is_member() && plan.has_faults();
                    concurrent::judge(record, faulty)
                        .unwrap_or_else(|broken| panic!("{kind:?}: {broken}\nof {plan:?}"));
                }
            }
        }
    }

    /// Runs in a runtime of its own, whose time is virtual.
    fn on<T, F>(&self, kind: Kind, run: impl FnOnce(Backend) -> F) -> T
    where
        F: Future<Output = T>,
    {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let backend = Backend::open(kind, self.members, self.seed).await;
            run(backend).await
        })
    }
}

/// `data`, followed by the output of a generator seeded with the first two bytes of `seed`.
fn lengthened(data: &[u8], seed: &[u8]) -> Vec<u8> {
    let seed = seed.iter().take(2).fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    let mut long = vec![0; DRAWN_TO.max(data.len())];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut long[data.len()..]);
    long[..data.len()].copy_from_slice(data);
    long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_bytes_may_be_a_whole_schedule() {
        let acts = |data: &[u8]| match Schedule::decode(data).expect("bytes").what {
            What::Sequential(ops) => ops.len(),
            What::Concurrent(plan) => plan.acts(),
        };
        for kind in [0, 1] {
            assert_eq!(acts(&[kind, 1, 2]), 0);
            assert!(acts(&[kind | DRAWN, 1, 2]) >= 15);
        }
        // Given bytes stay as they are.
        assert_eq!(lengthened(&[DRAWN, 1, 2, 7], &[1, 2, 7])[..4], [DRAWN, 1, 2, 7]);
        assert_eq!(
            lengthened(&[DRAWN, 1, 2, 7], &[1, 2, 7])[4..],
            lengthened(&[DRAWN, 1, 2, 9], &[1, 2, 9])[4..]
        );
    }

    /// Bytes of a plan in which several clients lock at once: any long enough do.
    #[test]
    fn missing_exclusion_breaks_the_rules() {
        let mut broken = Vec::new();
        for seed in 0..20_u8 {
            let bytes: Vec<u8> =
                (0..300_u32).map(|at| (at * 167 + 13 * u32::from(seed)) as u8 ^ seed).collect();
            let plan = concurrent::decode(&mut Unstructured::new(&bytes)).expect("bytes enough");
            let schedule = Schedule { members: 3, seed: 1, what: What::Concurrent(plan.clone()) };
            let record = schedule.on(Kind::Noop, |backend| concurrent::run(backend, plan.clone()));
            broken.extend(concurrent::judge(record, false).err());
            let record = schedule.on(Kind::Local, |backend| concurrent::run(backend, plan.clone()));
            concurrent::judge(record, false).expect("Local keeps them");
        }
        assert!(broken.len() >= 15, "in nearly every plan: {broken:?}");
        assert!(broken.iter().any(|rule| rule.contains("two hold at once")), "{broken:?}");
    }
}
