//! First come, first served: a waiter queued before another LOCK's invocation is granted first.

use std::time::Duration;

use super::{Found, Key};
use crate::history::Rule;

/// Tokens give the order of the grants. From the last one back, the earliest place in the queue of
/// all that were served later must not be earlier than the asking of any that was served before.
pub(super) fn check(key: &Key<'_, '_>, found: &mut Found) {
    let mut grants: Vec<(u64, Duration, Option<Duration>, u32)> = key
        .of_key
        .iter()
        .filter_map(|nonce| {
            let grant = nonce.grant?;
            // With two LOCKs of one nonce it is open which of them had the place.
            let queued = key.operation(grant.operation).queued.filter(|_| nonce.locks == 1);
            Some((grant.token, nonce.asked?, queued, grant.operation))
        })
        .collect();
    grants.sort_unstable();
    let mut earliest: Option<(Duration, u32)> = None;
    for &(_, asked, queued, operation) in grants.iter().rev() {
        if let Some((_, overtaken)) = earliest.filter(|(queued, _)| *queued < asked) {
            found.note(key, Rule::Overtaken, &[overtaken, operation]);
        }
        if let Some(queued) = queued
            && earliest.is_none_or(|(earliest, _)| queued < earliest)
        {
            earliest = Some((queued, operation));
        }
    }
}
