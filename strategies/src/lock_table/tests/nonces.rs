//! Goal: requests may be lost, repeated, delayed and reordered, with bounded memory (rule 6).
use super::*;

const MEMORY: u64 = 30_000;

fn seen(nonce: u128, group: u128, time: u64) -> Command {
    let seen = Seen::At { group, time: ClusterTime(time) };
    Command::Lock(LockRequest { seen, ..request(nonce, 100, Wait::No) })
}

fn stale(nonce: u128, now: u64) -> String {
    tell(&Effect::Refused {
        nonce: Nonce::from_u128(nonce),
        process: ProcessId(1),
        request: 1,
        reason: Refusal::Stale { group: GROUP, now: ClusterTime(now) },
    })
}

#[test]
fn a_repeated_lock_is_granted_once_with_the_same_token_whoever_asks() {
    // contract rule 6
    let mut bench = Bench::new();
    let first = told(&bench.lock(0, 1, 100, Wait::No));
    let other = LockRequest { process: ProcessId(5), ..request(1, 9999, Wait::Forever) };
    assert_eq!(told(&bench.apply(50, &Command::Lock(other))), first, "the duration stays");
    assert_eq!(bench.table.last_token(), 1);
    assert_eq!(bench.table.holder("k").unwrap().process, ProcessId(5), "the answer goes to it");
}

#[test]
fn a_lock_that_arrives_after_its_unlock_grants_nothing() {
    // contract rule 6
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.unlock(1, 1);
    assert_eq!(told(&bench.lock(2, 1, 100, Wait::No)), ["refused 1 Spent(Unlocked)"]);
}

#[test]
fn a_lock_that_arrives_after_its_withdrawal_grants_nothing() {
    // contract rule 6
    let mut bench = Bench::new();
    assert_eq!(told(&bench.unlock(0, 1)), ["unlocked 1 Unknown"]);
    assert_eq!(told(&bench.lock(1, 1, 100, Wait::No)), ["refused 1 Spent(Withdrawn)"]);
    assert_eq!(told(&bench.unlock(2, 1)), ["unlocked 1 Withdrawn"]);
}

#[test]
fn a_withdrawn_waiter_does_not_come_back() {
    // contract rule 6
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(0, 2, 100, Wait::Forever);
    bench.unlock(1, 2);
    assert_eq!(told(&bench.lock(2, 2, 100, Wait::Forever)), ["refused 2 Spent(Withdrawn)"]);
}

#[test]
fn a_nonce_whose_lease_ran_out_is_spent() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    assert_eq!(told(&bench.lock(100, 1, 100, Wait::No))[1], "refused 1 Spent(Expired)");
    assert_eq!(told(&bench.unlock(101, 1)), ["unlocked 1 Expired"]);
}

#[test]
fn an_unlock_that_says_forget_leaves_nothing_behind() {
    // contract rule 6, last sentence
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    bench.lock(0, 2, 100, Wait::Forever);
    bench.apply(1, &unlock("k", 2, true));
    bench.apply(1, &unlock("k", 1, true));
    bench.apply(1, &unlock("k", 3, true));
    assert_eq!(bench.table.sizes(), Sizes::default());
    bench.unlock(2, 4);
    bench.apply(2, &unlock("k", 4, true));
    assert_eq!(bench.table.knows(Nonce::from_u128(4)), Some(Known::Ended(Ended::Withdrawn)));
}

#[test]
fn a_nonce_cannot_take_a_second_key() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    let other = Command::Lock(LockRequest { key: "x".into(), ..request(1, 100, Wait::No) });
    assert_eq!(told(&bench.apply(0, &other)), ["refused 1 Spent(Unknown)"]);
    assert_eq!(bench.table.sizes().keys, 1);
}

#[test]
fn memory_and_age_are_exactly_complementary() {
    // contract rule 6: ended at 1000; its LOCK cannot have seen a later time than that
    let mut bench = Bench::new();
    bench.noop(1000);
    bench.unlock(1000, 1);
    let last = 1000 + MEMORY;
    assert_eq!(told(&bench.apply(last, &seen(1, GROUP, 1000))), ["refused 1 Spent(Withdrawn)"]);
    assert_eq!(bench.table.sizes().nonces_remembered, 1);
    assert_eq!(told(&bench.apply(last + 1, &seen(1, GROUP, 1000))), [stale(1, last + 1)]);
    assert_eq!(bench.table.sizes().nonces_remembered, 0);
}

