//! Goal: the history checker accepts every history of a correct lock, and finds most of those in
//! which one answer is corrupted. Method: histories of a sequential lock, legal by construction; of
//! each kind of corruption one, at a random place. The share that is found is printed.
//!
//! A failure prints its seed, cut to the fewest calls that show it, and the command that replays it:
//! `GAGGLE_SEED=<seed> cargo test -p gaggle-strategies --test history_random`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod history_support;

use std::time::Duration;

use gaggle_strategies::testing::history::{
    Call, History, ModelKind, Operation, Outcome, Refusal, Report, check,
};
use history_support::{
    exact, ms,
    sequential::{LONG, Run, SHORT},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

const WITH_EXPIRY: [ModelKind; 3] = [ModelKind::Fenced, ModelKind::Leased, ModelKind::Queued];
const WITHOUT: [ModelKind; 1] = [ModelKind::Owner];

fn judge(operations: Vec<Operation>, models: &[ModelKind]) -> Report {
    check(&History::new(operations).unwrap(), models, &exact())
}

/// Seeds of this run: the one to replay, or fresh ones.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let replay = std::env::var("GAGGLE_SEED").map(|seed| seed.parse::<u64>().expect("a number"));
    replay.map_or_else(
        |_| {
            let first = u64::from(rand::random::<u32>());
            first..first + count
        },
        |seed| seed..seed + 1,
    )
}

fn calls(seed: u64) -> usize {
    usize::try_from(seed % 120).unwrap() + 1
}

#[test]
fn a_correct_lock_is_never_accused() {
    for (lease, models) in [(SHORT, &WITH_EXPIRY[..]), (LONG, &WITHOUT[..])] {
        for seed in seeds(500) {
            let report = judge(Run::new(seed, lease).history(calls(seed)), models);
            if report.passed() {
                continue;
            }
            let fewest = (1..=calls(seed))
                .map(|calls| judge(Run::new(seed, lease).history(calls), models))
                .find(|report| !report.passed())
                .unwrap_or(report);
            panic!(
                "{fewest}\nreplay: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --test \
                 history_random"
            );
        }
    }
}

/// What can be wrong with one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Corruption {
    TokensSwapped,
    TokenRepeated,
    UnlockOfAnother,
    RefusalOfHolder,
    GrantOfWaiter,
    GrantInsteadOfHeld,
    HeldInsteadOfGrant,
    DeadlineLonger,
    GrantEarlier,
    OperationForgotten,
}

/// Each with the least share that must be found, in percent, a little below what was measured. The
/// rest is legal by chance: an unlock said done that could have been, an operation that proves
/// nothing.
const CORRUPTIONS: [(Corruption, u64); 10] = [
    (Corruption::TokensSwapped, 95),
    (Corruption::TokenRepeated, 100),
    (Corruption::UnlockOfAnother, 80),
    (Corruption::RefusalOfHolder, 70),
    (Corruption::GrantOfWaiter, 95),
    (Corruption::GrantInsteadOfHeld, 95),
    (Corruption::HeldInsteadOfGrant, 95),
    (Corruption::DeadlineLonger, 95),
    (Corruption::GrantEarlier, 90),
    (Corruption::OperationForgotten, 30),
];

