//! Goal: every bound holds, is named by its refusal, and breaks no other rule when it is reached.
use super::*;

fn small() -> Bench {
    Bench::with(TableConfig {
        group: GROUP,
        waiters_per_key_max: 2,
        keys_max: 2,
        nonces_max: 5,
        ..TableConfig::default()
    })
}

fn limit(nonce: u128, what: Bound, limit: u64) -> String {
    format!("refused {nonce} {:?}", Refusal::Limit { what, limit })
}

#[test]
fn surplus_waiter_alone_is_refused() {
    let mut bench = small();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(0, 2, 100, Wait::Forever);
    bench.lock(0, 3, 100, Wait::Forever);
    let refused = bench.lock(0, 4, 100, Wait::Forever);
    assert_eq!(refused, [limit(4, Bound::WaitersPerKey, 2)]);
    assert_eq!(bench.lock(0, 4, 100, Wait::No), ["refused 4 Held"]);
    bench.unlock(1, 2);
    assert_eq!(bench.lock(1, 4, 100, Wait::Forever), ["queued 4"]);
}

#[test]
fn surplus_key_needs_another_freed() {
    let mut bench = small();
    bench.apply(0, &lock_of("a", 1, 100));
    bench.apply(0, &lock_of("b", 2, 100));
    assert_eq!(bench.texts(0, &lock_of("c", 3, 100)), [limit(3, Bound::Keys, 2)]);
    assert_eq!(bench.texts(0, &lock_of("a", 3, 100)), ["queued 3"]);
    bench.apply(1, &unlock("b", 2, false));
    assert_eq!(bench.texts(1, &lock_of("c", 4, 100)), ["granted 4 token 3 at 1 until 101"]);
    assert_eq!(bench.table.sizes().keys, 2);
}

#[test]
fn full_memory_refuses_and_evicts_nothing() {
    // contract rule 6
    let mut bench = small();
    for nonce in 1..=5 {
        bench.unlock(0, nonce);
    }
    assert_eq!(bench.lock(0, 6, 100, Wait::No), [limit(6, Bound::Nonces, 5)]);
    assert_eq!(bench.lock(0, 1, 100, Wait::No), ["refused 1 Spent(Withdrawn)"]);
    assert_eq!(bench.remembered(), 5);
    bench.lock(30_001, 6, 100, Wait::No);
    assert_eq!(bench.holder(), Some(6));
}

#[test]
fn accepted_lock_has_memory_for_its_end() {
    // contract rule 6
    let mut bench = small();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(0, 2, 100, Wait::Forever);
    for nonce in 3..=5 {
        bench.unlock(0, nonce);
    }
    bench.unlock(1, 1);
    bench.noop(101);
    assert_eq!(bench.table.knows(Nonce::from_u128(1)), Some(Known::Ended(Ended::Unlocked)));
    assert_eq!(bench.table.knows(Nonce::from_u128(2)), Some(Known::Ended(Ended::Expired)));
    assert_eq!(bench.remembered(), 5);
}

#[test]
fn floor_covers_forgotten_withdrawals() {
    // contract rule 6
    let mut bench =
        Bench::with(TableConfig { group: GROUP, nonces_max: 1, ..TableConfig::default() });
    let at = |nonce, time| {
        let seen = Seen::At { group: GROUP, time: ClusterTime(time) };
        Command::Lock(LockRequest { seen, ..request(nonce, 100_000, Wait::No) })
    };
    bench.apply(100, &at(1, 100));
    bench.unlock(200, 2);
    bench.apply(300, &unlock("k", 1, true));
    let late = bench.texts(301, &at(2, 200));
    assert!(late[0].contains("Stale"), "the LOCK of the withdrawn nonce: {late:?}");
    let innocent = bench.texts(301, &at(3, 200));
    assert!(innocent[0].contains("Stale"), "an unknown one looks the same: {innocent:?}");
    bench.apply(301, &at(3, 301));
    assert_eq!(bench.holder(), Some(3), "but is accepted when repeated with the present time");
}

#[test]
fn floor_ends_when_age_refuses() {
    let mut bench = Bench::with(TableConfig { nonces_max: 0, ..TableConfig::default() });
    let empty = bench.table.snapshot().len();
    bench.unlock(1000, 1);
    bench.noop(31_000);
    let with_floor = bench.table.snapshot().len();
    bench.noop(31_001);
    assert!(bench.table.snapshot().len() < with_floor);
    assert!(with_floor > empty);
}

#[test]
fn first_token_is_forced_into_its_limits() {
    for (requested, first) in [(0, 1), (1, 1), (u64::MAX, 1 << 63)] {
        let config = TableConfig { first_token: requested, ..TableConfig::default() };
        let mut bench = Bench::with(config);
        bench.lock(0, 1, 100, Wait::No);
        assert_eq!(bench.table.last_token(), first);
    }
}
