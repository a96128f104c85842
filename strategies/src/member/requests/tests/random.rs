//! Goal: whatever is asked, answered, repeated, lost and withdrawn in whatever order, each caller is
//! told once and what the log's answers mean for it, and nothing is left of what has ended.
//!
//! Method: random calls of few keys and nonces; what is sent goes to a lock table late, twice or not
//! at all, where another process asks with the same nonces; leaders change, snapshots swallow effects,
//! groups are left. After each step the map is compared with [`Model`]: who is told what and from which
//! send it counts, what is sent (withdrawals too) and when next, what is lost and ended, whose claims
//! are void, and its sizes. Without the model: nobody is told who is not waiting, a grant that nobody
//! here knows is being given back, and once all is delivered and all callers have gone, every one who
//! waited has been told and nothing is left, neither here nor in the table.
//!
//! Not checked: the order in which commands of one turn are sent, the text of a limit, that a wait
//! ends by its `max_wait` (the table and the caller's own timer see to it). An unlock's end is checked.
//!
//! A failure prints its seed, the command that replays it and the shortest sequence that fails.

mod model;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use self::{
    model::{Ask, EVER, Kind, Model, NOW, Told},
    world::{Checked, World},
};
use super::*;
use crate::lock_table::{Bound, LockRequest, Wait};

const KEYS: [&str; 2] = ["a", "b"];
const NONCES: u128 = 3;
const OTHER: ProcessId = ProcessId(1000);

#[derive(Clone, Debug)]
enum Step {
    /// Without a nonce it is drawn. Some who do not wait ask again when they are refused.
    Lock {
        key: usize,
        nonce: Option<u128>,
        wait: u64,
        retries: bool,
        lease: u64,
    },
    Again(Index),
    Go(Index),
    Take(Index),
    Unlock {
        of: Index,
        told: bool,
        within: u64,
    },
    Extend {
        of: Index,
        lease: u64,
    },
    Pass(u64),
    Turn {
        over_channel: bool,
    },
    Deliver(Index),
    DeliverAll,
    /// The channel repeats it.
    Copy(Index),
    LoseFrame(Index),
    Other(Command),
    /// Of the LOCK that this call waits for.
    Refuse(Index, Refusal),
    RefuseAll,
    NewLeader,
    /// The first that are under way reach the table unseen.
    Snapshot(usize),
    LeaveGroup,
}

fn call(key: usize, nonce: u128) -> LockCall {
    LockCall {
        key: KEYS[key].into(),
        nonce: Nonce::from_u128(nonce),
        drawn: false,
        unused: false,
        duration_ms: 1000,
        until: Until::Now,
        retries: false,
        owner: Arc::new(Owner::default()),
    }
}

fn lease() -> RangeInclusive<u64> {
    1..=1500
}

fn wait() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(NOW), 2 => 1..2000_u64, 2 => Just(EVER)]
}

fn other() -> impl Strategy<Value = Command> {
    let by_other = (0..KEYS.len(), 0..=NONCES, wait(), lease());
    prop_oneof![
        3 => by_other.prop_map(|(key, nonce, wait, duration_ms)| {
            let LockCall { key, nonce, owner, .. } = call(key, nonce);
            let wait = match wait {
                NOW => Wait::No,
                EVER => Wait::Forever,
                ms => Wait::Ms(ms),
            };
            let (process, request, seen) = (OTHER, 1, Seen::Now);
            Command::Lock(LockRequest { key, nonce, process, request, duration_ms, wait, seen, owner })
        }),
        3 => (0..KEYS.len(), 0..=NONCES).prop_map(|(key, nonce)| {
            let LockCall { key, nonce, .. } = call(key, nonce);
            Command::Unlock { key, nonce, forget: false }
        }),
        1 => Just(Command::Gone { process: ME }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let nonce = prop_oneof![4 => (0..NONCES).prop_map(Some), 1 => Just(None)];
    let lock = (0..KEYS.len(), nonce, wait(), any::<bool>(), lease());
    let index = any::<Index>;
    let now = ClusterTime(0);
    let refusal = prop::sample::select(vec![
        Refusal::Held,
        Refusal::Stale { group: 0, now },
        Refusal::Spent(Ended::Unknown),
        Refusal::Limit { what: Bound::Keys, limit: 1 },
    ]);
    prop_oneof![
        12 => lock.prop_map(|(key, nonce, wait, retries, lease)| {
            Step::Lock { key, nonce, wait, retries: retries && wait == NOW, lease }
        }),
        4 => index().prop_map(Step::Again),
        6 => index().prop_map(Step::Go),
        3 => index().prop_map(Step::Take),
        4 => (index(), any::<bool>(), 0..3000_u64)
            .prop_map(|(of, told, within)| Step::Unlock { of, told, within }),
        3 => (index(), lease()).prop_map(|(of, lease)| Step::Extend { of, lease }),
        6 => prop_oneof![3 => 1..10_u64, 2 => 50..400_u64, 1 => 1000..2500_u64].prop_map(Step::Pass),
        8 => any::<bool>().prop_map(|over_channel| Step::Turn { over_channel }),
        6 => index().prop_map(Step::Deliver),
        5 => Just(Step::DeliverAll),
        2 => index().prop_map(Step::Copy),
        1 => index().prop_map(Step::LoseFrame),
        3 => other().prop_map(Step::Other),
        1 => (index(), refusal).prop_map(|(of, reason)| Step::Refuse(of, reason)),
        1 => Just(Step::RefuseAll),
        1 => Just(Step::NewLeader),
        1 => (0..4_usize).prop_map(Step::Snapshot),
        1 => Just(Step::LeaveGroup),
    ]
}

fn run(steps: Vec<Step>, closing: bool) -> Checked {
    let mut world = World::new();
    for step in steps {
        world.take_step(step)?;
        world.check()?;
    }
    if closing {
        world.close()?;
    }
    world.come_to_rest(closing)?;
    for caller in world.waiting.clone() {
        let wait = world.callers[&caller].wait;
        prop_assert!(wait != NOW && wait < world.now, "{caller} was never told");
        world.go(caller);
    }
    world.come_to_rest(closing)?;
    let Requests { locks, unlocks, extends, callers, extending, retrying, held, .. } =
        &world.requests;
    prop_assert_eq!((locks.len(), unlocks.len(), extends.len()), (0, 0, 0));
    prop_assert_eq!((callers.len(), extending.len(), retrying.len(), held.len()), (0, 0, 0, 0));
    prop_assert_eq!(world.requests.next_due(), None);
    let sizes = world.table.sizes();
    prop_assert_eq!((sizes.keys, sizes.waiters), (0, 0));
    Ok(())
}

#[test]
fn each_caller_is_told_once_and_nothing_is_left() {
    let seed = std::env::var("GAGGLE_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse::<u64>().expect("a number"));
    let bytes = [seed.to_le_bytes(); 4].concat();
    let cases = std::env::var("PROPTEST_CASES")
        .map_or(2000, |cases| cases.parse::<u32>().expect("a number"));
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let input = (prop::collection::vec(step(), 1..80), any::<bool>());
    if let Err(failure) = runner.run(&input, |(steps, closing)| run(steps, closing)) {
        panic!(
            "{failure}\nreplay: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --lib \
             member::requests::tests::random"
        );
    }
}
