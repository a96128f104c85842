//! The list of claims: those of this server, and the active ones of all.

use std::{collections::BTreeMap, sync::Arc};

use gaggle::{
    Nonce,
    operator::{Entry, ListOptions},
    strategies::limits::PAGE_MAX,
};
use serde_json::Value;

use super::{Claim, Claims, Status, owner_of};
use crate::{access::Caller, id::ClaimId, problem::Problem, request::Filters};

/// The longest list of held keys, in pages.
const PAGES_MAX: usize = 100;

impl Claims {
    /// The claims that the caller may see and the filters admit, the oldest first.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Vec<Value>, Problem> {
        self.sweep();
        let now = self.clock.now();
        let mut claims = BTreeMap::<Nonce, Value>::new();
        if filters.status.is_none_or(|status| status == Status::Active) {
            for Entry { key, holder } in self.held(filters).await? {
                if caller.may_see(owner_of(&holder)) {
                    let id = ClaimId { nonce: holder.nonce, key };
                    let mut claim = self.of_holder(&id, &holder).to_json(now);
                    claim["ttl"] = holder.remaining.as_secs_f64().into();
                    claims.insert(id.nonce, claim);
                }
            }
        }
        // This server has more data of the claims that it made.
        let own: Vec<Arc<Claim>> = self.registry().claims.values().cloned().collect();
        let own = own.into_iter().filter(|claim| caller.may_see(&claim.owner));
        claims.extend(own.map(|claim| (claim.id.nonce, claim.to_json(now))));
        let mut claims: Vec<Value> =
            claims.into_values().filter(|claim| filters.admits(claim)).collect();
        let created = |claim: &Value| claim["created"].as_f64().unwrap_or_default();
        claims.sort_by(|a, b| created(a).total_cmp(&created(b)));
        Ok(claims.into_iter().skip(filters.offset).take(filters.limit).collect())
    }

    /// The keys that are held.
    async fn held(&self, filters: &Filters) -> Result<Vec<Entry>, Problem> {
        if let Some(resource) = filters.resource.as_deref() {
            let holder = self.mutex.inspect(resource).await?;
            return Ok(holder
                .map(|holder| Entry { key: resource.into(), holder })
                .into_iter()
                .collect());
        }
        let Some(operator) = self.mutex.operator() else { return Ok(Vec::new()) };
        let (mut entries, mut options) = (Vec::new(), ListOptions::default().limit(PAGE_MAX));
        for _ in 0..PAGES_MAX {
            let page = operator.list(options.clone()).await?;
            entries.extend(page.entries);
            let Some(next) = page.next else { break };
            options = options.after(next);
        }
        Ok(entries)
    }
}
