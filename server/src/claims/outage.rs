//! Outages of the strategy: a request that waits is answered once one lasts.

use std::{mem, sync::Arc, time::Duration};

use super::Claims;
use crate::{problem::Problem, readiness::PROBE_KEY};

/// How often the strategy is asked whether it serves. An outage is reported at the second look: a
/// change of leader ends no wait.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Claims {
    /// Looks for outages of a strategy outside this process, until the server closes.
    pub(crate) fn watch_outages(self: &Arc<Self>) {
        let claims = self.clone();
        if claims.is_shared {
            tokio::spawn(async move {
                tokio::select! {
                    () = claims.closing.cancelled() => {}
                    () = claims.look_for_outages() => {}
                }
            });
        }
    }

    async fn look_for_outages(&self) {
        let mut has_failed = false;
        loop {
            let problem = match self.mutex.group_status() {
                Some(status) if status.leader.is_some() => None,
                Some(_) => Some(Problem::not_granting(self)),
                None => self.mutex.inspect(PROBE_KEY).await.err().map(Problem::from),
            };
            let had_failed = mem::replace(&mut has_failed, problem.is_some());
            let lasting = problem.filter(|_| had_failed);
            self.outage.send_if_modified(|outage| {
                let is_other = outage.is_some() != lasting.is_some();
                *outage = lasting;
                is_other
            });
            self.clock.sleep_until(self.clock.now().after(LOOK_EVERY)).await;
        }
    }

    /// Completes during an outage, with its reason.
    pub(super) async fn outage(&self) -> Problem {
        let mut outage = self.outage.subscribe();
        let reported = outage.wait_for(Option::is_some).await;
        reported.ok().and_then(|outage| outage.clone()).expect("the claims have the sender")
    }
}
