//! Goal: the history checker finds every kind of violation. Method: for each kind and model, the
//! smallest history with it; the same history without the violation passes.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod history_support;

use gaggle_lab::history::{
    ModelKind::{self, Fenced, Leased, Queued},
    Operation, Outcome, Refusal, Rule,
};
use gaggle_strategies::lock::Nonce;
use history_support::*;

/// No order explains the history.
fn finds(model: ModelKind, operations: &[Operation]) {
    assert_eq!(broken(model, operations), [Rule::Unexplained(model)]);
}

#[test]
fn two_holders_before_a_deadline() {
    let bad = [granted(1, 0, 1, 1, 100), granted(2, 5, 50, 2, 150)];
    finds(Leased, &bad);
    finds(Queued, &bad);
    // Nothing is wrong without a clock.
    passes(&[Fenced], &bad);
    passes(&[Leased, Queued], &[granted(1, 0, 1, 1, 100), granted(2, 5, 100, 2, 150)]);
}

#[test]
fn brief_grant_within_a_hold() {
    let bad = [granted(1, 0, 1, 1, 100), granted(2, 5, 50, 2, 50)];
    finds(Leased, &bad);
}

#[test]
fn repeated_lock_holds_from_its_first_reply() {
    // The first LOCK of the nonce gets its reply after the second, and after another's hold.
    let asked_twice = [granted(1, 0, 30, 2, 100), by(9, granted(1, 1, 5, 2, 100))];
    let bad = [&asked_twice[..], &[granted(2, 6, 20, 1, 25)]].concat();
    finds(Leased, &bad);
    passes(&[Leased], &[&asked_twice[..], &[granted(2, 1, 4, 1, 4)]].concat());
}

/// A failed call withdraws its nonce, unless that was given: another process may rely on it.
#[test]
fn failed_call_of_a_given_nonce_withdraws_nothing() {
    let given = |operation| Operation { nonce: Nonce::given(1), ..operation };
    let generated =
        [granted(1, 0, 1, 1, 100), by(9, timed_out(1, 2, 3)), granted(2, 5, 50, 2, 150)];
    passes(&[Leased], &generated);
    let [first, failed, second] = generated;
    finds(Leased, &[given(first), given(failed), second]);
}

#[test]
fn refused_unlock_frees_no_other_nonce() {
    // Another client's refused unlock frees nothing.
    let bad =
        [granted(1, 0, 1, 1, 100), refused(3, 2, 3, Refusal::NotHolder), granted(2, 5, 50, 2, 150)];
    finds(Leased, &bad);
}

#[test]
fn unlock_of_an_unlocked_nonce() {
    for model in ModelKind::ALL {
        finds(model, &[granted(1, 0, 1, 1, 100), unlocked(3, 2, 3)]);
        finds(model, &[extended(3, 2, 3, 9)]);
        // Asked for, but only after the unlock.
        finds(model, &[unlocked(3, 2, 3), granted(3, 5, 6, 1, 9)]);
    }
}

#[test]
fn unlock_by_a_former_holder() {
    let bad = [granted(1, 0, 1, 1, 10), granted(2, 11, 12, 2, 100), unlocked(1, 20, 21)];
    for model in ModelKind::ALL {
        finds(model, &bad);
    }
    // Late, but no other nonce held in between.
    let late = [granted(1, 0, 1, 1, 10), unlocked(1, 20, 21), granted(2, 11, 22, 2, 100)];
    passes(&ModelKind::ALL, &late);
}

#[test]
fn extend_revives_a_lost_lock() {
    let bad = [
        granted(1, 0, 1, 1, 10),
        granted(2, 11, 12, 2, 100),
        unlocked(2, 13, 14),
        extended(1, 20, 21, 30),
    ];
    finds(Leased, &bad);
    finds(Fenced, &bad);
    passes(&[Leased, Fenced], &[granted(1, 0, 1, 1, 10), extended(1, 20, 21, 30)]);
}

