//! Goal: requests may be lost, repeated, delayed and reordered, with bounded memory (rule 6).
use super::*;

const MEMORY: u64 = 30_000;

fn seen(nonce: u128, group: u128, time: u64) -> Command {
    let seen = Seen::At { group, time: ClusterTime(time) };
    Command::Lock(LockRequest { seen, ..request(nonce, 100, Wait::No) })
}

#[test]
fn repeated_lock_keeps_its_token() {
    // contract rule 6
    let mut bench = Bench::new();
    let first = bench.lock(0, 1, 100, Wait::No);
    let other = LockRequest { process: ProcessId(5), ..request(1, 9999, Wait::Forever) };
    assert_eq!(bench.texts(50, &Command::Lock(other)), first, "the duration stays");
    assert_eq!(bench.table.last_token(), 1);
    assert_eq!(bench.grant().process, ProcessId(5), "the reply goes to it");
}

#[test]
fn lock_after_its_end_grants_nothing() {
    // contract rule 6
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(0, 2, 100, Wait::Forever);
    assert_eq!(bench.unlock(0, 3), ["unlocked 3 Unknown"]);
    bench.unlock(1, 2);
    assert_eq!(bench.lock(2, 2, 100, Wait::Forever), ["refused 2 Spent"], "waited");
    assert_eq!(bench.lock(2, 3, 100, Wait::No), ["refused 3 Spent"], "unknown");
    assert_eq!(bench.unlock(2, 3), ["unlocked 3 Ended"]);
    bench.unlock(3, 1);
    assert_eq!(bench.lock(4, 1, 100, Wait::No), ["refused 1 Spent"]);
    bench.lock(5, 4, 100, Wait::No);
    assert_eq!(bench.lock(105, 4, 100, Wait::No)[1], "refused 4 Spent");
    assert_eq!(bench.unlock(106, 4), ["unlocked 4 Ended"]);
}

#[test]
fn memory_and_age_are_exactly_complementary() {
    // contract rule 6: ended at 1000; its LOCK cannot have seen a later time than that
    let mut bench = Bench::new();
    bench.noop(1000);
    bench.unlock(1000, 1);
    let last = 1000 + MEMORY;
    assert_eq!(bench.texts(last, &seen(1, GROUP, 1000)), ["refused 1 Spent"]);
    assert_eq!(bench.remembered(), 1);
    assert_eq!(bench.texts(last + 1, &seen(1, GROUP, 1000)), ["refused 1 Stale"]);
    assert_eq!(bench.remembered(), 0);
    bench.apply(last + 1, &seen(2, GROUP, 1001));
    assert_eq!(bench.holder(), Some(2), "an unknown one of that age");
}

#[test]
fn one_step_forgets_no_more_than_its_bound() {
    let mut bench = Bench::new();
    let bound = FORGOTTEN_PER_STEP as u128;
    let mut effects = Vec::new();
    for nonce in 0..bound + 10 {
        bench.table.apply(ClusterTime(0), &unlock("k", nonce, false), &mut effects);
    }
    bench.noop(MEMORY + 1);
    assert_eq!(bench.remembered(), 10);
    let granted = bench.lock(MEMORY + 1, bound, 1, Wait::No);
    assert_eq!(granted.len(), 1, "the rest is forgotten by the next step, before its command");
    assert_eq!((bench.remembered(), bench.holder()), (0, Some(bound)));
}
