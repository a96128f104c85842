//! Goal: what a member's handle says and leaves behind at the edges: a dropped guard, a close with
//! and without a quorum, requests that nobody answers.
//!
//! Method: three members over the Memory channel on one paused runtime; nothing sleeps for real.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use futures_util::FutureExt as _;
use gaggle_channels::{Channel, ChannelError, Hub, NodeName};
use gaggle_strategies::{
    Error, Gaggle, KeyedMutex, Lock, LockOptions, MaxWait, MemberOptions, Raft, TokioClock,
};
use tokio::{
    task::unconstrained,
    time::{Instant, sleep},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn names() -> [NodeName; 3] {
    ["a", "b", "c"].map(|name| NodeName::new(name).unwrap())
}

/// The members by their names; the leader comes first.
async fn cluster(hub: &Hub) -> Vec<(NodeName, Gaggle)> {
    let mut members = Vec::new();
    for (name, seed) in names().into_iter().zip(1..) {
        let channel: Arc<dyn Channel> = Arc::new(hub.channel(name.clone()));
        let options = MemberOptions::named("test", names()).seed(seed);
        let options = options.clock(Arc::new(TokioClock::new()));
        members.push((name, Gaggle::open(channel, options).await.unwrap()));
    }
    for (_, member) in &members {
        member.ready().await.unwrap();
    }
    members.sort_by_key(|(_, member)| !member.status().leads);
    members
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_let_go_is_free_at_once() {
    let members = cluster(&Hub::new()).await;
    let [(_, first), (_, second), _] = &members[..] else { unreachable!() };
    let lock = first.lock("k", LockOptions::default()).await.unwrap();
    let watch = first.watch(&lock);
    first.release(&lock);
    assert!(watch.is_lost(), "nobody relies on it any more");
    sleep(ms(10)).await;
    second.try_lock("k", ms(1000)).await.unwrap();
}

/// Whoever shares a thread with a member, the driver of another one perhaps, has its turn while
/// requests come faster than they are answered.
#[tokio::test(start_paused = true)]
async fn a_member_under_load_lets_others_have_their_turn() {
    let channel = Arc::new(Hub::new().channel(names()[0].clone()));
    let options = MemberOptions::named("test", [names()[0].clone()]);
    let member = Gaggle::open(channel, options.clock(Arc::new(TokioClock::new()))).await.unwrap();
    member.ready().await.unwrap();
    let keys = (0..5_000).map(|key| format!("k{key}")).collect::<Vec<_>>();
    let mut locks = keys
        .iter()
        .map(|key| Box::pin(unconstrained(member.lock(key, LockOptions::default()))))
        .collect::<Vec<_>>();
    let mut granted = || {
        let mut context = Context::from_waker(Waker::noop());
        locks.retain_mut(|lock| lock.as_mut().poll(&mut context).is_pending());
        5_000 - locks.len()
    };
    assert_eq!(granted(), 0);
    let (mut before, mut turns) = (0, 0);
    while before < 5_000 {
        tokio::task::yield_now().await;
        let now = granted();
        assert!(now - before <= 1_100, "{} in one turn", now - before);
        (before, turns) = (now, turns + 1);
        assert!(turns < 100, "only {now} are granted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_closes_hands_leadership_over() {
    let members = cluster(&Hub::new()).await;
    let began = Instant::now();
    members[0].1.close().await;
    assert!(began.elapsed() < ms(200), "nothing was under way: {:?}", began.elapsed());
    sleep(ms(30)).await;
    assert!(members[1..].iter().any(|(_, member)| member.status().leads), "before any timeout");
}

#[tokio::test(start_paused = true)]
async fn a_close_without_a_quorum_tries_to_unlock_until_the_request_timeout() {
    let hub = Hub::new();
    let members = cluster(&hub).await;
    let leader = &members[0].1;
    let lock = leader.lock("k", LockOptions::default()).await.unwrap();
    let watch = leader.watch(&lock);
    names().iter().for_each(|name| hub.isolate(name));
    let began = Instant::now();
    leader.close().await;
    assert!(watch.is_lost());
    let took = began.elapsed();
    assert!(took >= ms(1000) && took <= ms(1200), "{took:?}");
}

/// Whoever hears the leader and is not heard: it took effect or not, or it was withdrawn.
#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_answers_ends_as_what_was_asked_for() {
    let hub = Hub::new();
    let members = cluster(&hub).await;
    let (mute, member) = &members[2];
    members[..2].iter().for_each(|(name, _)| hub.cut(mute, name));
    let ends = async |options: LockOptions| {
        let began = Instant::now();
        (member.lock("k", options).await.unwrap_err(), began.elapsed().as_millis())
    };
    let wait = |wait: Duration| LockOptions::default().max_wait(MaxWait::AtMost(wait));
    let waited = ends(wait(ms(2000))).await;
    assert!(matches!(waited, (Error::TimedOut, 2000)), "{waited:?}");
    let tried = ends(wait(Duration::ZERO)).await;
    assert!(matches!(tried, (Error::Unknown, 1000)), "{tried:?}");
}

/// Contract, the trait: `close` leaves no socket behind.
#[tokio::test(start_paused = true)]
async fn a_member_that_is_closed_has_left_its_channel() {
    let name = NodeName::new("a").unwrap();
    let channel: Arc<dyn Channel> = Arc::new(Hub::new().channel(name.clone()));
    let options = MemberOptions::named("test", [name.clone()]).clock(Arc::new(TokioClock::new()));
    let member = Gaggle::open(channel.clone(), options).await.unwrap();
    assert!(channel.send(&name, vec![1].into()).is_ok());
    member.close().await;
    let sent = channel.send(&name, vec![1].into());
    assert!(matches!(sent, Err(ChannelError::Disconnected)), "{sent:?}");
}

/// Contract, rule 8: `max_wait` is not overrun by a sleep or a retry.
#[tokio::test(start_paused = true)]
async fn a_wait_without_a_queue_ends_at_its_very_end() {
    let name = NodeName::new("a").unwrap();
    let channel = Arc::new(Hub::new().channel(name.clone()));
    let options = MemberOptions::named("test", [name]).clock(Arc::new(TokioClock::new())).seed(1);
    let member = Raft::open(channel, options).await.unwrap();
    member.lock("k", LockOptions::default()).await.unwrap();
    for wait in 30..60 {
        let began = Instant::now();
        let options = LockOptions::default().max_wait(MaxWait::AtMost(ms(wait)));
        let outcome = member.lock("k", options).await;
        assert!(matches!(outcome, Err(Error::TimedOut)), "{outcome:?}");
        assert_eq!(began.elapsed(), ms(wait));
    }
}

/// What others are granted by the next group must be relied on by nobody of the former: neither by
/// whom a lock was handed to, nor by a caller that has not looked at its answer, nor by one that
/// begins to watch only then.
#[tokio::test(start_paused = true)]
async fn what_a_group_granted_is_lost_with_it_in_whosever_hands_it_is() {
    let hub = Hub::new();
    let mut members = cluster(&hub).await;
    let (_, survivor) = members.pop().unwrap();
    let long = LockOptions::default().duration(ms(600_000));
    let handed_over = members[0].1.lock("handed over", long.clone()).await.unwrap();
    let adopted = survivor.extend(&handed_over, ms(600_000)).await.unwrap();
    let adopted = survivor.watch(&adopted);
    let only_watched = members[0].1.lock("only watched", long.clone()).await.unwrap();
    let only_watched = survivor.watch(&only_watched);
    let unwatched = survivor.lock("unwatched", long.clone()).await.unwrap();
    let between = survivor.lock("between", long.clone()).await.unwrap();
    let mut unread = Box::pin(survivor.lock("unread", long.clone()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(unread.as_mut().poll(&mut context).is_pending());
    sleep(ms(200)).await;
    assert!(members[0].1.inspect("unread").await.unwrap().is_some(), "granted, and not taken");

    // More than half of the members lose their memory.
    let former = survivor.status().group;
    let lost: Vec<NodeName> = members.iter().map(|(name, _)| name.clone()).collect();
    drop(members);
    sleep(ms(100)).await;
    let mut anew = Vec::new();
    for (name, seed) in lost.into_iter().zip(10..) {
        let channel: Arc<dyn Channel> = Arc::new(hub.channel(name));
        let options = MemberOptions::named("test", names()).seed(seed);
        let options = options.clock(Arc::new(TokioClock::new()));
        anew.push(Gaggle::open(channel, options).await.unwrap());
    }
    while survivor.status().group == former {
        sleep(ms(1)).await;
    }
    assert_eq!(survivor.status().group, None, "it is in no group for a moment");
    let between = survivor.watch(&between);
    sleep(ms(1)).await;
    assert!(between.is_lost());
    for member in &anew {
        member.ready().await.unwrap();
    }
    assert!(survivor.status().group.is_some_and(|group| Some(group) != former), "a new group");
    for key in ["handed over", "unwatched", "unread"] {
        let _ = anew[0].try_lock(key, ms(600_000)).await.unwrap();
    }
    assert!(adopted.is_lost() && only_watched.is_lost());
    let unwatched = survivor.watch(&unwatched);
    for _ in 0..5 {
        assert!(unread.as_mut().poll(&mut context).is_pending(), "it is another's now");
        sleep(ms(20)).await;
    }
    assert!(unwatched.is_lost());
}

/// Whoever takes a lock over from another process, which then ends it after all, may begin to watch
/// it after the news. What lives is nobody's loss, extended here or not.
#[tokio::test(start_paused = true)]
async fn who_begins_to_watch_after_the_news_is_told_of_the_loss() {
    let members = cluster(&Hub::new()).await;
    let [(_, first), (_, second), _] = &members[..] else { unreachable!() };
    let long = LockOptions::default().duration(ms(600_000));
    let lives = first.lock("lives", long.clone()).await.unwrap();
    let handed_over = first.lock("handed over", long.clone()).await.unwrap();
    let own = second.lock("own", long).await.unwrap();
    let adopted = second.extend(&handed_over, ms(600_000)).await.unwrap();
    first.unlock(&handed_over).await.unwrap();
    while second.inspect("handed over").await.unwrap().is_some() {
        sleep(ms(1)).await;
    }
    let adopted = second.watch(&adopted);
    let others = [second.watch(&lives), second.watch(&own)];
    sleep(ms(20)).await;
    assert!(adopted.is_lost());
    assert!(others.iter().all(|watch| !watch.is_lost()));
}

/// A nonce may name a later acquisition once it is forgotten: that one is not extended in its name.
#[tokio::test(start_paused = true)]
async fn who_extends_a_former_value_of_a_nonce_does_not_hold_it() {
    let members = cluster(&Hub::new()).await;
    for (_, member) in &members {
        let lock = member.lock("k", LockOptions::default()).await.unwrap();
        let watch = member.watch(&lock);
        let former = Lock::new(lock.key().clone(), lock.nonce(), lock.fencing_token() - 1, None);
        let outcome = member.extend(&former, ms(1000)).await;
        assert!(matches!(outcome, Err(Error::NotHolder)), "{outcome:?}");
        assert!(!watch.is_lost());
        member.extend(&lock, ms(1000)).await.unwrap();
        member.unlock(&lock).await.unwrap();
    }
}

/// The same within one process, where one task ends what another has just extended. The unlock is
/// dropped before its answer, and says nothing to anybody itself.
#[tokio::test(start_paused = true)]
async fn what_one_task_ends_is_lost_to_another_that_relies_on_it() {
    let members = cluster(&Hub::new()).await;
    let ended = async |member: &Gaggle, lock: &Lock| {
        let mut context = Context::from_waker(Waker::noop());
        assert!(member.unlock(lock).boxed().poll_unpin(&mut context).is_pending());
        sleep(ms(20)).await;
    };
    for (_, member) in &members {
        let lock = member.lock("watched", LockOptions::default()).await.unwrap();
        let watch = member.watch(&lock);
        ended(member, &lock).await;
        assert!(watch.is_lost());

        let lock = member.lock("not watched yet", LockOptions::default()).await.unwrap();
        let extended = member.extend(&lock, ms(600_000)).await.unwrap();
        ended(member, &lock).await;
        let watch = member.watch(&extended);
        sleep(ms(20)).await;
        assert!(watch.is_lost());

        let lock = member.lock("not read yet", LockOptions::default()).await.unwrap();
        let mut extended = member.extend(&lock, ms(600_000));
        let mut context = Context::from_waker(Waker::noop());
        assert!(extended.poll_unpin(&mut context).is_pending());
        sleep(ms(20)).await;
        ended(member, &lock).await;
        assert!(matches!(extended.await, Err(Error::NotHolder)));
    }
}

/// A second one while the first waits for unlocks that nobody can answer.
#[tokio::test(start_paused = true)]
async fn closing_again_takes_no_longer_than_closing_once() {
    let mut members = cluster(&Hub::new()).await;
    let (_, member) = members.pop().unwrap();
    let lock = member.lock("k", LockOptions::default()).await.unwrap();
    let _watch = member.watch(&lock);
    drop(members);
    sleep(ms(2000)).await;
    let before = Instant::now();
    while tokio::time::timeout(ms(300), member.close()).await.is_err() {
        assert!(before.elapsed() < ms(3000), "it never ends");
    }
    assert!(before.elapsed() < ms(1500), "{:?}", before.elapsed());
}
