//! Goal: leases end when they should, tokens grow, and only the holder unlocks or extends.
use super::*;

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
    assert_eq!(bench.unlock(101, 1), ["unlocked 1 Ended"]);
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
