//! A refusal is no outcome of a nonce: whoever asked with it rests, and may ask again. What is withdrawn, kept or
//! passed on meanwhile, also where a late copy of the refused LOCK comes.

use super::*;

#[test]
fn whoever_gives_up_after_a_refusal_withdraws() {
    let (mut pair, late) = resting(&[2]);
    pair.requests.call(at(2), cancel(2, 2));
    pair.turn(2);
    assert_eq!(pair.requests.len(), 0);
    pair.apply(3, &[free(1)]);
    pair.apply(3, &late);
    assert_eq!(pair.table.sizes().keys, 0, "nothing is granted to a late copy");
}

#[test]
fn a_nonce_that_another_caller_asks_for_again_is_not_withdrawn() {
    let (mut pair, _) = resting(&[2, 3]);
    pair.requests.call(at(2), cancel(2, 2));
    assert!(pair.take_due(2).is_empty());
    pair.requests.call(at(3), cancel(3, 2));
    assert_eq!(pair.take_due(3).len(), 1, "the last one withdraws");
}

#[test]
fn a_try_that_was_refused_is_not_withdrawn() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Now));
    pair.requests.call(at(0), lock(2, "k", 2, Until::Now));
    pair.turn(0);
    pair.requests.call(at(1), cancel(2, 2));
    assert!(pair.take_due(1).is_empty(), "a refusal is not an outcome of the nonce");
}

#[test]
fn nothing_is_kept_of_a_retry_that_was_granted() {
    let (mut pair, _) = resting(&[2]);
    pair.apply(2, &[free(1)]);
    pair.requests.call(at(3), retried(2, 2));
    pair.turn(3);
    assert!(granted(&pair.answers(), 2));
    assert!(pair.requests.retrying.is_empty());
}

#[test]
fn what_a_late_copy_takes_between_two_tries_is_kept_for_the_next_try() {
    let (mut pair, late) = resting(&[2]);
    pair.apply(2, &[free(1)]);
    pair.apply(2, &late);
    assert!(pair.take_due(2).is_empty(), "it is not passed on");
    pair.requests.call(at(3), retried(2, 2));
    pair.turn(3);
    assert!(granted(&pair.answers(), 2));
}

/// A nonce that was refused may be asked for again, by the caller or by plain compare-and-set. A
/// copy of the first LOCK may have been stamped long before the second was sent: what it is granted
/// counts from then, so it is no answer to the second.
#[test]
fn a_grant_to_a_late_copy_of_a_refused_lock_is_no_answer_to_the_next() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Now));
    let first = pair.take_due(0);
    let refused = Effect::Refused {
        nonce: Nonce::from_u128(1),
        process: ME,
        request: 1,
        reason: Refusal::Held,
    };
    pair.requests.observe(at(1), &refused);
    pair.requests.call(at(500), lock(2, "k", 1, Until::Now));
    let second = pair.take_due(500);
    // The copy was stamped at 10, when the leader's followers were silent.
    pair.apply(10, &first);
    assert!(!granted(&pair.answers(), 2), "counted from 500, it would last too long");
    assert!(pair.requests.unlocks.is_empty(), "the nonce is asked for again: it is not passed on");
    pair.apply(501, &second);
    let answers: Vec<_> = pair.requests.take_answers().collect();
    let Some((2, Answer::Granted { grant, sent, .. })) = answers.first() else {
        panic!("{answers:?}");
    };
    assert_eq!((*sent, grant.asked_at), (at(500), ClusterTime(501)));
}
