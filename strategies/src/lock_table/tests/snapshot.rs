//! Goal: a snapshot carries everything, byte for byte, and hostile bytes do no harm.
use proptest::prelude::*;

use super::*;
use crate::lock_table::config::{FIRST_TOKEN_MAX, TIME_MAX};

/// The greatest token and place that a snapshot may tell of.
const COUNTER_MAX: u64 = (1 << 63) + (1 << 62);

/// A table with a holder, waiters of every kind, ends of every kind, and a floor.
fn rich() -> Bench {
    let mut bench =
        Bench::with(TableConfig { group: GROUP, nonces_max: 9, ..TableConfig::default() });
    bench.lock(0, 90, 5, Wait::No);
    bench.lock(10, 1, 100, Wait::No);
    bench.lock(11, 2, 100, Wait::Ms(50));
    bench.lock(12, 3, 100, Wait::Forever);
    bench.lock(13, 4, 100, Wait::Ms(500));
    bench.unlock(14, 4);
    for (key, nonce) in [("a", 5), ("zé\0", 6)] {
        let owner = Owner { host: "h".into(), pid: 7, label: Some("l".into()) };
        let process = ProcessId(nonce as u64);
        let request = request(nonce, 1000, Wait::No);
        let request = LockRequest { key: key.into(), owner: owner.into(), process, ..request };
        bench.apply(15, &Command::Lock(request));
    }
    bench.apply(16, &unlock("a", 5, false));
    for nonce in 20..24 {
        bench.unlock(17, nonce);
    }
    bench
}

fn row<'a>(table: &'a mut LockTable, key: &str) -> &'a mut row::Row {
    let id = table.rows.find(key).unwrap();
    &mut table.rows[id]
}

/// The next waiter for the key `k`.
fn head(table: &mut LockTable) -> &mut claim::Waiter {
    row(table, "k").queue.values_mut().next().unwrap()
}

/// Notes the end of some nonce.
fn ended(table: &mut LockTable, how: Ended, at: u64) {
    table.nonces.end(Nonce::from_u128(777), how, ClusterTime(at));
}

#[test]
fn a_restored_table_behaves_as_the_original() {
    // contract rule 5: tokens and times go on
    let mut original = rich();
    let bytes = original.table.snapshot();
    let mut restored = Bench { table: LockTable::restore(&bytes).unwrap() };
    restored.table.check();
    assert_eq!(restored.table.snapshot(), bytes);
    assert_eq!(restored.table.config(), original.table.config());
    assert_eq!((restored.table.config().group, restored.table.config().nonces_max), (GROUP, 9));
    for at in [20, 40, 61, 110, 111, 300, 40_000] {
        let nonce = u128::from(at);
        let request = |bench: &mut Bench| bench.lock(at, nonce, 30, Wait::Ms(9));
        assert_eq!(request(&mut original), request(&mut restored));
        assert_eq!(original.table.snapshot(), restored.table.snapshot());
    }
}

