//! Goal: leases end when they should, tokens grow, and only the holder unlocks or extends.
use super::*;

#[test]
fn free_key_is_granted_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.lock(5, 1, 100, Wait::No), ["granted 1 token 1 at 5 until 105"]);
    assert_eq!(
        (bench.grant().asked_at, bench.grant().granted_at),
        (ClusterTime(5), ClusterTime(5))
    );
    assert_eq!(bench.texts(5, &lock_of("K", 2, 100)), ["granted 2 token 2 at 5 until 105"]);
    assert!(bench.table.has_leases());
}

#[test]
fn held_key_is_refused_to_a_try() {
    // contract rule 1
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(bench.lock(1, 2, 100, Wait::No), ["refused 2 Held"]);
    assert_eq!(bench.lock(1, 3, 100, Wait::Ms(0)), ["refused 3 Held"]);
    assert_eq!(bench.holder(), Some(1));
    assert_eq!(bench.unlock(2, 1), ["unlocked 1 Held"]);
    let again = bench.lock(3, 2, 100, Wait::No);
    assert_eq!(again, ["granted 2 token 2 at 3 until 103"], "a refusal is no outcome");
}

#[test]
fn lease_lives_until_just_before_its_end() {
    // contract rule 1
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(bench.noop(99), NOTHING);
    assert_eq!(bench.holder(), Some(1));
    assert_eq!(bench.noop(100), ["expired 1 token 1"]);
    assert!(!bench.table.has_leases());
    assert_eq!(bench.table.sizes().keys, 0, "contract rule 11: a free key leaves");
}

#[test]
fn expiry_grants_at_the_present_stamp() {
    // contract rule 3: the new lease counts from the stamp, not from the end of the old one
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(10, 2, 100, Wait::Forever);
    assert_eq!(bench.noop(130), ["expired 1 token 1", "granted 2 token 2 at 130 until 230"]);
    assert_eq!(bench.grant().asked_at, ClusterTime(10));
}

#[test]
fn leases_end_by_time_then_position() {
    let mut bench = Bench::new();
    for (key, nonce, duration) in [("z", 1, 50), ("a", 2, 50), ("m", 3, 40)] {
        bench.apply(0, &lock_of(key, nonce, duration));
    }
    assert_eq!(bench.noop(60), ["expired 3 token 3", "expired 1 token 1", "expired 2 token 2"]);
}

#[test]
fn leases_end_before_the_command() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    let effects = bench.lock(100, 2, 100, Wait::No);
    assert_eq!(effects, ["expired 1 token 1", "granted 2 token 2 at 100 until 200"]);
}

#[test]
fn time_never_goes_back() {
    // contract rule 3
    let mut bench = Bench::new();
    bench.lock(1000, 1, 100, Wait::No);
    assert_eq!(bench.unlock(3, 1), ["unlocked 1 Held"]);
    assert_eq!(bench.lock(3, 2, 100, Wait::No), ["granted 2 token 2 at 1000 until 1100"]);
    assert_eq!(bench.table.now(), ClusterTime(1000));
}

#[test]
fn tokens_grow_whatever_ends_a_hold() {
    // contract rule 5
    let mut bench = Bench::with(TableConfig { first_token: 500, ..TableConfig::default() });
    assert_eq!(bench.table.last_token(), 499);
    for round in 0..4_u32 {
        let at = u64::from(round) * 100;
        bench.lock(at, round.into(), 50, Wait::No);
        assert_eq!(bench.grant().token, 500 + u64::from(round));
        if round % 2 == 0 {
            bench.unlock(at + 1, round.into());
        }
    }
}

#[test]
fn unlock_frees_only_its_acquisition() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(bench.unlock(1, 9), ["unlocked 9 Unknown"]);
    assert_eq!(bench.texts(2, &unlock("other", 1, false)), ["unlocked 1 Unknown"]);
    assert_eq!(bench.holder(), Some(1));
    bench.noop(100);
    bench.lock(100, 2, 100, Wait::No);
    assert_eq!(bench.unlock(101, 1), ["unlocked 1 Expired"]);
    assert_eq!(bench.holder(), Some(2), "the new holder is untouched");
}

#[test]
fn extend_never_shortens_a_lease() {
    // contract rule 4
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(bench.texts(50, &extend("k", 1, 80)), ["extended 1 Some(130)"]);
    assert_eq!(bench.texts(60, &extend("k", 1, 5)), ["extended 1 Some(130)"]);
    assert_eq!(bench.noop(129), NOTHING);
    let Grant { token, process, .. } = bench.grant();
    assert_eq!((token, process), (1, ProcessId(9)), "the extender holds from now on");
    assert_eq!(bench.noop(130), ["expired 1 token 1"]);
}

#[test]
fn extend_takes_no_key_from_another() {
    // contract rule 4
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(0, 2, 100, Wait::Forever);
    assert_eq!(bench.texts(1, &extend("k", 2, 500)), ["extended 2 None"], "a waiter");
    assert_eq!(bench.texts(1, &extend("k", 3, 500)), ["extended 3 None"], "unknown");
    assert_eq!(bench.texts(1, &extend("x", 1, 500)), ["extended 1 None"], "wrong key");
    bench.noop(100);
    assert_eq!(bench.texts(101, &extend("k", 1, 500)), ["extended 1 None"], "expired");
    assert_eq!(bench.grant().expires_at, ClusterTime(200));
}

#[test]
fn leases_are_forced_into_their_limits() {
    let mut bench = Bench::new();
    assert_eq!(bench.lock(0, 1, 0, Wait::No), ["granted 1 token 1 at 0 until 1"]);
    bench.noop(1);
    let day = 24 * 60 * 60 * 1000;
    bench.lock(1, 2, u64::MAX, Wait::No);
    assert_eq!(bench.grant().expires_at, ClusterTime(1 + day));
    let extended = bench.texts(1, &extend("k", 2, u64::MAX));
    assert_eq!(extended, [format!("extended 2 Some({})", 1 + day)]);
}

#[test]
fn leases_last_at_the_end_of_time() {
    let mut bench = Bench::new();
    let end = 1 << 63;
    let granted = bench.lock(u64::MAX, 1, 100, Wait::No);
    assert_eq!(granted, [format!("granted 1 token 1 at {end} until {}", end + 100)]);
    assert_eq!(bench.lock(u64::MAX, 2, 100, Wait::Ms(u64::MAX)), ["queued 2"]);
    assert_eq!(LockTable::restore(&bench.table.snapshot()).unwrap(), bench.table);
    assert_eq!(bench.table.now(), ClusterTime(end));
}

#[test]
fn next_due_is_of_leases_with_waiters() {
    // contract rule 3
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(bench.table.next_due(), None);
    bench.lock(0, 2, 100, Wait::Ms(30));
    assert_eq!(bench.table.next_due(), Some(ClusterTime(100)));
    bench.apply(20, &extend("k", 1, 100));
    assert_eq!(bench.table.next_due(), Some(ClusterTime(120)));
    bench.noop(30);
    assert_eq!(bench.table.next_due(), None);
}
