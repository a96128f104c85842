//! Listing and force-unlock of the plain strategy, with faults.

use async_trait::async_trait;

use super::{Fault, Handle};
use crate::{
    defaults::REQUEST_TIMEOUT,
    error::Error,
    lock::{Lock, LossCause},
    operator::{ForcedUnlock, ListOptions, Operator, Page},
};

#[async_trait]
impl Operator for Handle {
    async fn list(&self, options: ListOptions) -> Result<Page, Error> {
        self.check_open()?;
        self.served(REQUEST_TIMEOUT).await?;
        let mut page = Operator::list(&*self.server.local(), options).await?;
        for entry in &mut page.entries {
            let token = entry.holder.fencing_token;
            entry.holder.fencing_token = self.server.token(&entry.key, token);
            entry.holder.waiters += self.server.polling(&entry.key);
            if self.is(Fault::ListHidesWaiters) {
                entry.holder.waiters = 0;
            }
        }
        Ok(page)
    }

    async fn force_unlock(
        &self,
        key: &str,
        token: Option<u64>,
        reason: &str,
    ) -> Result<ForcedUnlock, Error> {
        self.check_open()?;
        self.served(REQUEST_TIMEOUT).await?;
        let row = self.server.row_of(key);
        // Tokens as clients see them.
        if let Some(holder) = self.server.holder(&row) {
            let seen = self.server.token(&row, holder.fencing_token);
            if token.is_some_and(|token| token != seen) && !self.is(Fault::ForceIgnoresToken) {
                return Ok(ForcedUnlock::OtherToken(crate::Inspection {
                    fencing_token: seen,
                    ..holder
                }));
            }
        }
        let mut forced = self.server.local().force_unlock(&row, None, reason).await?;
        if let ForcedUnlock::Unlocked(ended) = &mut forced {
            if !self.is(Fault::ForceIsSilent) {
                let lost = Lock::new(key, ended.nonce, u64::MAX, None);
                for losses in self.server.watched().iter() {
                    losses.report(&lost, LossCause::Forced, Some(&reason.into()));
                }
            }
            ended.fencing_token = self.server.token(&row, ended.fencing_token);
        }
        Ok(forced)
    }
}