#[test]
fn the_bytes_do_not_depend_on_the_order_in_which_keys_came() {
    let table = |keys: [&str; 3]| {
        let mut bench = Bench::new();
        for key in keys {
            let nonce = key.len() as u128;
            let request = LockRequest { key: key.into(), ..request(nonce, 100, Wait::No) };
            bench.apply(0, &Command::Lock(request));
        }
        bench.table.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(table(["a", "bb", "ccc"]), table(["ccc", "a", "bb"]));
}

#[test]
fn keys_whose_digests_collide_are_restored_whatever_order_they_came_in() {
    let keys = rows::tests::colliding(3);
    let table = |order: [usize; 3]| {
        let mut bench = Bench::new();
        for key in order {
            let request = request(key as u128, 100, Wait::No);
            let request = LockRequest { key: keys[key].as_str().into(), ..request };
            bench.apply(0, &Command::Lock(request));
        }
        bench.table
    };
    let order = |table: &LockTable| table.keys().cloned().collect::<Vec<_>>();
    let (one, other) = (table([0, 1, 2]), table([2, 0, 1]));
    assert_eq!(order(&one), order(&other));
    for table in [one, other] {
        let restored = LockTable::restore(&table.snapshot()).unwrap();
        restored.check();
        assert_eq!(restored, table);
    }
}

/// The simulator compares tables so.
#[test]
fn tables_that_differ_in_anything_are_not_equal() {
    type Change = fn(&mut LockTable);
    let changes: [Change; 12] = [
        |t| t.config.keys_max -= 1,
        |t| t.now = t.now.after(1),
        |t| t.last_token += 1,
        |t| t.last_place += 1,
        |t| row(t, "k").holder.token += 1,
        |t| head(t).deadline = None,
        |t| _ = row(t, "k").queue.pop_first(),
        |t| row(t, "k").key = "another".into(),
        |t| {
            // The others are the beginning of what there was.
            let (last, _) = *t.rows.in_order().last().unwrap();
            t.rows.remove(last);
        },
        |t| t.nonces.set_floor(Some(ClusterTime(1))),
        |t| ended(t, Ended::Withdrawn, 17),
        |t| {
            let nonce = row(t, "k").holder.claim.nonce;
            t.nonces.forget(nonce);
        },
    ];
    let table = rich().table;
    assert_eq!(table, table.clone());
    for (place, change) in changes.into_iter().enumerate() {
        let mut changed = table.clone();
        change(&mut changed);
        assert!(changed != table, "change {place} is not seen");
        assert!(table != changed, "change {place} is not seen from the other side");
    }
}

#[test]
fn an_unknown_version_is_named() {
    // contract rule 12
    let mut bytes = rich().table.snapshot();
    bytes[0] = 9;
    let error = LockTable::restore(&bytes).unwrap_err();
    assert!(matches!(error, SnapshotError::Version { found: 9 }), "{error}");
}

#[test]
fn every_prefix_and_every_tail_is_refused() {
    let mut bytes = rich().table.snapshot();
    for length in 0..bytes.len() {
        LockTable::restore(&bytes[..length]).expect_err("cut off");
    }
    bytes.push(0);
    LockTable::restore(&bytes).expect_err("followed by something else");
}

#[test]
fn a_length_that_promises_too_much_allocates_nothing() {
    // version, group 0, first token 1, three small bounds, ..., then 2^63 rows
    let mut bytes = vec![1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0];
    bytes.extend([0xff; 9]);
    bytes.push(0x01);
    LockTable::restore(&bytes).expect_err("there are no such rows");
}

#[test]
fn a_table_that_contradicts_itself_is_refused() {
    let good = rich().table;
    type Break = fn(&mut LockTable);
    let breaks: [(&str, Break); 24] = [
        ("lease that has ended", |t| t.now = ClusterTime(110)),
        ("token that was never granted", |t| t.last_token = 1),
        ("place that was never taken", |t| t.last_place = 4),
        ("nonce that occurs twice", |t| {
            let nonce = row(t, "k").holder.claim.nonce;
            row(t, "zé\0").holder.claim.nonce = nonce;
        }),
        ("queue out of order", |t| row(t, "k").holder.claim.place = 5),
        ("place that was taken twice", |t| {
            row(t, "zé\0").holder.claim.place = row(t, "k").holder.claim.place;
        }),
        ("more keys than the limit", |t| t.config.keys_max = 1),
        ("more waiters than the limit", |t| t.config.waiters_per_key_max = 1),
        ("more nonces than the limit", |t| t.config.nonces_max = 3),
        ("first token out of range", |t| t.config.first_token = 0),
        ("last token out of range", |t| t.last_token = COUNTER_MAX + 1),
        ("last place out of range", |t| t.last_place = COUNTER_MAX + 1),
        ("last token before the first", |t| t.config.first_token = t.last_token + 2),
        ("token before the first", |t| t.config.first_token = t.last_token),
        ("time out of range", |t| t.now = TIME_MAX.after(1)),
        ("floor after now", |t| t.nonces.set_floor(Some(t.now.after(1)))),
        ("grant after now", |t| row(t, "k").holder.granted_at = ClusterTime(18)),
        ("LOCK after now", |t| row(t, "k").holder.claim.asked_at = ClusterTime(18)),
        ("lease of nothing", |t| row(t, "k").holder.claim.duration_ms = 0),
        ("queue out of order", |t| {
            let place = row(t, "k").holder.claim.place;
            head(t).claim.place = place;
        }),
        ("waiter that is dead", |t| {
            let now = t.now;
            head(t).deadline = Some(now);
        }),
        ("ends out of order", |t| ended(t, Ended::Withdrawn, 0)),
        ("ends out of order", |t| ended(t, Ended::Withdrawn, 18)),
        ("end that is none", |t| ended(t, Ended::Held, 17)),
    ];
    for (what, broken) in breaks {
        let mut table = good.clone();
        broken(&mut table);
        let error = LockTable::restore(&table.snapshot()).expect_err(what);
        assert!(
            matches!(error, SnapshotError::Inconsistent { what: found } if found == what),
            "{what}: {error}"
        );
    }
}

#[test]
fn a_table_at_every_limit_is_restored() {
    let sound = |change: &dyn Fn(&mut LockTable)| {
        let mut table = rich().table;
        change(&mut table);
        LockTable::restore(&table.snapshot()).unwrap();
    };
    sound(&|t| (t.last_token, t.last_place) = (COUNTER_MAX, COUNTER_MAX));
    sound(&|t| t.nonces.set_floor(Some(t.now)));
    sound(&|t| t.config.keys_max = t.rows.len() as u64);
    sound(&|t| t.config.waiters_per_key_max = row(t, "k").queue.len() as u64);
    sound(&|t| t.config.nonces_max = t.nonces.len() as u64);
    let first_token = FIRST_TOKEN_MAX;
    let mut bench = Bench::with(TableConfig { first_token, ..TableConfig::default() });
    bench.noop(TIME_MAX.0);
    LockTable::restore(&bench.table.snapshot()).unwrap();
}

/// The last of three, in the order of the snapshot, ends with the first, at the same place.
#[test]
fn leases_of_one_end_and_place_are_refused() {
    let mut bench = Bench::new();
    for (key, nonce) in [("a", 1), ("b", 2), ("c", 3)] {
        let request = LockRequest { key: key.into(), ..request(nonce, 1000, Wait::No) };
        bench.apply(0, &Command::Lock(request));
    }
    let table = &mut bench.table;
    let ids: Vec<_> = table.rows.in_order().iter().map(|(id, _)| *id).collect();
    for (id, (end, place)) in ids.into_iter().zip([(200, 1), (300, 2), (200, 1)]) {
        let holder = &mut table.rows[id].holder;
        (holder.expires_at, holder.claim.place) = (ClusterTime(end), place);
    }
    let error = LockTable::restore(&table.snapshot()).unwrap_err();
    let right = matches!(error, SnapshotError::Inconsistent { what: "place that was taken twice" });
    assert!(right, "{error}");
}

#[test]
fn a_key_that_comes_twice_or_out_of_order_is_refused() {
    let mut bench = Bench::new();
    for (key, nonce) in [("a", 1), ("b", 2)] {
        let request = LockRequest { key: key.into(), ..request(nonce, 100, Wait::No) };
        bench.apply(0, &Command::Lock(request));
    }
    let good = bench.table.snapshot();
    LockTable::restore(&good).unwrap();
    let at = |key: u8| good.windows(2).position(|two| two == [1, key]).unwrap() + 1;
    for (first, second) in [(b'a', b'a'), (b'b', b'b'), (b'b', b'a')] {
        let mut bytes = good.clone();
        (bytes[at(b'a')], bytes[at(b'b')]) = (first, second);
        let error = LockTable::restore(&bytes).unwrap_err();
        let right = matches!(error, SnapshotError::Inconsistent { what: "keys out of order" });
        assert!(right, "{error}");
    }
}

/// [`LockTable::check`] is what the other tests rely on.
#[test]
fn a_broken_table_does_not_pass_the_check() {
    type Break = fn(&mut LockTable);
    let breaks: [Break; 11] = [
        |t| t.now = ClusterTime(110),
        |t| t.last_token = 1,
        |t| t.last_place = 1,
        |t| row(t, "k").holder.granted_at = ClusterTime(18),
        |t| _ = t.index.uncontended.pop_first(),
        |t| _ = t.index.deadlines.pop_first(),
        |t| head(t).claim.process = ProcessId(99),
        |t| head(t).claim.place = 0,
        |t| t.index.contended.clear(),
        |t| {
            let nonce = row(t, "k").holder.claim.nonce;
            t.nonces.forget(nonce);
        },
        |t| t.config.keys_max = 1,
    ];
    for (place, broken) in breaks.into_iter().enumerate() {
        let mut table = rich().table;
        table.check();
        broken(&mut table);
        let checked = std::panic::catch_unwind(|| table.check());
        assert!(checked.is_err(), "break {place} passes");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_give_a_table_in_order(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(table) = LockTable::restore(&bytes) {
            table.check();
        }
    }

    #[test]
    fn changed_bytes_are_refused_or_give_a_table_in_order(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut bytes = rich().table.snapshot();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(mut table) = LockTable::restore(&bytes) {
            table.check();
            table.apply(table.now().after(50), &Command::Noop, &mut Vec::new());
            table.check();
        }
    }
}
