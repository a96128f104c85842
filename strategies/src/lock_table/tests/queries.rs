//! Queries: scans by page. A page has its limit of keys, and looks at a bounded number of rows.

use super::*;

/// A scan by pages of `limit`, while `between` changes the table.
fn scan(bench: &mut Bench, limit: usize, mut between: impl FnMut(&mut Bench)) -> Vec<Arc<str>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (keys, next) = bench.table.scan(after.as_ref(), "a/", limit);
        assert!(keys.len() <= limit);
        all.extend(keys);
        assert!(all.len() <= 40, "a key is found again: {all:?}");
        after = next;
        if after.is_none() {
            return all;
        }
        between(bench);
    }
}

#[test]
fn scan_finds_each_key_of_a_prefix_once() {
    let mut bench = Bench::new();
    for number in 0..40 {
        bench.apply(1, &lock_of(&format!("a/{number}"), 2 * number, 60_000));
        bench.apply(1, &lock_of(&format!("b/{number}"), 2 * number + 1, 60_000));
    }
    for limit in [1, 3, 40, 100] {
        let mut keys = scan(&mut bench, limit, |_| {});
        keys.sort();
        let mut expected: Vec<Arc<str>> = (0..40).map(|n| format!("a/{n}").into()).collect();
        expected.sort();
        assert_eq!(keys, expected, "pages of {limit}");
    }
}

#[test]
fn scan_looks_at_10_000_rows_at_a_time() {
    let (mut bench, mut effects) = (Bench::new(), Vec::new());
    for number in 0..20_001 {
        // No check runs after each step: it looks at every row.
        let lock = lock_of(&format!("b/{number}"), number, 60_000);
        bench.table.apply(ClusterTime(1), &lock, &mut effects);
    }
    bench.table.check();
    let (mut pages, mut after) = (0, None);
    loop {
        let (keys, next) = bench.table.scan(after.as_ref(), "a/", 5);
        assert!(keys.is_empty(), "{keys:?}");
        pages += 1;
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 3);
}

#[test]
fn scan_that_ends_with_the_table_is_the_last() {
    let mut bench = Bench::new();
    assert_eq!(bench.table.scan(None, "a/", 2), (vec![], None));
    for number in 0..4 {
        bench.apply(1, &lock_of(&format!("a/{number}"), number, 60_000));
    }
    for (limit, pages) in [(1, 4), (2, 2), (3, 2), (4, 1), (5, 1)] {
        let mut between = 0;
        let keys = scan(&mut bench, limit, |_| between += 1);
        assert_eq!((keys.len(), between + 1), (4, pages), "pages of {limit}");
    }
}

#[test]
fn scan_goes_on_behind_a_key_that_became_free() {
    let mut bench = Bench::new();
    for number in 0..40 {
        bench.apply(1, &lock_of(&format!("a/{number}"), number, 60_000));
    }
    let mut number = 0..20_u128;
    let keys = scan(&mut bench, 3, |bench| {
        for number in number.by_ref().take(2) {
            bench.apply(2, &unlock(&format!("a/{number}"), number, true));
        }
    });
    let stayed: Vec<String> = (20..40).map(|number| format!("a/{number}")).collect();
    assert!(stayed.iter().all(|key| keys.iter().any(|found| **found == **key)), "{keys:?}");
}
