//! Listing and force-unlock, over any backend.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::{
    backend::Backend,
    call::{Call, Query, Reply},
    handle::Client,
    pending::Pending,
};
use crate::{
    Cursor, DURATION_MIN, Entry, Error, ForcedUnlock, Instant, ListOptions, Lock, Operator, Page,
    check_key,
    operator::{check_reason, log_forced, note},
};

/// A page scans at most this often for its entries: few of many keys may be locks.
const SCANS_PER_PAGE: usize = 16;

#[async_trait]
impl<B: Backend> Operator for Client<B> {
    async fn list(&self, options: ListOptions) -> Result<Page, Error> {
        options.check()?;
        self.check_open()?;
        let ListOptions { prefix, limit, after } = options;
        // One scan can find a key twice.
        let mut keys = BTreeSet::new();
        let mut next = after.map(|cursor| cursor.0);
        for _ in 0..SCANS_PER_PAGE {
            let (found, rest) = self.scan(next, prefix.clone(), limit).await?;
            keys.extend(found);
            next = rest;
            if keys.len() >= limit || next.is_none() {
                break;
            }
        }
        let (entries, unreadable) = self.inspect_all(keys).await?;
        Ok(Page { entries, unreadable, next: next.map(Cursor) })
    }

    async fn force_unlock(
        &self,
        key: &str,
        token: Option<u64>,
        reason: &str,
    ) -> Result<ForcedUnlock, Error> {
        check_key(key)?;
        check_reason(reason)?;
        let limit = self.clock.now().after(self.profile().request_timeout);
        while self.clock.now() < limit {
            self.catch_up(key, limit).await?;
            let Some(found) = self.inspect_by(key, limit).await? else {
                return Ok(ForcedUnlock::NotHeld);
            };
            if token.is_some_and(|token| token != found.fencing_token) {
                return Ok(ForcedUnlock::OtherToken(found));
            }
            let lock = Lock::new(key, found.nonce, found.fencing_token, None);
            if self.free(lock, limit, limit, Some(note(&self.owner, reason))).await? {
                log_forced(key, &found, &self.owner, reason);
                return Ok(ForcedUnlock::Unlocked(found));
            }
            // The holder has changed since the inspection.
        }
        Err(Error::Unknown)
    }
}

impl<B: Backend> Client<B> {
    async fn scan(
        &self,
        after: Option<Arc<str>>,
        prefix: Arc<str>,
        limit: usize,
    ) -> Result<(Vec<Arc<str>>, Option<Arc<str>>), Error> {
        let by = self.clock.now().after(self.profile().request_timeout);
        match self.query(by, Query::Scan { after, prefix, limit }).await? {
            Reply::Scanned { keys, next } => Ok((keys, next)),
            Reply::Failed(error) => Err(error),
            other => unreachable!("a scan has no reply {other:?}"),
        }
    }

    /// Inspects keys in one batch: the entries of a page, and the keys that cannot be read.
    async fn inspect_all(
        &self,
        keys: BTreeSet<Arc<str>>,
    ) -> Result<(Vec<Entry>, Vec<Arc<str>>), Error> {
        let limit = self.clock.now().after(self.profile().request_timeout);
        let begin = |key: Arc<str>| {
            let id = self.next_id();
            let query = Query::Inspect { key: key.clone() };
            let call = Call::Query { id, limit, query };
            Ok((key, self.send(call, Some(Call::Abandon { id }))?))
        };
        let pending: Vec<(Arc<str>, Pending<'_, _>)> =
            keys.into_iter().map(begin).collect::<Result<_, Error>>()?;
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        for (key, mut pending) in pending {
            let reply = pending.reply().await.map_err(|_| self.end_error())?;
            pending.disarm();
            match reply {
                Reply::Inspected(Some(holder)) => entries.push(Entry { key, holder }),
                Reply::Inspected(None) => {}
                Reply::Unreadable(_) => unreadable.push(key),
                Reply::Failed(error) => return Err(error),
                other => unreachable!("an inspection has no reply {other:?}"),
            }
        }
        Ok((entries, unreadable))
    }

    /// Sends a request that changes nothing through the log of a group, so that the inspection
    /// after it sees every grant before it: a member inspects its own table.
    async fn catch_up(&self, key: &str, limit: Instant) -> Result<(), Error> {
        if !self.profile().capabilities.waits_for_leader {
            return Ok(());
        }
        let unknown = Lock::new(key, self.random.nonce(), 0, None);
        match self.extend_by(&unknown, DURATION_MIN, limit).await {
            Err(Error::NotHolder) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
