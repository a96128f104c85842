//! Goal: leases end when they should, tokens grow, and only the holder frees or extends.
use super::*;

#[test]
fn a_free_key_is_granted_at_once() {
    let mut bench = Bench::new();
    assert_eq!(told(&bench.lock(5, 1, 100, Wait::No)), ["granted 1 token 1 at 5 until 105"]);
    let view = bench.table.holder("k").unwrap();
    assert_eq!((view.asked_at, view.granted_at), (ClusterTime(5), ClusterTime(5)));
    assert!(bench.table.has_leases());
}

#[test]
fn a_second_lock_is_refused_held_when_it_does_not_wait() {
    // contract rule 1
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(told(&bench.lock(1, 2, 100, Wait::No)), ["refused 2 Held"]);
    assert_eq!(told(&bench.lock(1, 3, 100, Wait::Ms(0))), ["refused 3 Held"]);
    assert_eq!(bench.holder(), Some(1));
    assert_eq!(told(&bench.unlock(2, 1)), ["unlocked 1 Held"]);
    let again = told(&bench.lock(3, 2, 100, Wait::No));
    assert_eq!(again, ["granted 2 token 2 at 3 until 103"], "a refusal is no outcome");
}

#[test]
fn keys_are_independent() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    let other = Command::Lock(LockRequest { key: "K".into(), ..request(2, 100, Wait::No) });
    assert_eq!(told(&bench.apply(0, &other)), ["granted 2 token 2 at 0 until 100"]);
    let mut held: Vec<&str> = bench.table.keys().map(|key| &**key).collect();
    held.sort_unstable();
    assert_eq!(held, ["K", "k"]);
}

#[test]
fn a_lease_lives_until_just_before_its_end() {
    // contract rule 1
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(told(&bench.noop(99)), Vec::<String>::new());
    assert_eq!(bench.holder(), Some(1));
    assert_eq!(told(&bench.noop(100)), ["expired 1 token 1"]);
    assert!(!bench.table.has_leases());
    assert_eq!(bench.table.sizes().keys, 0, "contract rule 11: a free key leaves");
}

#[test]
fn a_lease_that_ends_goes_to_the_next_waiter_at_that_stamp() {
    // contract rule 3: the new lease counts from the stamp, not from the end of the old one
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(10, 2, 100, Wait::Forever);
    let effects = bench.noop(130);
    assert_eq!(told(&effects), ["expired 1 token 1", "granted 2 token 2 at 130 until 230"]);
    let Effect::Granted(grant) = &effects[1] else { panic!("{effects:?}") };
    assert_eq!(grant.asked_at, ClusterTime(10));
}

#[test]
fn several_leases_that_end_together_end_in_order_of_time_then_place() {
    let mut bench = Bench::new();
    for (key, nonce, duration) in [("z", 1, 50), ("a", 2, 50), ("m", 3, 40)] {
        let request = LockRequest { key: key.into(), ..request(nonce, duration, Wait::No) };
        bench.apply(0, &Command::Lock(request));
    }
    let ended = told(&bench.noop(60));
    assert_eq!(ended, ["expired 3 token 3", "expired 1 token 1", "expired 2 token 2"]);
}

#[test]
fn a_step_ends_what_is_due_before_its_command() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    let effects = told(&bench.lock(100, 2, 100, Wait::No));
    assert_eq!(effects, ["expired 1 token 1", "granted 2 token 2 at 100 until 200"]);
}

#[test]
fn time_never_goes_back() {
    // contract rule 3
    let mut bench = Bench::new();
    bench.lock(1000, 1, 100, Wait::No);
    assert_eq!(told(&bench.unlock(3, 1)), ["unlocked 1 Held"]);
    let effects = told(&bench.lock(3, 2, 100, Wait::No));
    assert_eq!(effects, ["granted 2 token 2 at 1000 until 1100"]);
    assert_eq!(bench.table.now(), ClusterTime(1000));
}

#[test]
fn tokens_grow_across_expiry_unlock_and_removal_of_the_key() {
    // contract rule 5
    let config = TableConfig { first_token: 500, ..TableConfig::default() };
    let mut bench = Bench::with(config);
    assert_eq!(bench.table.last_token(), 499);
    let mut tokens = Vec::new();
    for round in 0..4_u32 {
        let at = u64::from(round) * 100;
        bench.lock(at, round.into(), 50, Wait::No);
        tokens.push(bench.table.holder("k").unwrap().token);
        if round % 2 == 0 {
            bench.unlock(at + 1, round.into());
        }
    }
    assert_eq!(tokens, [500, 501, 502, 503]);
}

