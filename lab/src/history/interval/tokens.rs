//! Tokens are unique per key, and rise in the order of real time.

use std::time::Duration;

use super::{Found, Key};
use crate::history::Rule;

pub(super) fn check(key: &Key<'_, '_>, found: &mut Found) {
    let mut grants: Vec<Grant> = key
        .of_key
        .iter()
        .filter_map(|nonce| {
            let grant = nonce.grant?;
            let asked = nonce.asked.unwrap_or(grant.completed);
            Some(Grant {
                token: grant.token,
                asked,
                completed: grant.completed,
                operation: grant.operation,
            })
        })
        .collect();

    grants.sort_unstable_by_key(|grant| (grant.token, grant.operation));
    for pair in grants.windows(2) {
        if pair[0].token == pair[1].token {
            found.note(key, Rule::TokenReused, &[pair[0].operation, pair[1].operation]);
        }
    }

    let mut known = grants.clone();
    known.sort_unstable_by_key(|grant| grant.completed);
    grants.sort_unstable_by_key(|grant| grant.asked);
    let mut known = known.into_iter().peekable();
    let mut greatest: Option<Grant> = None;
    for grant in grants {
        while let Some(earlier) = known.next_if(|earlier| earlier.completed < grant.asked) {
            if greatest.is_none_or(|greatest| earlier.token > greatest.token) {
                greatest = Some(earlier);
            }
        }
        if grant.token == 0 {
            found.note(key, Rule::TokenOrder, &[grant.operation]);
        } else if let Some(earlier) = greatest.filter(|earlier| earlier.token > grant.token) {
            found.note(key, Rule::TokenOrder, &[earlier.operation, grant.operation]);
        }
    }
}

#[derive(Clone, Copy)]
struct Grant {
    token: u64,
    asked: Duration,
    completed: Duration,
    operation: u32,
}
