//! The lock table against its reference, command by command.
//!
//! Few keys, nonces and processes and short times, so that everything collides; now and then a
//! number from the ends of its range. A second table is replaced by a restored snapshot of the
//! first wherever the schedule says so, and must from then on do the same, byte for byte.

use std::sync::Arc;

use arbitrary::{Arbitrary, Result, Unstructured};
use gaggle_lab::ReferenceTable;
use gaggle_strategies::{
    lock::{Nonce, Owner},
    lock_table::{
        ClusterTime, Command, LockRequest, LockTable, ProcessId, Seen, TableConfig, Wait,
    },
};

/// Commands in one schedule at most: as many as let every limit be met several times.
pub const COMMANDS_MAX: usize = 200;

/// The first is empty: the table does not check keys, the proposer of an entry does.
const KEYS: [&str; 4] = ["", "a", "orders/42", "\u{1f512}\0"];
const NONCES: u128 = 9;
const GROUP: u128 = 77;

/// A table's bounds, and the steps applied to it.
#[derive(Clone, Debug)]
pub struct Schedule {
    config: TableConfig,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Apply {
        stamp: Stamp,
        command: Command,
    },
    /// A LOCK that had seen a time near the present one.
    Seen {
        offset: i8,
        group: u128,
        request: LockRequest,
    },
    /// The second table is replaced by a restored snapshot of the first.
    Restore,
}

/// The position of a stamp relative to the table's time.
#[derive(Clone, Copy, Debug)]
enum Stamp {
    Later(u64),
    Earlier(u64),
    At(u64),
}

impl Schedule {
    /// Reads a schedule; every sequence of bytes holds one.
    ///
    /// # Errors
    ///
    /// None in practice: [`Unstructured`] replies with zeros where bytes are missing.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let mut u = Unstructured::new(data);
        let config = config(&mut u)?;
        let mut steps = Vec::new();
        while !u.is_empty() && steps.len() < COMMANDS_MAX {
            steps.push(step(&mut u)?);
        }
        Ok(Self { config, steps })
    }

    /// Runs it.
    ///
    /// # Panics
    ///
    /// When the table, the restored one and the reference do not all do the same.
    pub fn run(&self) {
        let mut table = LockTable::new(self.config.clone());
        let mut restored = table.clone();
        let mut reference = ReferenceTable::new(self.config.clone());
        let (mut effects, mut effects_restored) = (Vec::new(), Vec::new());
        for (number, step) in self.steps.iter().enumerate() {
            let (stamp, command) = step.at(reference.now());
            if matches!(step, Step::Restore) {
                restored = restore(&table);
            }
            effects.clear();
            effects_restored.clear();
            table.apply(stamp, &command, &mut effects);
            restored.apply(stamp, &command, &mut effects_restored);
            let expected = reference.apply(stamp, &command);
            let at = || format!("step {number}, {command:?} at {stamp:?}");
            assert_eq!(effects, expected, "the table and its reference: {}", at());
            assert_eq!(effects_restored, expected, "the restored table: {}", at());
            let nonces = (0..NONCES).map(Nonce::from_u128);
            if let Some(what) = reference.disagreement(&table, &KEYS, nonces) {
                panic!("{what}: {}", at());
            }
            if number % 8 == 7 || number + 1 == self.steps.len() {
                restored.check();
                assert_eq!(restored.snapshot(), table.snapshot(), "equal futures: {}", at());
            }
        }
    }
}

fn restore(table: &LockTable) -> LockTable {
    let bytes = table.snapshot();
    let restored = LockTable::restore(&bytes).expect("a snapshot of ours restores");
    assert_eq!(restored.snapshot(), bytes, "a restored table gives the same bytes");
    restored
}

impl Step {
    fn at(&self, now: ClusterTime) -> (ClusterTime, Command) {
        match self {
            Self::Apply { stamp, command } => (stamp.from(now), command.clone()),
            Self::Seen { offset, group, request } => {
                let time = ClusterTime(now.0.saturating_add_signed(i64::from(*offset)));
                let seen = Seen::At { group: *group, time };
                (now, Command::Lock(LockRequest { seen, ..request.clone() }))
            }
            Self::Restore => (now, Command::Noop),
        }
    }
}

impl Stamp {
    fn from(self, now: ClusterTime) -> ClusterTime {
        ClusterTime(match self {
            Self::Later(by) => now.0.saturating_add(by),
            Self::Earlier(by) => now.0.saturating_sub(by),
            Self::At(at) => at,
        })
    }
}