#[test]
fn an_unlock_frees_its_own_acquisition_and_no_other() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(told(&bench.unlock(1, 9)), ["unlocked 9 Unknown"]);
    assert_eq!(told(&bench.apply(2, &unlock("other", 1, false))), ["unlocked 1 Unknown"]);
    assert_eq!(bench.holder(), Some(1));
    bench.noop(100);
    bench.lock(100, 2, 100, Wait::No);
    assert_eq!(told(&bench.unlock(101, 1)), ["unlocked 1 Expired"]);
    assert_eq!(bench.holder(), Some(2), "the new holder is untouched");
}

#[test]
fn an_extend_ends_the_lease_at_the_later_of_its_end_and_the_duration_from_now() {
    // contract rule 4
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(told(&bench.apply(50, &extend("k", 1, 80))), ["extended 1 Some(130)"]);
    assert_eq!(told(&bench.apply(60, &extend("k", 1, 5))), ["extended 1 Some(130)"]);
    assert_eq!(told(&bench.noop(129)), Vec::<String>::new());
    let view = bench.table.holder("k").unwrap();
    assert_eq!((view.token, view.process), (1, ProcessId(9)), "the extender holds from now on");
    assert_eq!(told(&bench.noop(130)), ["expired 1 token 1"]);
}

#[test]
fn an_extend_never_re_creates_and_never_takes_from_another() {
    // contract rule 4
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(0, 2, 100, Wait::Forever);
    assert_eq!(told(&bench.apply(1, &extend("k", 2, 500))), ["extended 2 None"], "a waiter");
    assert_eq!(told(&bench.apply(1, &extend("k", 3, 500))), ["extended 3 None"], "unknown");
    assert_eq!(told(&bench.apply(1, &extend("x", 1, 500))), ["extended 1 None"], "wrong key");
    bench.noop(100);
    assert_eq!(told(&bench.apply(101, &extend("k", 1, 500))), ["extended 1 None"], "expired");
    assert_eq!(bench.table.holder("k").unwrap().expires_at, ClusterTime(200));
}

#[test]
fn an_extended_lease_is_ended_at_its_new_end_for_the_waiter() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(0, 2, 100, Wait::Forever);
    bench.apply(50, &extend("k", 1, 100));
    assert_eq!(bench.table.next_due(), Some(ClusterTime(150)));
    assert_eq!(told(&bench.noop(149)), Vec::<String>::new());
    assert_eq!(bench.noop(150).len(), 2);
}

#[test]
fn leases_are_forced_into_their_limits() {
    let mut bench = Bench::new();
    assert_eq!(told(&bench.lock(0, 1, 0, Wait::No)), ["granted 1 token 1 at 0 until 1"]);
    bench.noop(1);
    let day = 24 * 60 * 60 * 1000;
    bench.lock(1, 2, u64::MAX, Wait::No);
    assert_eq!(bench.table.holder("k").unwrap().expires_at, ClusterTime(1 + day));
    let extended = told(&bench.apply(1, &extend("k", 2, u64::MAX)));
    assert_eq!(extended, [format!("extended 2 Some({})", 1 + day)]);
}

#[test]
fn time_stops_long_before_the_end_of_its_range_and_leases_last() {
    let mut bench = Bench::new();
    let end = 1 << 63;
    let granted = told(&bench.lock(u64::MAX, 1, 100, Wait::No));
    assert_eq!(granted, [format!("granted 1 token 1 at {end} until {}", end + 100)]);
    assert_eq!(told(&bench.lock(u64::MAX, 2, 100, Wait::Ms(u64::MAX))), ["queued 2"]);
    let restored = LockTable::restore(&bench.table.snapshot()).unwrap();
    assert_eq!(restored.snapshot(), bench.table.snapshot());
    assert_eq!(bench.table.now(), ClusterTime(end));
}

#[test]
fn the_next_due_time_counts_only_leases_that_somebody_waits_for() {
    // contract rule 3
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(bench.table.next_due(), None);
    assert_eq!(bench.table.next_sweep(), Some(ClusterTime(100)));
    bench.lock(0, 2, 100, Wait::Ms(30));
    assert_eq!(bench.table.next_due(), Some(ClusterTime(100)));
    assert_eq!(bench.table.next_sweep(), Some(ClusterTime(30)));
    bench.noop(30);
    assert_eq!(bench.table.next_due(), None);
}
