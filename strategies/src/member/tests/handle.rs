//! Goal: what a handle makes of an answer, and when it asks at all.
//! Method: a handle whose driver is the test: it takes the mail, and answers by hand, in virtual time.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use gaggle_channels::{Hub, NodeName};
use tokio::sync::oneshot;

use crate::{
    Error, Instant, Lock, LockOptions, MaxWait, MemberOptions, Nonce, TokioClock,
    lock_table::{ClusterTime, Ended, Grant, ProcessId},
    member::{
        Member, Policy,
        driver::Driver,
        mailbox::Mail,
        requests::{Answer, Call, LockCall},
    },
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn assembled() -> (Member, Driver) {
    assembled_with(|options| options)
}

fn assembled_with(change: impl FnOnce(MemberOptions) -> MemberOptions) -> (Member, Driver) {
    let name = NodeName::new("a").unwrap();
    let options = MemberOptions::named("test", [name.clone()]);
    let options = change(options.clock(Arc::new(TokioClock::new())).seed(1));
    Member::assemble(Arc::new(Hub::new().channel(name)), options, Policy::Queue)
}

/// The next request, and where its answer goes.
async fn next(driver: &mut Driver) -> (Call, oneshot::Sender<Answer>) {
    match driver.mailbox.recv().await {
        Some(Mail::Call { call, reply: Some(reply) }) => (call, reply),
        other => panic!("it was {other:?}"),
    }
}

async fn next_lock(driver: &mut Driver) -> (LockCall, oneshot::Sender<Answer>) {
    match next(driver).await {
        (Call::Lock { lock, .. }, reply) => (lock, reply),
        (other, _) => panic!("it was {other:?}"),
    }
}

fn lock_until(deadline: Instant) -> Lock {
    Lock::new("k", Nonce::from_u128(1), 1, Some(deadline))
}

/// Contract, *Outcomes*: where an earlier send of the same unlock is unanswered, it may have been the
/// one that freed the lock.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_finds_nothing_is_judged_by_the_deadline_and_by_an_earlier_send() {
    for (asked_before, in_time, late) in [(false, "NotHolder", "Expired"), (true, "Ok", "Unknown")]
    {
        for (lasts, expected) in [(ms(500), in_time), (Duration::ZERO, late)] {
            let (member, mut driver) = assembled();
            let lock = lock_until(member.clock().now().after(lasts));
            let answer = Answer::Unlocked { was: Ended::Unknown, asked_before };
            let (outcome, ()) = tokio::join!(member.unlock(&lock), async {
                let (_, reply) = next(&mut driver).await;
                reply.send(answer).unwrap();
            });
            let told = match outcome {
                Ok(()) => "Ok",
                Err(Error::NotHolder) => "NotHolder",
                Err(Error::Expired) => "Expired",
                Err(Error::Unknown) => "Unknown",
                Err(other) => panic!("{other:?}"),
            };
            assert_eq!(told, expected, "asked before: {asked_before}, {lasts:?} left");
        }
    }
}