fn config(u: &mut Unstructured<'_>) -> Result<TableConfig> {
    let mut bound = |most| Ok(if u.ratio(1, 3)? { 1000 } else { u.int_in_range(1..=most)? });
    let (waiters_per_key_max, keys_max, nonces_max) = (bound(4)?, bound(4)?, bound(10)?);
    let first_token = if u.ratio(1, 8)? { u.arbitrary()? } else { u.int_in_range(0..=5)? };
    let nonce_memory_ms = u64::from(u.arbitrary::<u8>()?) / 4;
    let group = GROUP;
    Ok(TableConfig {
        group,
        first_token,
        nonce_memory_ms,
        waiters_per_key_max,
        keys_max,
        nonces_max,
        ..TableConfig::default()
    })
}

fn step(u: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match u.int_in_range(0..=15)? {
        0..=6 => Step::Apply { stamp: stamp(u)?, command: Command::Lock(lock_request(u)?) },
        7..=9 => Step::Apply { stamp: stamp(u)?, command: unlock(u)? },
        10 => Step::Apply { stamp: stamp(u)?, command: extend(u)? },
        11 => {
            Step::Apply { stamp: stamp(u)?, command: Command::DropWaiters { process: process(u)? } }
        }
        12 => Step::Apply { stamp: stamp(u)?, command: Command::Noop },
        13 | 14 => {
            let group = if u.ratio(1, 8)? { GROUP + 1 } else { GROUP };
            Step::Seen { offset: u.arbitrary::<i8>()? / 2, group, request: lock_request(u)? }
        }
        _ => Step::Restore,
    })
}

fn stamp(u: &mut Unstructured<'_>) -> Result<Stamp> {
    Ok(match u.int_in_range(0..=31)? {
        0..=7 => Stamp::Later(0),
        8..=19 => Stamp::Later(u.int_in_range(1..=4)?),
        20..=26 => Stamp::Later(u.int_in_range(0..=90)?),
        27..=29 => Stamp::Earlier(u.int_in_range(0..=90)?),
        30 => Stamp::Later(u64::from(u.arbitrary::<u16>()?)),
        _ => Stamp::At(number(u)?),
    })
}

fn lock_request(u: &mut Unstructured<'_>) -> Result<LockRequest> {
    let wait = match u.int_in_range(0..=7)? {
        0 => Wait::No,
        1 => Wait::Forever,
        2 => Wait::Ms(number(u)?),
        _ => Wait::Ms(u.int_in_range(0..=40)?),
    };
    let seen = if u.ratio(1, 8)? {
        Seen::At { group: GROUP, time: ClusterTime(number(u)?) }
    } else {
        Seen::Now
    };
    let owner = Arc::new(Owner { pid: u32::from(u.arbitrary::<u8>()?), ..Owner::default() });
    let (key, nonce, process) = (key(u)?, nonce(u)?, process(u)?);
    Ok(LockRequest { key, nonce, process, duration_ms: duration(u)?, wait, seen, owner })
}

fn unlock(u: &mut Unstructured<'_>) -> Result<Command> {
    Ok(Command::Unlock { key: key(u)?, nonce: nonce(u)?, forget: u.ratio(1, 3)? })
}

fn extend(u: &mut Unstructured<'_>) -> Result<Command> {
    let (key, nonce, process) = (key(u)?, nonce(u)?, process(u)?);
    let request = u64::from(u.arbitrary::<u8>()?);
    Ok(Command::Extend { key, nonce, process, request, duration_ms: duration(u)? })
}

/// Short, but for one in sixteen: those may be anything.
fn duration(u: &mut Unstructured<'_>) -> Result<u64> {
    if u.ratio(1, 16)? { number(u) } else { u.int_in_range(0..=40) }
}

/// Anything, the ends of the range before all.
fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=3)? {
        0 => u64::MAX - u64::from(u.arbitrary::<u8>()?),
        1 => u64::from(u.arbitrary::<u8>()?),
        _ => u64::arbitrary(u)?,
    })
}

fn key(u: &mut Unstructured<'_>) -> Result<Arc<str>> {
    Ok(Arc::from(*u.choose(&KEYS)?))
}

fn nonce(u: &mut Unstructured<'_>) -> Result<Nonce> {
    Ok(Nonce::from_u128(u.int_in_range(0..=NONCES - 1)?))
}

fn process(u: &mut Unstructured<'_>) -> Result<ProcessId> {
    Ok(ProcessId(u.int_in_range(0..=3)?))
}
