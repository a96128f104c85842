//! Goal: memory and the cost of a step have bounds, which the reference table does not see.
use super::*;

const MEMORY: u64 = 30_000;

#[test]
fn floor_ends_when_age_refuses() {
    let mut bench = Bench::with(TableConfig { nonces_max: 0, ..TableConfig::default() });
    let empty = bench.table.snapshot().len();
    bench.unlock(1000, 1);
    bench.noop(1000 + MEMORY);
    let with_floor = bench.table.snapshot().len();
    bench.noop(1001 + MEMORY);
    assert!(bench.table.snapshot().len() < with_floor);
    assert!(with_floor > empty);
}

/// Contract, rule 11: every reason for a refusal, also on a free key.
#[test]
fn refused_lock_leaves_no_memory() {
    let config = TableConfig { waiters_per_key_max: 1, keys_max: 1, ..TableConfig::default() };
    let other = |nonce| lock_of("other", nonce, 100);
    let stale = |nonce| {
        let seen = Seen::At { group: 0, time: ClusterTime(0) };
        Command::Lock(LockRequest { seen, ..request(nonce, 100, Wait::Forever) })
    };
    let tries = |nonce| Command::Lock(request(nonce, 100, Wait::No));
    let waits = |nonce| Command::Lock(request(nonce, 100, Wait::Forever));
    for (held, refused, command) in [
        (true, "Held", tries(9)),
        (true, "Keys", other(9)),
        (true, "WaitersPerKey", waits(9)),
        (false, "Spent", tries(5)),
        (false, "Stale", stale(9)),
        (false, "Nonces", tries(9)),
    ] {
        let nonces_max = if held { 9 } else { 1 };
        let mut bench = Bench::with(TableConfig { nonces_max, ..config.clone() });
        let at = MEMORY + 1;
        if held {
            bench.lock(at, 1, 60_000, Wait::No);
            bench.lock(at, 2, 60_000, Wait::Forever);
        } else {
            // Remembered.
            bench.unlock(at, 5);
        }
        let before = (bench.table.snapshot(), bench.table.sizes());
        let effects = bench.apply(at, &command);
        let [Effect::Refused { reason, .. }] = &effects[..] else { panic!("{effects:?}") };
        assert!(format!("{reason:?}").contains(refused), "{refused}: {reason:?}");
        assert_eq!((bench.table.snapshot(), bench.table.sizes()), before, "{refused}");
    }
}

#[test]
fn one_step_forgets_no_more_than_its_bound() {
    let mut bench = Bench::new();
    let bound = FORGOTTEN_PER_STEP as u128;
    let mut effects = Vec::new();
    for nonce in 0..bound + 10 {
        bench.table.apply(ClusterTime(0), &unlock("k", nonce, false), &mut effects);
    }
    let remembered = |bench: &Bench| bench.table.sizes().nonces_remembered;
    bench.noop(MEMORY + 1);
    assert_eq!(remembered(&bench), 10);
    let granted = bench.lock(MEMORY + 1, bound, 1, Wait::No);
    assert_eq!(granted.len(), 1, "the rest is forgotten by the next step, before its command");
    assert_eq!((remembered(&bench), bench.table.sizes().keys), (0, 1));
}

/// The bound is generous: a step that scans the queue takes minutes here.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn waiter_cost_does_not_grow() {
    let count = 100_000;
    let mut bench = Bench::new();
    let mut effects = Vec::new();
    let begun = std::time::Instant::now();
    for nonce in 0..count {
        let process = ProcessId(nonce % 2);
        let request = LockRequest { process, ..request(nonce.into(), 100, Wait::Ms(50)) };
        bench.table.apply(ClusterTime(0), &Command::Lock(request), &mut effects);
    }
    for nonce in (0..count / 4).rev() {
        bench.table.apply(ClusterTime(1), &unlock("k", nonce.into(), true), &mut effects);
    }
    let process = ProcessId(1);
    bench.table.apply(ClusterTime(2), &Command::DropWaiters { process }, &mut effects);
    bench.table.apply(ClusterTime(50), &Command::Noop, &mut effects);
    bench.table.check();
    assert_eq!(bench.table.sizes().waiters, 0);
    let took = begun.elapsed();
    assert!(took.as_secs() < 20, "{took:?}");
}