#[test]
fn extension_is_ignored_by_the_next_grant() {
    let bad = [granted(1, 0, 1, 1, 10), extended(1, 5, 6, 50), granted(2, 11, 20, 2, 100)];
    finds(Leased, &bad);
    // The effect may come as late as the reply.
    let good = [granted(1, 0, 1, 1, 10), extend(1, 5, 6, Outcome::Unknown)];
    passes(&[Leased], &[&good[..], &[granted(2, 11, 20, 2, 100)]].concat());
}

#[test]
fn falling_token() {
    let bad =
        [granted(1, 0, 1, 5, 100), unlocked(1, 2, 3), granted(2, 4, 5, 4, 100), unlocked(2, 6, 7)];
    finds(Fenced, &bad);
    // The owner is right all the same: wrong tokens are the fenced model's finding.
    passes(&[Leased], &bad);
    finds(Fenced, &[granted(1, 0, 1, 0, 100)]);
}

#[test]
fn token_falls_against_a_proven_order() {
    // Concurrent LOCKs have no order; the second's extension shows it.
    let bad = [
        granted(1, 0, 3, 5, 100),
        granted(2, 0, 9, 4, 100),
        unlocked(1, 5, 6),
        extended(2, 9, 10, 200),
    ];
    finds(Fenced, &bad);
    // Tokens that do not contradict real time are taken at their word by all models.
    finds(Leased, &bad);
}

#[test]
fn reused_token() {
    let bad = [granted(1, 0, 1, 5, 100), unlocked(1, 2, 3), granted(2, 4, 5, 5, 100)];
    finds(Fenced, &bad);
}

#[test]
fn repeated_lock_with_another_token() {
    let bad = [granted(1, 0, 1, 5, 100), by(9, granted(1, 2, 3, 6, 100))];
    finds(Fenced, &bad);
    let good = [granted(1, 0, 1, 5, 100), by(9, granted(1, 2, 3, 5, 100))];
    passes(&ModelKind::ALL, &good);
}

#[test]
fn grant_after_its_unlock() {
    let bad = [granted(1, 0, 1, 1, 100), unlocked(1, 2, 3), granted(1, 4, 5, 1, 200)];
    for model in ModelKind::ALL {
        finds(model, &bad);
    }
}

#[test]
fn grant_again_after_another_hold() {
    let bad = [
        granted(1, 0, 1, 1, 10),
        granted(2, 11, 12, 2, 20),
        by(9, granted(1, 21, 22, 1, 30)),
        by(9, unlocked(1, 23, 24)),
    ];
    finds(Leased, &bad);
}

#[test]
fn nonce_unlocked_twice() {
    let bad = [granted(1, 0, 1, 1, 100), unlocked(1, 2, 3), unlocked(1, 4, 5)];
    for model in ModelKind::ALL {
        finds(model, &bad);
    }
    // At once: each may report the other's effect.
    let good = [granted(1, 0, 1, 1, 100), unlocked(1, 2, 5), by(9, unlocked(1, 3, 4))];
    passes(&ModelKind::ALL, &good);
}

#[test]
fn extend_after_its_unlock() {
    let bad = [granted(1, 0, 1, 1, 100), unlocked(1, 2, 3), extended(1, 4, 5, 300)];
    for model in ModelKind::ALL {
        finds(model, &bad);
    }
}

#[test]
fn holder_refused_as_not_holder() {
    let refusal = Refusal::NotHolder;
    let bad = [granted(1, 0, 1, 1, 100), refused(1, 2, 3, refusal)];
    finds(Leased, &bad);
    passes(&[Fenced], &bad);
    passes(&[Leased], &[granted(1, 0, 1, 1, 100), refused(1, 2, 100, refusal)]);
    let failed_extend = extend(1, 2, 3, Outcome::Refused(Refusal::NotHolder));
    finds(Leased, &[granted(1, 0, 1, 1, 100), failed_extend]);
}