/// Makes it at a random place; `None` where nothing of its kind happened.
fn corrupt(
    corruption: Corruption,
    mut operations: Vec<Operation>,
    rng: &mut StdRng,
) -> Option<Vec<Operation>> {
    let mut pick = |matches: &dyn Fn(&Operation) -> bool| {
        let places: Vec<usize> =
            (0..operations.len()).filter(|&place| matches(&operations[place])).collect();
        (!places.is_empty()).then(|| places[rng.random_range(0..places.len())])
    };
    let is_grant = |operation: &Operation| matches!(operation.outcome, Outcome::Granted { .. });
    let token_of = |operation: &Operation| match operation.outcome {
        Outcome::Granted { token, .. } => token,
        _ => 0,
    };
    let with_token = |operation: &mut Operation, new: u64| {
        if let Outcome::Granted { token, .. } = &mut operation.outcome {
            *token = new;
        }
    };
    match corruption {
        Corruption::TokensSwapped | Corruption::TokenRepeated => {
            let (one, other) = (pick(&is_grant)?, pick(&is_grant)?);
            if one == other {
                return None;
            }
            let (first, second) = (token_of(&operations[one]), token_of(&operations[other]));
            with_token(&mut operations[other], first);
            if corruption == Corruption::TokensSwapped {
                with_token(&mut operations[one], second);
            }
        }
        Corruption::UnlockOfAnother => {
            let place = pick(&|operation| {
                operation.call == Call::Unlock && matches!(operation.outcome, Outcome::Refused(_))
            })?;
            operations[place].outcome = Outcome::Done;
        }
        Corruption::RefusalOfHolder => {
            let place = pick(&|operation| {
                matches!(operation.outcome, Outcome::Done | Outcome::Extended { .. })
            })?;
            operations[place].outcome = Outcome::Refused(Refusal::NotHolder);
        }
        Corruption::GrantOfWaiter => {
            let place =
                pick(&|operation| operation.outcome == Outcome::Refused(Refusal::TimedOut))?;
            grant_after_the_last(&mut operations, place);
        }
        Corruption::GrantInsteadOfHeld => {
            let place = pick(&|operation| operation.outcome == Outcome::Refused(Refusal::Held))?;
            grant_after_the_last(&mut operations, place);
        }
        Corruption::HeldInsteadOfGrant => {
            let place = pick(&|operation| {
                let tried =
                    matches!(operation.call, Call::Lock { max_wait: Some(Duration::ZERO), .. });
                tried && matches!(operation.outcome, Outcome::Granted { .. })
            })?;
            operations[place].outcome = Outcome::Refused(Refusal::Held);
        }
        Corruption::DeadlineLonger => {
            // Of one that ran out, and after which somebody was granted: else nobody sees it.
            let others = operations.clone();
            let place = pick(&|operation| {
                let Outcome::Granted { until, .. } = operation.outcome else { return false };
                let last = until + ms(SHORT / 2);
                let ran_out = others.iter().all(|other| {
                    other.nonce != operation.nonce || other.invoked == operation.invoked
                });
                ran_out
                    && others.iter().any(|other| {
                        is_grant(other)
                            && other.invoked > operation.invoked
                            && other.completed.is_some_and(|at| at > until && at < last)
                    })
            })?;
            if let Outcome::Granted { until, .. } = &mut operations[place].outcome {
                *until += ms(SHORT / 2);
            }
        }
        Corruption::GrantEarlier => {
            let place = pick(&is_grant)?;
            let operation = &mut operations[place];
            operation.queued = None;
            operation.invoked = operation.invoked.saturating_sub(ms(SHORT));
            operation.completed = operation.completed.map(|at| at.saturating_sub(ms(SHORT)));
        }
        Corruption::OperationForgotten => {
            let place = pick(&|operation| operation.completed.is_some())?;
            operations.remove(place);
        }
    }
    Some(operations)
}

/// The greatest token so far by the time of the call, and a whole lease.
fn grant_after_the_last(operations: &mut [Operation], place: usize) {
    let completed = operations[place].completed;
    let token = operations
        .iter()
        .filter(|operation| operation.completed <= completed)
        .map(|operation| match operation.outcome {
            Outcome::Granted { token, .. } => token,
            _ => 0,
        })
        .max();
    let until = completed.unwrap() + ms(SHORT);
    operations[place].outcome = Outcome::Granted { token: token.unwrap_or(0) + 1, until };
}

#[test]
fn most_corruptions_are_found() {
    let (mut made_in_all, mut found_in_all) = (0, 0);
    for (corruption, least) in CORRUPTIONS {
        let (mut made, mut found) = (0_u64, 0_u64);
        for seed in 0..80 {
            let mut rng = StdRng::seed_from_u64(seed);
            let operations = Run::new(seed, SHORT).history(100);
            let Some(corrupted) = corrupt(corruption, operations, &mut rng) else { continue };
            let report = judge(corrupted, &WITH_EXPIRY);
            made += 1;
            found += u64::from(!report.passed());
        }
        println!("{corruption:?}: {found} of {made} found");
        assert!(
            made > 10 && found * 100 >= made * least,
            "{corruption:?}: {found} of {made} found"
        );
        (made_in_all, found_in_all) = (made_in_all + made, found_in_all + found);
    }
    println!("{found_in_all} of {made_in_all} found");
}