/// It is not refused for want of room, and ends with the request timeout whether it waited for room, for
/// the answer, or for both.
#[tokio::test(start_paused = true)]
async fn an_unlock_waits_for_room_and_its_answer_until_the_request_timeout() {
    for room_after in [None, Some(ms(400))] {
        let (member, mut driver) = assembled_with(|options| options.mailbox(1));
        let began = member.clock().now();
        let asking = LockOptions::default();
        let mut first = std::pin::pin!(member.lock("k", &asking));
        assert!(first.as_mut().now_or_never().is_none(), "it takes the only place");
        let lock = lock_until(began.after(ms(5000)));
        let (outcome, replies) = tokio::join!(member.unlock(&lock), async {
            tokio::time::sleep(room_after?).await;
            Some((next(&mut driver).await, next(&mut driver).await))
        });
        assert_eq!(member.clock().now().since(began), ms(1000));
        match (room_after, outcome) {
            (None, Err(Error::Limit { limit: 1, .. })) => assert!(replies.is_none()),
            (Some(_), Err(Error::Unavailable { .. })) => {
                let (_, (unlock, _)) = replies.unwrap();
                assert!(matches!(unlock, Call::Unlock { .. }), "it came when there was room");
            }
            (_, other) => panic!("room after {room_after:?}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn from_its_deadline_on_nothing_is_asked_for_a_lock() {
    let (member, mut driver) = assembled();
    let lock = lock_until(member.clock().now());
    let told = member.extend(&lock, ms(1000)).now_or_never();
    assert!(matches!(told, Some(Err(Error::Expired))), "{told:?}");
    assert!(driver.mailbox.try_recv().is_none());
}

/// Contract, *Outcomes*: `extend` ends by the local deadline.
#[tokio::test(start_paused = true)]
async fn an_extend_that_nobody_answers_ends_with_the_lease_or_with_the_request_timeout() {
    for (lasts, ends) in [(Some(ms(300)), ms(300)), (Some(ms(5000)), ms(1000)), (None, ms(1000))] {
        let (member, mut driver) = assembled();
        let began = member.clock().now();
        let lock = Lock::new("k", Nonce::from_u128(1), 1, lasts.map(|lasts| began.after(lasts)));
        let (outcome, _reply) = tokio::join!(member.extend(&lock, ms(9000)), next(&mut driver));
        assert_eq!(member.clock().now().since(began), ends);
        match outcome {
            Err(Error::Expired) => assert_eq!(lasts, Some(ends)),
            Err(Error::Unavailable { .. }) => assert_ne!(lasts, Some(ends), "nobody ever led"),
            other => panic!("{other:?}"),
        }
    }
}

/// Granted and run out before this process learned of it.
#[tokio::test(start_paused = true)]
async fn a_nonce_that_is_spent_is_drawn_anew_unless_it_was_given() {
    let (member, mut driver) = assembled();
    let asking = LockOptions::default();
    let locking = member.lock("k", &asking);
    let answering = async {
        let (first, reply) = next_lock(&mut driver).await;
        reply.send(Answer::Spent).unwrap();
        let (second, _reply) = next_lock(&mut driver).await;
        assert_ne!(first.nonce, second.nonce);
        assert!(second.drawn && second.unused);
    };
    let (outcome, ()) = tokio::join!(locking, answering);
    assert!(matches!(outcome, Err(Error::Closed)), "the driver went: {outcome:?}");

    let (member, mut driver) = assembled();
    let given = LockOptions::default().nonce(Nonce::from_u128(7));
    let (outcome, ()) = tokio::join!(member.lock("k", &given), async {
        let (_, reply) = next_lock(&mut driver).await;
        reply.send(Answer::Spent).unwrap();
    });
    assert!(matches!(outcome, Err(Error::Spent)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_ends_before_a_lease_is_long_enough_says_so() {
    let (member, mut driver) = assembled();
    let brief = LockOptions::default().duration(ms(100)).max_wait(MaxWait::AtMost(ms(1000)));
    let (outcome, ()) = tokio::join!(member.lock("k", &brief), async {
        let (call, reply) = next_lock(&mut driver).await;
        let sent = member.clock().now();
        tokio::time::sleep(ms(60)).await;
        let grant = Grant {
            key: call.key,
            nonce: call.nonce,
            process: ProcessId(1),
            request: 1,
            token: 1,
            asked_at: ClusterTime(0),
            granted_at: ClusterTime(0),
            expires_at: ClusterTime(100),
        };
        let (received, claim) = (member.clock().now(), Default::default());
        reply.send(Answer::Granted { grant, sent, received, claim }).unwrap();
        let (call, reply) = next(&mut driver).await;
        assert!(matches!(call, Call::Extend { .. }), "{call:?}");
        drop(reply);
    });
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
}

/// Contract, rule 10: nobody would tell the guard that the group has gone on without this member.
#[tokio::test(start_paused = true)]
async fn who_begins_to_watch_after_the_driver_has_ended_finds_the_lock_lost() {
    let (member, driver) = assembled();
    let lock = lock_until(member.clock().now().after(ms(5000)));
    assert!(!member.watch(&lock).is_lost());
    drop(driver);
    assert!(member.watch(&lock).is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_taken_under_the_label_it_was_asked_with() {
    let (member, mut driver) = assembled();
    for label in [None, Some("nightly")] {
        let options = LockOptions { label: label.map(Into::into), ..LockOptions::default() };
        let mut locking = Box::pin(member.lock("k", &options));
        assert!(locking.as_mut().now_or_never().is_none());
        let (call, _reply) = next_lock(&mut driver).await;
        assert_eq!(call.owner.label.as_deref(), label);
        assert_eq!(call.owner.pid, std::process::id(), "all else is this process");
        drop(locking);
        assert!(driver.mailbox.try_recv().is_some(), "withdrawn");
    }
}
