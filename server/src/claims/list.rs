//! The list of claims: those of this server, and the active ones of all.

use std::{collections::BTreeMap, sync::Arc};

use gaggle::{
    Nonce,
    operator::{Cursor, Entry, ListOptions},
    strategies::limits::PAGE_MAX,
};
use serde_json::{Value, json};

use super::{Claim, Claims, Status};
use crate::{
    access::Caller,
    id::ClaimId,
    owner::{process_of, token_of},
    problem::Problem,
    request::Filters,
};

/// The longest list of held keys, in pages.
const PAGES_MAX: usize = 100;

impl Claims {
    /// The claims that the caller may see and the filters admit, the oldest first; and where the
    /// page after that of a cursor begins.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<(Vec<Value>, Option<Cursor>), Problem> {
        self.sweep();
        let now = self.clock.now();
        let (mut claims, mut next) = (BTreeMap::<Nonce, Value>::new(), None);
        if filters.status.is_none_or(|status| status == Status::Active) {
            let (entries, rest) = self.held(filters).await?;
            next = rest;
            for Entry { key, holder } in entries {
                if caller.may_see(token_of(&holder.owner)) {
                    let id = ClaimId { nonce: holder.nonce, key };
                    // This server has more data of a claim that it made.
                    let known = self.known(id.nonce).filter(|it| it.status() == Status::Active);
                    let mut claim = match known {
                        Some(known) => known.to_json(now),
                        None => self.of_holder(&id, &holder).to_json(now),
                    };
                    claim["ttl"] = holder.remaining.as_secs_f64().into();
                    claim["waiters"] = holder.waiters.into();
                    claim["process"] = json!(process_of(&holder.owner));
                    claims.insert(id.nonce, claim);
                }
            }
        }
        let mut own = Vec::new();
        if filters.cursor.is_none() {
            own = self.inactive(caller, filters);
            own.retain(|claim| !claims.contains_key(&claim.id.nonce));
        }
        claims.retain(|_, claim| filters.admits(claim));
        let mut claims: Vec<Value> = claims.into_values().collect();
        if filters.cursor.is_some() {
            return Ok((claims, next));
        }
        // A server may have many, of which the page needs few.
        let own = own.iter().map(|claim| claim.to_json(now)).filter(|claim| filters.admits(claim));
        claims.extend(own.take(filters.offset.saturating_add(filters.limit)));
        let created = |claim: &Value| claim["created"].as_f64().unwrap_or_default();
        claims.sort_by(|a, b| created(a).total_cmp(&created(b)));
        Ok((claims.into_iter().skip(filters.offset).take(filters.limit).collect(), None))
    }

    /// The claims of this server that are not active, the oldest first: the granting side has the
    /// active ones. Only the filters that need no JSON are applied.
    fn inactive(&self, caller: &Caller, filters: &Filters) -> Vec<Arc<Claim>> {
        let is_listed = |claim: &&Arc<Claim>| {
            let (key, status) = (&*claim.id.key, claim.status());
            status != Status::Active
                && filters.status.is_none_or(|wanted| wanted == status)
                && filters.resource.as_deref().is_none_or(|wanted| wanted == key)
                && key.starts_with(&filters.prefix)
                && caller.may_see(&claim.owner)
        };
        let mut found: Vec<_> =
            self.registry().claims.values().filter(is_listed).cloned().collect();
        found.sort_by_cached_key(|claim| claim.created());
        found
    }

    /// The keys that are held, or a page of them.
    async fn held(&self, filters: &Filters) -> Result<(Vec<Entry>, Option<Cursor>), Problem> {
        if let Some(resource) = filters.resource.as_deref() {
            let holder = self.mutex.inspect(resource).await?;
            let entry = holder.map(|holder| Entry { key: resource.into(), holder });
            return Ok((entry.into_iter().collect(), None));
        }
        let mut options = ListOptions::default().prefix(&*filters.prefix);
        if let Some((cursor, operator)) = filters.cursor.as_deref().zip(self.mutex.operator()) {
            options = options.limit(filters.limit.max(1));
            if !cursor.is_empty() {
                options = options.after(Cursor::new(cursor));
            }
            let page = operator.list(options).await?;
            return Ok((page.entries, page.next));
        }
        Ok((self.all_held(options).await?.0, None))
    }

    /// The held keys that these options list, from the first page on, and whether they are all.
    pub(crate) async fn all_held(
        &self,
        options: ListOptions,
    ) -> Result<(Vec<Entry>, bool), Problem> {
        let Some(operator) = self.mutex.operator() else { return Ok((Vec::new(), false)) };
        let (mut entries, mut options) = (Vec::new(), options.limit(PAGE_MAX));
        for _ in 0..PAGES_MAX {
            let page = operator.list(options.clone()).await?;
            entries.extend(page.entries);
            let Some(next) = page.next else { return Ok((entries, true)) };
            options = options.after(next);
        }
        Ok((entries, false))
    }
}
