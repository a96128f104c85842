//! Goal: waiters are served in order, once, and never when dead.
use super::*;

fn enqueue(bench: &mut Bench, nonces: std::ops::RangeInclusive<u128>) {
    for nonce in nonces {
        assert_eq!(bench.lock(0, nonce, 100, Wait::Forever), [format!("queued {nonce}")]);
    }
}

#[test]
fn waiters_are_granted_in_fifo_order() {
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    enqueue(&mut bench, 2..=5);
    for nonce in 1..=4 {
        let effects = bench.unlock(7, nonce);
        let next = nonce + 1;
        assert_eq!(effects[0], format!("unlocked {nonce} Held"));
        assert_eq!(effects[1], format!("granted {next} token {next} at 7 until 107"));
    }
    assert_eq!(bench.unlock(8, 5), ["unlocked 5 Held"]);
    assert_eq!(bench.table.sizes(), Sizes { nonces_remembered: 5, ..Sizes::default() });
}

#[test]
fn expired_waiter_is_never_granted() {
    // contract rule 7
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    for (nonce, wait) in [(2, 50), (3, 20), (4, 50), (5, 100), (6, 101)] {
        bench.lock(0, nonce, 100, Wait::Ms(wait));
    }
    assert_eq!(bench.noop(19), NOTHING);
    let dropped = ["dropped 3", "dropped 2", "dropped 4"];
    assert_eq!(bench.noop(60), dropped, "in the order of deadline, then position");
    let effects = bench.noop(100);
    let expected = ["dropped 5", "expired 1 token 1", "granted 6 token 2 at 100 until 200"];
    assert_eq!(effects, expected, "a deadline that equals the end of the lease is dead");
}

#[test]
fn repeated_lock_keeps_its_position() {
    // contract rule 6
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    enqueue(&mut bench, 2..=3);
    assert_eq!(bench.lock(5, 2, 100, Wait::Forever), ["queued 2"]);
    assert_eq!(bench.lock(5, 2, 100, Wait::No), ["queued 2"], "also when it would not wait");
    assert_eq!(bench.waiters(), 2);
    assert_eq!(bench.unlock(6, 1)[1], "granted 2 token 2 at 6 until 106");
}

#[test]
fn silent_process_loses_only_waiters() {
    // contract rules 7 and 9
    let mut bench = Bench::new();
    bench.lock(0, 1, 100, Wait::No);
    // Many, so that no other order comes by chance.
    for nonce in 2..=41 {
        let process = ProcessId(nonce % 2);
        let request = LockRequest { process, ..request(nonce.into(), 100, Wait::Forever) };
        bench.apply(0, &Command::Lock(request));
    }
    let both = bench.table.processes_waiting().collect::<Vec<_>>();
    assert_eq!(both, [ProcessId(0), ProcessId(1)]);
    let odd: Vec<String> = (3..=41).step_by(2).map(|nonce| format!("dropped {nonce}")).collect();
    assert_eq!(bench.texts(1, &drop_waiters(1)), odd);
    assert_eq!(bench.holder(), Some(1), "the hold of the same process stays until its end");
    assert_eq!(bench.unlock(2, 1)[1], "granted 2 token 2 at 2 until 102");
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
    bench.table.apply(ClusterTime(2), &drop_waiters(1), &mut effects);
    bench.table.apply(ClusterTime(50), &Command::Noop, &mut effects);
    bench.table.check();
    assert_eq!(bench.waiters(), 0);
    let took = begun.elapsed();
    assert!(took.as_secs() < 20, "{took:?}");
}
