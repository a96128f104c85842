//! Goal: the floor stands in for forgotten ends, and ends itself.
use super::*;

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
