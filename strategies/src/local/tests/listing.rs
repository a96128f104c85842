//! Listing by pages, over all shards.

use std::collections::BTreeSet;

use super::*;
use crate::operator::{ListOptions, Page};

const KEYS: usize = 100;

/// A `Local` that holds more keys than it has shards, half of them with the prefix `a/`.
async fn holding() -> (Arc<Local>, Vec<Lock>) {
    let (local, mut locks) = (local(), Vec::new());
    for number in 0..KEYS {
        let key = format!("{}/{number}", if number % 2 == 0 { 'a' } else { 'b' });
        locks.push(local.lock(&key, options(60_000, 0)).await.unwrap());
    }
    (local, locks)
}

async fn page(local: &Local, options: &ListOptions) -> Page {
    local.operator().unwrap().list(options.clone()).await.unwrap()
}

fn keys(page: &Page) -> Vec<String> {
    page.entries.iter().map(|entry| entry.key.to_string()).collect()
}

/// All keys by pages of `limit`. Each page but the last is full.
async fn listed(local: &Local, prefix: &str, limit: usize) -> Vec<String> {
    let (mut all, mut options) = (Vec::new(), ListOptions::default().prefix(prefix).limit(limit));
    loop {
        let page = page(local, &options).await;
        all.extend(keys(&page));
        assert!(all.len() <= KEYS, "a key is found again: {all:?}");
        let Some(next) = page.next else {
            assert!(page.entries.len() <= limit, "a page of {limit}");
            return all;
        };
        assert_eq!(page.entries.len(), limit);
        options = options.after(next);
    }
}

#[tokio::test(start_paused = true)]
async fn each_page_size_lists_each_key_once() {
    let (local, locks) = holding().await;
    let all: BTreeSet<_> = locks.iter().map(|lock| lock.key().to_string()).collect();
    for limit in 1..=KEYS + 1 {
        let found = listed(&local, "", limit).await;
        assert_eq!(found.len(), KEYS, "pages of {limit}: {found:?}");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), all, "pages of {limit}");
        let first = ListOptions::default().limit(limit);
        let is_last = page(&local, &first).await.next.is_none();
        assert_eq!(is_last, limit >= KEYS, "a page of {limit}");
        let found = listed(&local, "a/", limit).await;
        assert_eq!(found.len(), KEYS / 2, "pages of {limit}: {found:?}");
        assert!(found.iter().all(|key| key.starts_with("a/")), "pages of {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn page_goes_on_behind_a_key_that_became_free() {
    for limit in [1, 3, 17] {
        let (local, locks) = holding().await;
        let (mut found, mut options) = (Vec::new(), ListOptions::default().limit(limit));
        loop {
            let page = page(&local, &options).await;
            found.extend(keys(&page));
            let Some(next) = page.next else { break };
            let last = locks.iter().find(|lock| **lock.key() == *next.as_str()).unwrap();
            local.unlock(last).await.unwrap();
            options = options.after(next);
        }
        let distinct: BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), distinct.len()), (KEYS, KEYS), "pages of {limit}");
    }
}
