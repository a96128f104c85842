//! Whether a server grants: of a group, whether a lock was granted since it formed.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gaggle::{Error, LockOptions, MaxWait, Nonce};

use crate::{claims::Claims, problem::Problem};

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the strategy is asked whether it has failed.
const FAILURE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// A key that no client uses.
pub(crate) const PROBE_KEY: &str = "gaggle-ready";
const PROBE_LEASE: Duration = Duration::from_secs(1);

/// The group in which a probe was granted last.
#[derive(Clone, Default)]
pub(crate) struct Readiness(Arc<Mutex<Option<u128>>>);

impl Readiness {
    /// Probes each group that forms, until the server closes.
    pub(crate) fn watch(claims: &Arc<Claims>) -> Self {
        let readiness = Self::default();
        if claims.mutex.group_status().is_some() {
            let (probe, claims) = (readiness.clone(), claims.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = claims.closing.cancelled() => {}
                    () = probe.run(&claims) => {}
                }
            });
        }
        readiness
    }

    async fn run(&self, claims: &Claims) {
        let group = || claims.mutex.group_status().and_then(|status| status.group);
        loop {
            let forming = group();
            if forming.is_some() && forming != self.granted_in() && probe(claims).await {
                let max_ttl = humantime::format_duration(claims.options.max_ttl).to_string();
                tracing::info!(max_ttl, "the group grants claims");
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = forming;
            }
            claims.clock.sleep_until(claims.clock.now().after(LOOK_EVERY)).await;
        }
    }

    fn granted_in(&self) -> Option<u128> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether claims are granted now.
    pub(crate) async fn check(&self, claims: &Claims) -> Result<(), Problem> {
        if claims.closing.is_cancelled() {
            return Err(Problem::closing());
        }
        let Some(status) = claims.mutex.group_status() else {
            let probed = claims.mutex.inspect(PROBE_KEY).await;
            return probed.map(drop).map_err(Problem::from);
        };
        if !status.ready || status.group != self.granted_in() {
            return Err(Problem::not_granting(claims));
        }
        Ok(())
    }

    /// Completes once claims are granted.
    pub(crate) async fn wait(&self, claims: &Claims) {
        while self.check(claims).await.is_err() {
            claims.clock.sleep_until(claims.clock.now().after(LOOK_EVERY)).await;
        }
    }
}

/// Completes once the strategy has failed permanently.
pub(crate) async fn failure(claims: &Claims) -> Error {
    loop {
        match claims.mutex.inspect(PROBE_KEY).await {
            Err(error @ Error::Failed { .. }) => return error,
            _ => claims.clock.sleep_until(claims.clock.now().after(FAILURE_LOOK_EVERY)).await,
        }
    }
}

/// Whether a lock of a key that no client knows is granted within a while.
async fn probe(claims: &Claims) -> bool {
    let key = format!("{PROBE_KEY}/{}", Nonce::random());
    let max_wait = MaxWait::AtMost(Duration::from_secs(10));
    // A group refuses a lease that is longer than its `outside_max`.
    let lease = PROBE_LEASE.min(claims.options.max_ttl);
    let options = LockOptions::default().duration(lease).max_wait(max_wait);
    match claims.mutex.lock(&key, options).await {
        Ok(lock) => {
            let _ = claims.mutex.unlock(&lock).await;
            true
        }
        Err(error) => {
            tracing::info!(%error, "nothing is granted yet");
            false
        }
    }
}
