//! Goal: a snapshot carries everything, byte for byte, and hostile bytes do no harm.
use proptest::prelude::*;

use super::*;
use crate::lock_table::config::{FIRST_TOKEN_MAX, TIME_MAX};

/// The greatest token and position of a table.
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

fn row<'a>(table: &'a mut LockTable, key: &str) -> &'a mut Row {
    table.rows.get_mut(&key::Key::new(&key.into())).unwrap()
}

fn holder<'a>(table: &'a mut LockTable, key: &str) -> &'a mut Acquisition {
    &mut row(table, key).holder.acquisition
}

/// The next waiter for the key `k`.
fn head(table: &mut LockTable) -> &mut Waiter {
    row(table, "k").queue.values_mut().next().unwrap()
}

/// Notes the end of some nonce.
fn ended(table: &mut LockTable, at: u64) {
    table.nonces.end(Nonce::from_u128(777), ClusterTime(at));
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
fn excess_length_allocates_nothing() {
    // group 0, first token 1, three small bounds, ..., then 2^63 rows
    let mut bytes = vec![0, 1, 1, 1, 1, 1, 0, 0, 0, 0];
    bytes.extend([0xff; 9]);
    bytes.push(0x01);
    LockTable::restore(&bytes).expect_err("there are no such rows");
}

/// [`LockTable::check`] is what the other tests rely on.
#[test]
fn contradictory_table_is_refused() {
    let good = rich().table;
    type Break = fn(&mut LockTable);
    let breaks: [(&str, Break); 24] = [
        ("lease that has ended", |t| t.now = ClusterTime(110)),
        ("token that was never granted", |t| t.last_token = 1),
        ("position that was never given", |t| t.last_position = 4),
        ("nonce that occurs twice", |t| {
            holder(t, "zé\0").nonce = holder(t, "k").nonce;
        }),
        ("queue out of order", |t| holder(t, "k").position = 5),
        ("position that was given twice", |t| {
            holder(t, "zé\0").position = holder(t, "k").position;
        }),
        ("more keys than the limit", |t| t.config.keys_max = 1),
        ("more waiters than the limit", |t| t.config.waiters_per_key_max = 1),
        ("more nonces than the limit", |t| t.config.nonces_max = 3),
        ("first token out of range", |t| t.config.first_token = 0),
        ("last token out of range", |t| t.last_token = COUNTER_MAX + 1),
        ("last position out of range", |t| t.last_position = COUNTER_MAX + 1),
        ("last token before the first", |t| t.config.first_token = t.last_token + 2),
        ("token before the first", |t| t.config.first_token = t.last_token),
        ("time out of range", |t| t.now = TIME_MAX.after(1)),
        ("floor after now", |t| t.nonces.floor = Some(t.now.after(1))),
        ("grant after now", |t| row(t, "k").holder.granted_at = ClusterTime(18)),
        ("LOCK after now", |t| holder(t, "k").asked_at = ClusterTime(18)),
        ("lease of nothing", |t| holder(t, "k").duration_ms = 0),
        ("queue out of order", |t| {
            let position = holder(t, "k").position;
            head(t).acquisition.position = position;
        }),
        ("waiter that is dead", |t| head(t).deadline = Some(t.now)),
        ("ends out of order", |t| ended(t, 0)),
        ("ends out of order", |t| ended(t, 18)),
        ("nonce that occurs twice", |t| holder(t, "k").nonce = Nonce::from_u128(4)),
    ];
    for (what, broken) in breaks {
        let mut table = good.clone();
        broken(&mut table);
        let checked = std::panic::catch_unwind(|| table.check());
        assert!(checked.is_err(), "{what}: check() passes");
        let error = LockTable::restore(&table.snapshot()).expect_err(what);
        assert!(
            matches!(error, SnapshotError::Inconsistent(found) if found == what),
            "{what}: {error}"
        );
    }
}

/// A snapshot has neither: both follow from the rows.
#[test]
fn index_and_nonces_must_match_rows() {
    type Break = fn(&mut LockTable);
    let breaks: [Break; 4] = [
        |t| _ = t.index.leases.pop_first(),
        |t| _ = t.index.deadlines.pop_first(),
        |t| head(t).acquisition.process = ProcessId(99),
        |t| t.nonces.set(Nonce::from_u128(777), Known::Holds),
    ];
    for (number, broken) in breaks.into_iter().enumerate() {
        let mut table = rich().table;
        broken(&mut table);
        let checked = std::panic::catch_unwind(|| table.check());
        assert!(checked.is_err(), "break {number} passes");
    }
}

#[test]
fn table_at_every_limit_is_restored() {
    let sound = |change: &dyn Fn(&mut LockTable)| {
        let mut table = rich().table;
        change(&mut table);
        LockTable::restore(&table.snapshot()).unwrap();
    };
    sound(&|t| (t.last_token, t.last_position) = (COUNTER_MAX, COUNTER_MAX));
    sound(&|t| t.nonces.floor = Some(t.now));
    sound(&|t| t.config.keys_max = t.rows.len() as u64);
    sound(&|t| t.config.waiters_per_key_max = row(t, "k").queue.len() as u64);
    sound(&|t| t.config.nonces_max = t.nonces.known.len() as u64);
    let first_token = FIRST_TOKEN_MAX;
    let mut bench = Bench::with(TableConfig { first_token, ..TableConfig::default() });
    bench.noop(TIME_MAX.0);
    LockTable::restore(&bench.table.snapshot()).unwrap();
}

#[test]
fn repeated_or_unordered_keys_are_refused() {
    let mut bench = Bench::new();
    for (key, nonce) in [("a", 1), ("b", 2)] {
        bench.apply(0, &lock_of(key, nonce, 100));
    }
    let good = bench.table.snapshot();
    LockTable::restore(&good).unwrap();
    let at = |key: u8| good.windows(2).position(|two| two == [1, key]).unwrap() + 1;
    for (first, second) in [(b'a', b'a'), (b'b', b'b'), (b'b', b'a')] {
        let mut bytes = good.clone();
        (bytes[at(b'a')], bytes[at(b'b')]) = (first, second);
        let error = LockTable::restore(&bytes).unwrap_err();
        let right = matches!(error, SnapshotError::Inconsistent("keys out of order"));
        assert!(right, "{error}");
    }
}

proptest! {
    #[test]
    fn no_change_gives_an_unsound_table(
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

#[test]
fn equal_owners_are_shared() {
    let owner = |host: &str, pid, label: Option<&str>| {
        let owner = Owner { host: host.into(), pid, label: label.map(Into::into) };
        let request = LockRequest { owner: owner.into(), ..request(1, 1000, Wait::No) };
        let bytes = postcard::to_stdvec(&request).unwrap();
        let read: LockRequest = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, request);
        read.owner
    };
    for (host, pid, label) in [("h", 1, None), ("h", 1, Some("l")), ("h", 2, None)] {
        let first = owner(host, pid, label);
        assert!(Arc::ptr_eq(&first, &owner(host, pid, label)), "{first:?}");
    }
}
