//! Rules about the operations of one nonce.

use std::time::Duration;

use super::{Acquisition, Found, Key, Rules};
use crate::history::{Call, Operation, Outcome, Refusal, Rule};

pub(super) fn check(key: &Key<'_, '_>, nonce: &Acquisition, rules: Rules, found: &mut Found) {
    let mut longest = Duration::ZERO;
    for (number, operation) in key.acquisitions.operations(nonce) {
        match operation.call {
            Call::Lock { duration, .. } | Call::Extend { duration } => {
                longest = longest.max(duration);
            }
            Call::Unlock => {}
        }
        match operation.outcome {
            Outcome::Granted { token, .. } => {
                check_grant(key, nonce, (number, operation), found);
                if let Some(grant) = nonce.grant.filter(|grant| grant.token != token)
                    && rules.tokens
                {
                    found.note(key, Rule::TokenChanged, &[grant.operation, number]);
                }
            }
            Outcome::Done | Outcome::Extended { .. } => {
                check_success(key, nonce, (number, operation), found);
            }
            Outcome::Refused(refusal) if !operation.call.is_lock() => {
                check_refusal(key, nonce, (number, operation), refusal, rules, found);
            }
            Outcome::Refused(_) | Outcome::Unknown => {}
        }
        if let (true, Some(completed), Outcome::Granted { until, .. } | Outcome::Extended { until }) =
            (rules.leases, operation.completed, operation.outcome)
            && until > completed.saturating_add(longest)
        {
            found.note(key, Rule::DeadlineTooLate, &[number]);
        }
    }
}

fn check_grant(
    key: &Key<'_, '_>,
    nonce: &Acquisition,
    (number, operation): (u32, &Operation),
    found: &mut Found,
) {
    if let Some((done, unlock)) = nonce.done
        && operation.invoked > done
    {
        found.note(key, Rule::GrantAfterUnlock, &[unlock, number]);
    }
}

fn check_success(
    key: &Key<'_, '_>,
    nonce: &Acquisition,
    (number, operation): (u32, &Operation),
    found: &mut Found,
) {
    if nonce.asked.is_none_or(|asked| operation.completed.is_some_and(|at| asked > at)) {
        found.note(key, Rule::NeverLocked, &[number]);
    }
    if let Some((done, unlock)) = nonce.done
        && operation.invoked > done
    {
        let rule = if operation.outcome == Outcome::Done {
            Rule::UnlockedTwice
        } else {
            Rule::ExtendedAfterUnlock
        };
        found.note(key, rule, &[unlock, number]);
    }
}

fn check_refusal(
    key: &Key<'_, '_>,
    nonce: &Acquisition,
    (number, operation): (u32, &Operation),
    refusal: Refusal,
    rules: Rules,
    found: &mut Found,
) {
    let (Some(grant), Some(completed)) = (nonce.grant, operation.completed) else { return };
    let held = |until| {
        let end = nonce.ending_but(number).min(until);
        operation.invoked > grant.completed && completed < end
    };
    match refusal {
        Refusal::NotHolder if rules.leases && held(nonce.until) => {
            found.note(key, Rule::HolderRefused, &[grant.operation, number]);
        }
        // From its deadline on, the caller's own clock says this without asking; and a copy of the
        // lock that has seen no extension has the first deadline.
        Refusal::Expired if rules.leases && held(grant.until) => {
            found.note(key, Rule::ExpiredEarly, &[grant.operation, number]);
        }
        _ => {}
    }
}
