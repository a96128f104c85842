//! Queries: scans by page.

use super::*;

/// A scan by pages of `limit`, while `between` changes the table.
fn scan(bench: &mut Bench, limit: usize, mut between: impl FnMut(&mut Bench)) -> Vec<Arc<str>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (keys, next) = bench.table.scan(after.as_ref(), "a/", limit);
        assert!(keys.len() <= limit);
        all.extend(keys);
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
        keys.dedup();
        assert_eq!(keys.len(), 40, "pages of {limit}");
        assert!(keys.iter().all(|key| key.starts_with("a/")));
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
