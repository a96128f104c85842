//! Goal: on any sequence of commands the table and the model agree, in every effect and in all
//! that can be asked of them.
//!
//! Method: few keys, nonces and processes, and short times, so that everything collides; the table
//! is now and then replaced by its own snapshot, restored. A failure prints its seed, the command
//! that replays it and the shortest sequence that fails.
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::*;
use crate::testing::ReferenceTable;

const KEYS: [&str; 3] = ["a", "b", "c"];
const NONCES: u128 = 8;
const MEMORY: u64 = 25;

#[derive(Clone, Debug)]
enum Step {
    /// Move the clock by this much (a stamp may also lie in the past), then apply.
    Apply {
        forward: u64,
        back: u64,
        command: Command,
    },
    /// Apply a LOCK that had seen a time this far from now.
    Seen {
        behind: u64,
        ahead: u64,
        group: u128,
        request: LockRequest,
    },
    SnapshotAndRestore,
}

fn key() -> impl Strategy<Value = Arc<str>> {
    prop::sample::select(&KEYS[..]).prop_map(Arc::from)
}

fn nonce() -> impl Strategy<Value = Nonce> {
    (0..NONCES).prop_map(Nonce::from_u128)
}

fn process() -> impl Strategy<Value = ProcessId> {
    (0..3_u64).prop_map(ProcessId)
}

fn wait() -> impl Strategy<Value = Wait> {
    prop_oneof![
        1 => Just(Wait::No),
        4 => (0..30_u64).prop_map(Wait::Ms),
        1 => Just(Wait::Forever),
    ]
}

fn lock_request() -> impl Strategy<Value = LockRequest> {
    let seen = prop_oneof![5 => Just(Seen::Now), 1 => Just(Seen::Never)];
    let parts = (key(), nonce(), process(), 1..25_u64, wait(), seen, 0..3_u32, 0..3_u64);
    parts.prop_map(|(key, nonce, process, duration_ms, wait, seen, pid, request)| {
        let owner = Arc::new(Owner { pid, ..Owner::default() });
        LockRequest { key, nonce, process, request, duration_ms, wait, seen, owner }
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => lock_request().prop_map(Command::Lock),
        3 => (key(), nonce(), any::<bool>())
            .prop_map(|(key, nonce, forget)| Command::Unlock { key, nonce, forget }),
        2 => (key(), nonce(), process(), any::<u64>(), 1..40_u64).prop_map(
            |(key, nonce, process, request, duration_ms)| Command::Extend {
                key, nonce, process, request, duration_ms
            }
        ),
        1 => process().prop_map(|process| Command::Gone { process }),
        1 => Just(Command::Noop),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let forward = prop_oneof![4 => 0..4_u64, 2 => 0..30_u64, 1 => 0..90_u64];
    let back = prop_oneof![6 => Just(0), 1 => 0..50_u64];
    let group = prop_oneof![6 => Just(GROUP), 1 => Just(GROUP + 1)];
    prop_oneof![
        12 => (forward, back, command())
            .prop_map(|(forward, back, command)| Step::Apply { forward, back, command }),
        4 => (0..40_u64, 0..3_u64, group, lock_request()).prop_map(
            |(behind, ahead, group, request)| Step::Seen { behind, ahead, group, request }
        ),
        1 => Just(Step::SnapshotAndRestore),
    ]
}

fn config() -> impl Strategy<Value = TableConfig> {
    let bound = |most: u64| prop_oneof![1 => Just(1000), 2 => 1..most];
    (bound(4), bound(4), bound(9), 1..5_u64).prop_map(|(waiters, keys, nonces, first_token)| {
        TableConfig {
            group: GROUP,
            first_token,
            nonce_memory_ms: MEMORY,
            waiters_per_key_max: waiters,
            keys_max: keys,
            nonces_max: nonces,
            ..TableConfig::default()
        }
    })
}

fn run(config: TableConfig, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut table = LockTable::new(config.clone());
    let mut model = ReferenceTable::new(config);
    for step in steps {
        let now = model.now().0;
        let (stamp, command) = match step {
            Step::Apply { forward, back, command } => {
                ((now + forward).saturating_sub(back), command)
            }
            Step::Seen { behind, ahead, group, request } => {
                let time = ClusterTime(now.saturating_sub(behind) + ahead);
                let seen = Seen::At { group, time };
                (now, Command::Lock(LockRequest { seen, ..request }))
            }
            Step::SnapshotAndRestore => {
                let bytes = table.snapshot();
                table = LockTable::restore(&bytes).expect("a snapshot of ours restores");
                prop_assert_eq!(table.snapshot(), bytes);
                (now, Command::Noop)
            }
        };
        let (stamp, mut effects) = (ClusterTime(stamp), Vec::new());
        table.apply(stamp, &command, &mut effects);
        prop_assert_eq!(effects, model.apply(stamp, &command), "effects of {:?}", command);
        let nonces = (0..NONCES).map(Nonce::from_u128);
        prop_assert_eq!(model.disagreement(&table, &KEYS, nonces), None);
    }
    Ok(())
}

#[test]
fn table_and_model_agree_on_every_step() {
    let seed = std::env::var("GAGGLE_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse::<u64>().expect("a number"));
    let bytes = [seed.to_le_bytes(); 4].concat();
    let cases = std::env::var("PROPTEST_CASES")
        .map_or(400, |cases| cases.parse::<u32>().expect("a number"));
    let config_ = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config_, rng);
    let input = (config(), prop::collection::vec(step(), 1..120));
    if let Err(failure) = runner.run(&input, |(config, steps)| run(config, steps)) {
        panic!(
            "{failure}\nreplay: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --lib \
             lock_table::tests::random"
        );
    }
}