#[test]
fn an_unknown_lock_is_accepted_while_it_is_young_enough() {
    // contract rule 6
    let mut bench = Bench::new();
    bench.noop(MEMORY + 10);
    assert_eq!(told(&bench.apply(0, &seen(1, GROUP, 9))), [stale(1, MEMORY + 10)]);
    assert_eq!(bench.apply(0, &seen(2, GROUP, 10)).len(), 1);
    assert_eq!(bench.holder(), Some(2));
}

#[test]
fn a_lock_of_another_group_or_of_no_group_is_refused_with_the_present_time() {
    // contract rule 6
    let mut bench = Bench::new();
    bench.noop(500);
    assert_eq!(told(&bench.apply(0, &seen(1, GROUP + 1, 500))), [stale(1, 500)]);
    let never = LockRequest { seen: Seen::Never, ..request(1, 100, Wait::No) };
    assert_eq!(told(&bench.apply(0, &Command::Lock(never))), [stale(1, 500)]);
    bench.apply(0, &seen(1, GROUP, 500));
    assert_eq!(bench.holder(), Some(1), "repeated with that time it is accepted");
}

#[test]
fn a_known_nonce_is_answered_before_its_age_is_judged() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100_000, Wait::No);
    bench.lock(0, 2, 100_000, Wait::Forever);
    let late = told(&bench.apply(90_000, &seen(1, GROUP, 0)));
    assert_eq!(late, ["granted 1 token 1 at 0 until 100000"]);
    assert_eq!(told(&bench.apply(90_000, &seen(2, GROUP + 1, 0))), ["queued 2"]);
}

#[test]
fn one_step_forgets_no_more_than_its_bound() {
    let mut bench = Bench::new();
    let count = FORGOTTEN_PER_STEP as u128 + 10;
    let mut effects = Vec::new();
    for nonce in 0..count {
        bench.table.apply(ClusterTime(0), &unlock("k", nonce, false), &mut effects);
    }
    bench.noop(MEMORY + 1);
    assert_eq!(bench.table.sizes().nonces_remembered, 10);
    let first_left = FORGOTTEN_PER_STEP as u128;
    assert_eq!(
        told(&bench.lock(MEMORY + 1, first_left, 1, Wait::No)).len(),
        1,
        "what is left is forgotten by the next step, before its command"
    );
    assert_eq!(bench.table.sizes().nonces_remembered, 0);
    assert_eq!(bench.holder(), Some(first_left));
}

#[test]
fn a_late_copy_of_an_earlier_lock_does_not_hide_the_newest() {
    let mut table = Bench::new();
    let ask = |number| LockRequest { request: number, ..request(2, 100, Wait::Ms(500)) };
    table.apply(0, &lock(1, 100, Wait::No));
    table.apply(1, &Command::Lock(ask(7)));
    table.apply(2, &Command::Lock(ask(6)));
    let told = table.apply(100, &Command::Noop);
    assert!(matches!(&told[1], Effect::Granted(grant) if grant.request == 7), "{told:?}");
    let other = LockRequest { process: ProcessId(9), ..ask(3) };
    let told = table.apply(101, &Command::Lock(other));
    assert!(matches!(&told[0], Effect::Granted(grant) if grant.request == 3), "{told:?}");
}

/// Found by the fuzz target `consistency`: a lock of plain compare-and-set, granted to the 32nd
/// request of its process, was extended by another member, whose own LOCK of the nonce then got no
/// answer.
#[test]
fn a_process_that_extended_a_lock_numbers_its_requests_for_itself() {
    let mut table = Bench::new();
    let ask = |process, number| LockRequest {
        request: number,
        process: ProcessId(process),
        ..request(1, 100, Wait::No)
    };
    table.apply(0, &Command::Lock(ask(1, 32)));
    let Command::Extend { key, nonce, duration_ms, .. } = extend("k", 1, 200) else {
        unreachable!("it is one")
    };
    let process = ProcessId(2);
    table.apply(1, &Command::Extend { key, nonce, process, request: 3, duration_ms });
    let told = table.apply(2, &Command::Lock(ask(2, 4)));
    assert!(matches!(&told[0], Effect::Granted(grant) if grant.request == 4), "{told:?}");
}