#[test]
fn expired_before_the_deadline() {
    let bad = [granted(1, 0, 1, 1, 100), refused(1, 2, 3, Refusal::Expired)];
    finds(Leased, &bad);
    passes(&[Leased], &[granted(1, 0, 1, 1, 100), refused(1, 2, 100, Refusal::Expired)]);
}

#[test]
fn deadline_later_than_the_lease() {
    let bad = [granted(1, 0, 1, 1, 1002)];
    assert_eq!(broken(Leased, &bad), [Rule::DeadlineTooLate]);
    passes(&[Leased], &[granted(1, 0, 1, 1, 1001)]);
}

#[test]
fn queued_waiter_is_overtaken() {
    let bad = [
        granted(1, 0, 1, 1, 1000),
        queued(granted(2, 2, 30, 3, 1020), 5),
        granted(3, 6, 20, 2, 1010),
        unlocked(1, 10, 11),
        unlocked(3, 22, 23),
    ];
    finds(Queued, &bad);
    passes(&[Fenced, Leased], &bad);
    // Asked at the time at which the other was queued: no order.
    let mut good = bad.clone();
    good[1] = queued(granted(2, 2, 30, 3, 1020), 6);
    passes(&[Queued], &good);
    // Never known to be queued: no order either.
    good[1] = granted(2, 2, 30, 3, 1020);
    passes(&[Queued], &good);
}

#[test]
fn grant_within_the_longer_of_two_holds() {
    let bad = [granted(1, 0, 1, 1, 10), granted(2, 11, 12, 2, 100), granted(3, 20, 50, 3, 50)];
    finds(Leased, &bad);
    passes(&[Leased], &[&bad[..2], &[granted(3, 20, 101, 3, 101)]].concat());
}

/// The queued LOCK may be the other one, whose reply was lost: then it came later than it seems.
#[test]
fn queue_stamp_of_a_repeated_lock_is_uncertain() {
    let served = |also: &[Operation]| {
        let all = [
            granted(1, 0, 1, 1, 1000),
            queued(granted(2, 2, 30, 3, 1020), 5),
            granted(3, 6, 20, 2, 1010),
            unlocked(1, 9, 10),
            unlocked(3, 21, 22),
        ];
        [&all[..], also].concat()
    };
    finds(Queued, &served(&[]));
    let no_reply = lock(2, 3, 4, Outcome::Unknown);
    passes(&[Queued], &served(&[by(9, no_reply)]));
}

#[test]
fn overtaken_waiter_in_mid_queue() {
    // The first holder asked after the second had queued, and before the third had.
    let served = |asked| {
        [
            granted(1, asked, 31, 1, 1000),
            unlocked(1, 50, 51),
            queued(granted(2, 10, 60, 2, 1000), 20),
            unlocked(2, 61, 62),
            queued(granted(3, 35, 80, 3, 1000), 40),
        ]
    };
    finds(Queued, &served(30));
    passes(&[Queued], &served(5));
}

#[test]
fn token_falls_behind_a_lock_without_reply() {
    let again = |token| {
        [
            granted(1, 0, 1, 5, 100),
            unlocked(1, 2, 3),
            without_reply(lock(2, 4, 5, Outcome::Unknown)),
            by(9, granted(2, 10, 11, token, 100)),
        ]
    };
    finds(Fenced, &again(4));
    passes(&[Fenced], &again(6));
}

#[test]
fn unlock_without_effect_ends_nothing() {
    let bad =
        [granted(1, 0, 1, 1, 100), refused(1, 2, 3, Refusal::NoEffect), granted(2, 5, 50, 2, 150)];
    finds(Leased, &bad);
}

#[test]
fn unlock_with_reply_ends_its_nonce() {
    let twice = [granted(1, 0, 1, 1, 100), unlocked(1, 2, 9), by(9, unlocked(1, 3, 4))];
    let again = |invoked| by(8, granted(1, invoked, invoked + 1, 1, 200));
    for model in ModelKind::ALL {
        finds(model, &[&twice[..], &[again(5)]].concat());
    }
}
