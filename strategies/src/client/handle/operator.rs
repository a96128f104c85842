//! Listing and force-unlock, over any backend.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::Client;
use crate::{
    client::{
        backend::Backend,
        calls::{Query, Reply},
    },
    clock::Instant,
    error::Error,
    limits::DURATION_MIN,
    lock::Lock,
    operator::{
        Cursor, Entry, ForcedUnlock, ListOptions, Operator, Page, check_reason, forced_note,
        log_forced,
    },
    options::check_key,
};

/// A page scans at most this often for its entries: few of many keys may be locks.
const SCANS_PER_PAGE: usize = 16;

#[async_trait]
impl<B: Backend> Operator for Client<B> {
    async fn list(&self, options: ListOptions) -> Result<Page, Error> {
        let (prefix, limit, mut next) = options.into_checked()?;
        self.check_open()?;
        // The inspections of a page are pending at once. It has less than twice its limit of keys.
        let limit = limit.min((self.profile.requests_max / 2).max(1));
        // A scan can find a key twice.
        let mut keys = BTreeSet::new();
        for _ in 0..SCANS_PER_PAGE {
            let by = self.clock.now().after(self.profile.request_timeout);
            let scan = Query::Scan { after: next, prefix: prefix.clone(), limit };
            match self.query(by, scan).await? {
                Reply::Scanned { keys: found, next: rest } => {
                    keys.extend(found);
                    next = rest;
                }
                other => unreachable!("a scan has no reply {other:?}"),
            }
            if keys.len() >= limit || next.is_none() {
                break;
            }
        }
        let (entries, unreadable) = self.inspect_all(keys).await?;
        Ok(Page { entries, unreadable, next: next.map(Cursor::new) })
    }

    async fn force_unlock(
        &self,
        key: &str,
        token: Option<u64>,
        reason: &str,
    ) -> Result<ForcedUnlock, Error> {
        check_key(key)?;
        check_reason(reason)?;
        self.check_open()?;
        let limit = self.clock.now().after(self.profile.request_timeout);
        while self.clock.now() < limit {
            self.catch_up(key, limit).await?;
            let Some(found) = self.inspect_by(key, limit).await? else {
                return Ok(ForcedUnlock::NotHeld);
            };
            if token.is_some_and(|token| token != found.fencing_token) {
                return Ok(ForcedUnlock::OtherToken(found));
            }
            let lock = Lock::new(key, found.nonce, found.fencing_token, None);
            if self.unlock_by(lock, limit, limit, Some(forced_note(&self.owner, reason))).await? {
                log_forced(key, &found, &self.owner, reason);
                return Ok(ForcedUnlock::Unlocked(found));
            }
            // The holder has changed since the inspection.
        }
        Err(Error::Unknown)
    }
}

impl<B: Backend> Client<B> {
    /// Inspects keys in one batch: the entries of a page, and the keys that cannot be read.
    async fn inspect_all(
        &self,
        keys: BTreeSet<Arc<str>>,
    ) -> Result<(Vec<Entry>, Vec<Arc<str>>), Error> {
        let limit = self.clock.now().after(self.profile.request_timeout);
        let begin = |key: Arc<str>| Ok((key.clone(), self.begin(limit, Query::Inspect { key })?));
        let pending = keys.into_iter().map(begin).collect::<Result<Vec<_>, Error>>()?;
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        for (key, pending) in pending {
            match pending.finish().await? {
                Reply::Inspected(Ok(Some(holder))) => entries.push(Entry { key, holder }),
                Reply::Inspected(Ok(None)) => {}
                Reply::Inspected(Err(_)) => unreadable.push(key),
                other => unreachable!("an inspection has no reply {other:?}"),
            }
        }
        Ok((entries, unreadable))
    }

    /// Sends a request that changes nothing through the log of a group. A member inspects its own
    /// table: the inspection after this request sees every grant before it.
    async fn catch_up(&self, key: &str, limit: Instant) -> Result<(), Error> {
        if !self.profile.capabilities.waits_for_leader {
            return Ok(());
        }
        let unknown = Lock::new(key, self.random.nonce(), 0, None);
        match self.extend_by(&unknown, DURATION_MIN, limit).await {
            Err(Error::NotHolder) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
