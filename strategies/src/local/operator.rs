//! Listing and force-unlock of a [`Local`].

use async_trait::async_trait;
use tokio::task::consume_budget;

use super::{
    Local,
    shard::{SHARDS, shard_of},
};
use crate::{
    error::Error,
    lock_table::Command,
    operator::{
        Cursor, Entry, ForcedUnlock, ListOptions, Operator, Page, check_reason, forced_note,
        log_forced,
    },
    options::check_key,
};

#[async_trait]
impl Operator for Local {
    /// The key after which a page continues names its shard.
    async fn list(&self, options: ListOptions) -> Result<Page, Error> {
        let (prefix, limit, mut after) = options.into_checked()?;
        consume_budget().await;
        let mut entries: Vec<Entry> = Vec::new();
        for index in after.as_deref().map_or(0, shard_of)..SHARDS {
            let mut access = self.shards.open(index)?;
            access.step(&Command::Noop);
            let table = &access.shard.table;
            let (keys, next) = table.scan(after.take().as_ref(), &prefix, limit - entries.len());
            entries.extend(keys.into_iter().filter_map(|key| {
                let holder = table.inspect(&key)?;
                Some(Entry { key, holder })
            }));
            let is_full = entries.len() == limit && index + 1 < SHARDS;
            let next = next.or_else(|| Some(entries.last().filter(|_| is_full)?.key.clone()));
            if next.is_some() {
                return Ok(Page { entries, unreadable: Vec::new(), next: next.map(Cursor::new) });
            }
        }
        Ok(Page { entries, unreadable: Vec::new(), next: None })
    }

    async fn force_unlock(
        &self,
        key: &str,
        token: Option<u64>,
        reason: &str,
    ) -> Result<ForcedUnlock, Error> {
        check_key(key)?;
        check_reason(reason)?;
        consume_budget().await;
        let mut access = self.shards.access(key)?;
        access.step(&Command::Noop);
        let key = key.into();
        let Some(found) = access.shard.table.inspect(&key) else {
            return Ok(ForcedUnlock::NotHeld);
        };
        if token.is_some_and(|token| token != found.fencing_token) {
            return Ok(ForcedUnlock::OtherToken(found));
        }
        let by = access.shard.owner.clone();
        access.force_unlock(&key, found.nonce, forced_note(&by, reason));
        drop(access);
        log_forced(&key, &found, &by, reason);
        Ok(ForcedUnlock::Unlocked(found))
    }
}
